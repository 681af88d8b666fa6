//! The conformance suite against one member and against three.
#![allow(missing_docs, clippy::unwrap_used)]

mod cluster;

use std::time::Duration;

use distlock_testkit::conformance::{Client, Connected, Deployment};
use distlock_testkit::servers::{Etcd, or_skip};
use tokio::sync::OnceCell;

/// A cluster, shared by all cases; it ends with the program.
#[derive(Clone, Copy)]
struct Shared(&'static Etcd);

impl Shared {
    async fn start(members: usize) -> Option<Self> {
        static ONE: OnceCell<Option<Etcd>> = OnceCell::const_new();
        static SEVERAL: OnceCell<Option<Etcd>> = OnceCell::const_new();
        let cluster = if members == 1 { &ONE } else { &SEVERAL };
        let etcd = cluster.get_or_init(|| async move { or_skip(Etcd::start(members).await) });
        etcd.await.as_ref().map(Self)
    }
}

#[async_trait::async_trait]
impl Deployment for Shared {
    async fn client(&self) -> Connected {
        let config = cluster::config(self.0);
        Client::start(async |engine| distlock_etcd::open(engine, config).await.map_err(cluster::boxed)).await
    }

    fn ttl(&self) -> Duration {
        Duration::from_secs(1)
    }

    fn slack(&self) -> Duration {
        // The server looks for leases that have run out twice a second, and the machine may be shared.
        Duration::from_secs(4)
    }
}

mod one {
    distlock_testkit::conformance!(match super::Shared::start(1).await {
        Some(etcd) => etcd,
        None => return,
    });
}

mod three {
    distlock_testkit::conformance!(match super::Shared::start(3).await {
        Some(etcd) => etcd,
        None => return,
    });
}
