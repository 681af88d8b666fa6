//! The conformance suite on a cluster of three masters and three replicas.

use std::sync::OnceLock;
use std::time::Duration;

use distlock_testkit::conformance::{Client, Connected, Deployment};
use distlock_testkit::servers::{Redis, RedisCluster};

use super::started::{cluster, started};

fn nodes() -> &'static [String] {
    static NODES: OnceLock<(RedisCluster, Vec<String>)> = OnceLock::new();
    &NODES
        .get_or_init(|| {
            started(|runtime| {
                let cluster = runtime.block_on(RedisCluster::start()).unwrap();
                let addresses = cluster.nodes().iter().map(Redis::address).collect();
                (cluster, addresses)
            })
        })
        .1
}

struct OnCluster;

#[async_trait::async_trait]
impl Deployment for OnCluster {
    async fn client(&self) -> Connected {
        let config = cluster(nodes(), &[]);
        Client::start(async |engine| Ok(distlock_redis::open(engine, config).await?)).await
    }

    fn ttl(&self) -> Duration {
        Duration::from_millis(600)
    }

    fn slack(&self) -> Duration {
        Duration::from_secs(2)
    }
}

distlock_testkit::conformance!(OnCluster);
