//! The conformance suite on a standalone server, both layouts.
#![allow(clippy::unwrap_used, missing_docs)]

mod common;

use std::sync::OnceLock;
use std::time::Duration;

use distlock_redis::{Config, Layout, ValueFormat};
use distlock_testkit::conformance::{Client, Connected, Deployment};
use distlock_testkit::servers::Redis;

/// One server for all cases of this program; it ends with the program's last reference, the process.
fn server() -> &'static str {
    static SERVER: OnceLock<(Redis, String)> = OnceLock::new();
    &SERVER
        .get_or_init(|| {
            std::thread::spawn(|| {
                let runtime = tokio::runtime::Builder::new_current_thread()
                    .enable_all()
                    .build()
                    .unwrap();
                let redis = runtime.block_on(Redis::start()).unwrap();
                let address = redis.address();
                (redis, address)
            })
            .join()
            .unwrap()
        })
        .1
}

struct Standalone(Layout);

#[async_trait::async_trait]
impl Deployment for Standalone {
    async fn client(&self) -> Connected {
        let config: Config = {
            let mut c = common::config(server());
            c.layout = self.0.clone();
            c
        };
        Client::start(async |engine| Ok(distlock_redis::open(engine, config).await?)).await
    }

    fn ttl(&self) -> Duration {
        Duration::from_millis(400)
    }

    fn slack(&self) -> Duration {
        Duration::from_secs(1)
    }
}

mod redisson {
    distlock_testkit::conformance!(super::Standalone(super::Layout::Redisson));
}

mod string {
    use super::{Layout, Standalone, ValueFormat};
    distlock_testkit::conformance!(Standalone(Layout::String {
        prefix: String::new(),
        value: ValueFormat::Owner
    }));
}
