//! The conformance suite on a standalone server, both layouts.
#![allow(clippy::unwrap_used, missing_docs)]

mod common;

use std::sync::OnceLock;
use std::time::Duration;

use distlock_redis::{Config, Layout, Redlock, UrlParts, ValueFormat};
use distlock_testkit::conformance::{Client, Connected, Deployment};
use distlock_testkit::servers::Redis;

/// Starts servers on a thread of their own: the cases have runtimes already.
fn started<T: Send + 'static>(start: impl FnOnce(tokio::runtime::Runtime) -> T + Send + 'static) -> T {
    let runtime = || {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap()
    };
    std::thread::spawn(move || start(runtime())).join().unwrap()
}

/// One server for all cases of this program; it ends with the program's last reference, the process.
fn server() -> &'static str {
    static SERVER: OnceLock<(Redis, String)> = OnceLock::new();
    &SERVER
        .get_or_init(|| {
            started(|runtime| {
                let redis = runtime.block_on(Redis::start()).unwrap();
                let address = redis.address();
                (redis, address)
            })
        })
        .1
}

/// Five servers that know nothing of each other, in the same way.
fn nodes() -> &'static [String] {
    static NODES: OnceLock<(Vec<Redis>, Vec<String>)> = OnceLock::new();
    &NODES
        .get_or_init(|| {
            started(|runtime| {
                let nodes = runtime.block_on(Redis::several(5, &Redis::options())).unwrap();
                let addresses = nodes.iter().map(Redis::address).collect();
                (nodes, addresses)
            })
        })
        .1
}

struct OnFive;

#[async_trait::async_trait]
impl Deployment for OnFive {
    async fn client(&self) -> Connected {
        let hosts: Vec<(&str, Option<u16>)> = nodes()
            .iter()
            .map(|node| node.rsplit_once(':').unwrap())
            .map(|(host, port)| (host, port.parse().ok()))
            .collect();
        let mut redlock = Redlock::from_url(&UrlParts {
            scheme: "redlock",
            hosts: &hosts,
            ..UrlParts::default()
        })?;
        // Many cases at once on a busy machine.
        redlock.set("node_timeout", "1s")?;
        Client::start(async |engine| Ok(distlock_redis::open_redlock(engine, redlock).await?)).await
    }

    fn ttl(&self) -> Duration {
        Duration::from_millis(600)
    }

    fn slack(&self) -> Duration {
        Duration::from_secs(2)
    }
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

mod redlock {
    distlock_testkit::conformance!(super::OnFive);
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
