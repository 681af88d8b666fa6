//! The conformance suite on one server, as a user whose nodes are nobody else's, on three, and with the bridge to kazoo.
#![allow(clippy::unwrap_used, missing_docs)]

use std::sync::OnceLock;
use std::time::Duration;

use distlock_core::Secret;
use distlock_testkit::conformance::{Client, Connected, Deployment};
use distlock_testkit::servers::ZooKeeper;
use distlock_zookeeper::{Acl, Bridge, Config};

type Started = OnceLock<(ZooKeeper, Vec<String>)>;

/// An ensemble for all cases of a module; it ends with the program's last reference, the process.
fn ensemble(started: &'static Started, size: usize) -> &'static [String] {
    let start = move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let server = runtime.block_on(ZooKeeper::start(size)).unwrap();
        let addresses = server.addresses();
        (server, addresses)
    };
    &started
        .get_or_init(|| std::thread::spawn(start).join().unwrap())
        .1
}

struct Ensemble {
    hosts: &'static [String],
    /// With an account, nodes that only it may touch, and a chroot.
    account: bool,
    bridge: Bridge,
}

#[async_trait::async_trait]
impl Deployment for Ensemble {
    async fn client(&self) -> Connected {
        let mut config = Config::new(self.hosts);
        config.session_timeout = self.ttl();
        config.bridge = self.bridge;
        if self.account {
            config.auth = Some(Secret::new("app:secret"));
            config.acl = Acl::Creator;
            config.chroot = "/apps/shop".into();
        }
        Client::start(async |engine| Ok(distlock_zookeeper::open(engine, config).await?)).await
    }

    fn ttl(&self) -> Duration {
        Duration::from_secs(4)
    }

    fn slack(&self) -> Duration {
        Duration::from_secs(8)
    }

    fn patience(&self) -> Duration {
        Duration::from_secs(30)
    }
}

mod one_server_with_an_account {
    static SERVER: super::Started = super::Started::new();
    distlock_testkit::conformance!(super::Ensemble {
        hosts: super::ensemble(&SERVER, 1),
        account: true,
        bridge: super::Bridge::None,
    });
}

mod three_servers {
    static SERVERS: super::Started = super::Started::new();
    distlock_testkit::conformance!(super::Ensemble {
        hosts: super::ensemble(&SERVERS, 3),
        account: false,
        bridge: super::Bridge::None,
    });
}

mod a_bridge_to_kazoo {
    static SERVER: super::Started = super::Started::new();
    distlock_testkit::conformance!(super::Ensemble {
        hosts: super::ensemble(&SERVER, 1),
        account: false,
        bridge: super::Bridge::Kazoo,
    });
}
