//! The conformance suite on five independent servers.

use std::sync::OnceLock;
use std::time::Duration;

use distlock_testkit::conformance::{Client, Connected, Deployment};
use distlock_testkit::servers::Redis;

use super::started::{redlock, started};

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
        // Many cases at once on a busy machine.
        let redlock = redlock(nodes(), &[("node_timeout", "1s")]);
        Client::start(async |engine| Ok(distlock_redis::open_redlock(engine, redlock).await?)).await
    }

    fn ttl(&self) -> Duration {
        Duration::from_millis(600)
    }

    fn slack(&self) -> Duration {
        Duration::from_secs(2)
    }
}

distlock_testkit::conformance!(OnFive);
