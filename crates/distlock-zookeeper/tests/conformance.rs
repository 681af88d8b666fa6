//! The conformance suite on one server and on three.
#![allow(clippy::unwrap_used, missing_docs)]

use std::sync::OnceLock;
use std::time::Duration;

use distlock_testkit::conformance::{Client, Connected, Deployment};
use distlock_testkit::servers::ZooKeeper;
use distlock_zookeeper::Config;

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

struct Ensemble(&'static [String]);

#[async_trait::async_trait]
impl Deployment for Ensemble {
    async fn client(&self) -> Connected {
        let mut config = Config::new(self.0);
        config.session_timeout = self.ttl();
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

mod one_server {
    static SERVER: super::Started = super::Started::new();
    distlock_testkit::conformance!(super::Ensemble(super::ensemble(&SERVER, 1)));
}

mod three_servers {
    static SERVERS: super::Started = super::Started::new();
    distlock_testkit::conformance!(super::Ensemble(super::ensemble(&SERVERS, 3)));
}
