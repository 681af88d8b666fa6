//! How long one request follows its slot.

use std::time::Duration;

use distlock_core::clock::Moment;
use distlock_core::driver::{DriverError, Reached};

use super::Cluster;
use super::node::Node;
use super::topology::Next;

/// How long a request follows a slot that is on its way, before the caller is told to try later. When it has arrived the
/// nodes may contradict each other for some rounds of their gossip, of which there is one a second.
const FOLLOWED: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(20);

/// The way of one request through the cluster.
#[derive(Debug, Default)]
pub(super) struct Course {
    since: Option<Moment>,
}

impl Course {
    /// After `node` refused: returns when it is time to ask the node that serves the slot now.
    ///
    /// # Errors
    /// The node's own, if it did not send the request elsewhere; or that the slot is on its way for too long.
    pub(super) async fn after(
        &mut self,
        cluster: &Cluster,
        node: &Node,
        e: DriverError,
    ) -> Result<(), DriverError> {
        let clock = cluster.engine.clock();
        let Some(next) = cluster.topology.redirected(node, &e) else {
            if e.retry {
                cluster.topology.suspect();
            }
            return Err(e);
        };
        let now = clock.now();
        let first = self.since.is_none();
        if now.since(*self.since.get_or_insert(now)) >= FOLLOWED {
            let why =
                format!("the slot of the lock is on its way from one node of the cluster to another ({e})");
            return Err(DriverError::unavailable(Reached::No, why));
        }
        if !(first && matches!(next, Next::Again)) {
            clock.sleep(PAUSE).await;
        }
        Ok(())
    }
}
