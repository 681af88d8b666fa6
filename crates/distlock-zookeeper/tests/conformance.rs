//! The conformance suite on one server.
#![allow(clippy::unwrap_used, missing_docs)]

use std::sync::OnceLock;
use std::time::Duration;

use distlock_testkit::conformance::{Client, Connected, Deployment};
use distlock_testkit::servers::ZooKeeper;
use distlock_zookeeper::Config;

/// One server for all cases of this program; it ends with the program's last reference, the process.
fn server() -> &'static str {
    static SERVER: OnceLock<(ZooKeeper, String)> = OnceLock::new();
    let start = || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let server = runtime.block_on(ZooKeeper::start(1)).unwrap();
        let address = server.addresses().remove(0);
        (server, address)
    };
    &SERVER.get_or_init(|| std::thread::spawn(start).join().unwrap()).1
}

struct OneServer;

#[async_trait::async_trait]
impl Deployment for OneServer {
    async fn client(&self) -> Connected {
        let mut config = Config::new([server()]);
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

distlock_testkit::conformance!(OneServer);
