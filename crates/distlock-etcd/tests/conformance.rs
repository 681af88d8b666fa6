//! The conformance suite against one member and, for the cases that depend on it, three.

mod cluster;

use std::time::Duration;

use distlock_testkit::conformance::{Client, Connected, Deployment};
use distlock_testkit::servers::{Etcd, or_skip};

/// A cluster, shared by all cases of this program.
struct Shared(Option<std::sync::Arc<Etcd>>);

#[async_trait::async_trait]
impl Deployment for Shared {
    async fn client(&self) -> Connected {
        let etcd = self.0.as_ref().ok_or("etcd is not installed")?;
        let config = cluster::config(etcd);
        Client::start(async |engine| distlock_etcd::open(engine, config).await.map_err(cluster::boxed)).await
    }

    fn ttl(&self) -> Duration {
        Duration::from_secs(1)
    }

    fn slack(&self) -> Duration {
        // The server looks for leases that have run out twice a second, and this machine is shared.
        Duration::from_secs(4)
    }
}
