//! The conformance suite against one member, with TLS, certificates and an account, and against three.
#![allow(missing_docs, clippy::unwrap_used)]

mod cluster;

use std::time::Duration;

use distlock_etcd::Config;
use distlock_testkit::conformance::{Client, Connected, Deployment};
use distlock_testkit::servers::{Etcd, or_skip};
use tokio::sync::OnceCell;

use crate::cluster::Secure;

/// A cluster, shared by all cases; it ends with the program.
#[derive(Clone)]
struct Shared(Config);

impl Shared {
    /// One member, whose clients have certificates and an account that is limited to the namespace.
    async fn secure() -> Option<Self> {
        static ONE: OnceCell<Option<Secure>> = OnceCell::const_new();
        let start = || async {
            let member = or_skip(Secure::start().await)?;
            member.enable_accounts("distlock").await;
            Some(member)
        };
        let member = ONE.get_or_init(start).await.as_ref()?;
        Some(Self(member.known().user("app", "secret")))
    }

    async fn three() -> Option<Self> {
        static THREE: OnceCell<Option<Etcd>> = OnceCell::const_new();
        let etcd = THREE.get_or_init(|| async { or_skip(Etcd::start(3).await) });
        Some(Self(cluster::config(etcd.await.as_ref()?)))
    }
}

#[async_trait::async_trait]
impl Deployment for Shared {
    async fn client(&self) -> Connected {
        let config = self.0.clone();
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

mod one_secure {
    distlock_testkit::conformance!(match super::Shared::secure().await {
        Some(etcd) => etcd,
        None => return,
    });
}

mod three {
    distlock_testkit::conformance!(match super::Shared::three().await {
        Some(etcd) => etcd,
        None => return,
    });
}
