//! One node of the cluster: an engine of its own.

use std::time::Duration;

use distlock_core::driver::{DriverError, DriverErrorKind, Reached, Refusal};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use redis::Cmd;

use super::map::View;
use crate::dial::{self, Dialer};
use crate::driver::RedisDriver;

/// Host and port.
pub(super) type Address = (String, u16);

/// A node, with its own connections, subscriptions and renewals. It connects when it is first used.
#[derive(Debug)]
pub(super) struct Node {
    /// Tells it from all others that this client has known; a hold's mark.
    pub(super) id: u64,
    pub(super) address: Address,
    pub(super) driver: RedisDriver,
}

impl Node {
    /// The node for people.
    pub(super) fn name(&self) -> String {
        format!("{}:{}", self.address.0, self.address.1)
    }

    /// The slots as it sees them.
    pub(super) async fn view(&self) -> Result<View, DriverError> {
        let links = &self.driver.0.links;
        let link = links.get().await?;
        let mut slots = Cmd::new();
        slots.arg("CLUSTER").arg("SLOTS");
        let said = link
            .ask(&slots, links.patience())
            .await
            .map_err(|fault| fault.error)?;
        View::read(&said, &self.address).ok_or_else(|| {
            let why = format!("{} knows of no slots of the cluster", self.name());
            DriverError::unavailable(Reached::No, why)
        })
    }
}

/// Whether the servers know sharded publish/subscribe (Redis 7), as the first of these says that answers.
pub(super) async fn have_shards(
    dialer: &Dialer,
    nodes: &[Address],
    patience: Duration,
) -> Result<bool, DriverError> {
    let ask = async |(host, port): &Address| {
        let link = dialer.dial(&dial::Node::Tcp(host.clone(), *port), |_| ()).await?;
        let mut count = Cmd::new();
        count.arg("PUBSUB").arg("SHARDNUMSUB");
        match link.ask(&count, patience).await.map_err(|fault| fault.error) {
            Ok(_) => Ok(true),
            // An unknown command.
            Err(e) if matches!(e.kind, DriverErrorKind::Refused(Refusal::Unsupported(_))) => Ok(false),
            Err(e) => Err(e),
        }
    };
    let mut asked: FuturesUnordered<_> = nodes.iter().map(ask).collect();
    let mut trouble = DriverError::unavailable(Reached::No, "no node of the cluster is named");
    while let Some(said) = asked.next().await {
        match said {
            Ok(have) => return Ok(have),
            Err(e) => trouble = e,
        }
    }
    Err(trouble)
}
