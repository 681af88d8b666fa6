//! One contender, wherever the slot of its lock is.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use async_trait::async_trait;
use distlock_core::driver::{Claim, DriverError, Grant, Released, Standing, Want};

use super::Cluster;
use super::course::Course;
use super::node::Node;
use crate::claim::RedisClaim;

#[derive(Debug)]
pub(super) struct ClusterClaim {
    cluster: Arc<Cluster>,
    want: Arc<Want>,
    slot: u16,
    /// The claim at the node that had the slot when it was last asked.
    at: Option<(Arc<Node>, RedisClaim)>,
    over: bool,
}

impl ClusterClaim {
    pub(super) fn new(cluster: Arc<Cluster>, want: Arc<Want>, slot: u16) -> Self {
        Self {
            cluster,
            want,
            slot,
            at: None,
            over: false,
        }
    }

    /// The claim at the node that has the slot. One at a former node is dropped: its keys went with the slot, and
    /// what it may have on its way there is refused.
    fn here(&mut self) -> Result<(Arc<Node>, &mut RedisClaim), DriverError> {
        let node = self.cluster.topology.serving(self.slot)?;
        let claim = match self.at.take() {
            Some((at, claim)) if Arc::ptr_eq(&at, &node) => claim,
            _ => node.driver.claim_of(self.want.clone())?,
        };
        let (_, claim) = self.at.insert((node.clone(), claim));
        Ok((node, claim))
    }
}

#[async_trait]
impl Claim for ClusterClaim {
    async fn try_acquire(&mut self) -> Result<Standing, DriverError> {
        if self.over || self.cluster.closed.load(Ordering::Acquire) {
            return Err(DriverError::closed());
        }
        let mut course = Course::default();
        loop {
            let (node, claim) = self.here()?;
            match claim.try_acquire().await {
                Ok(Standing::Held(grant)) => {
                    self.over = true;
                    return Ok(Standing::Held(Grant {
                        mark: node.id,
                        ..grant
                    }));
                }
                Ok(waiting) => return Ok(waiting),
                Err(e) => course.after(&self.cluster, &node, e).await?,
            }
        }
    }

    async fn release(&mut self, keep: Option<Duration>) -> Result<Released, DriverError> {
        self.over = true;
        self.cluster.followed.forget(self.want.owner);
        let mut course = Course::default();
        loop {
            let (node, claim) = self.here()?;
            match claim.release(keep).await {
                Ok(released) => return Ok(released),
                Err(e) => course.after(&self.cluster, &node, e).await?,
            }
        }
    }
}

impl Drop for ClusterClaim {
    fn drop(&mut self) {
        if self.over {
            self.cluster.followed.forget(self.want.owner);
        }
    }
}
