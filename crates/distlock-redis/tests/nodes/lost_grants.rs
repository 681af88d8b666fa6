//! What a failover loses: grants are counted, with `min_replicas` and without.

use std::future::ready;
use std::time::Duration;

use distlock_core::{Client, Error, ErrorKind, Guard};
use distlock_redis::{Config, Endpoint};
use distlock_testkit::servers::{Redis, RedisCluster, RedisSentinel, or_skip};
use futures_util::StreamExt;
use futures_util::stream::iter;

use super::started::{MS, cluster, hosts, until};

const EACH: usize = 10;

/// Two clients of one deployment, and names whose locks are on the master that will fail.
struct Clients {
    plain: Client,
    careful: Client,
    names: Vec<String>,
}

impl Clients {
    async fn open(mut config: Config, names: Vec<String>) -> Self {
        let plain = open(config.clone()).await;
        config.set("min_replicas", "1").unwrap();
        let careful = open(config).await;
        Self {
            plain,
            careful,
            names,
        }
    }

    /// Grants of the names that begin at `from`, however long the machine takes.
    async fn grants(&self, client: &Client, from: usize) -> Vec<Guard> {
        let lock = |name: &String| {
            client
                .mutex(name)
                .ttl(Duration::from_secs(60))
                .wait(Duration::from_secs(20))
        };
        let asked = self.names[from..from + EACH]
            .iter()
            .map(|name| lock(name).acquire());
        iter(asked)
            .buffer_unordered(EACH)
            .map(Result::unwrap)
            .collect()
            .await
    }

    /// Those of the names that begin at `from` that were granted.
    async fn granted(&self, client: &Client, from: usize, count: usize) -> (Vec<Guard>, Vec<Error>) {
        let asked = self.names[from..from + count]
            .iter()
            .map(|name| client.mutex(name).ttl(Duration::from_secs(60)).try_acquire());
        let mut granted = (Vec::new(), Vec::new());
        iter(asked)
            .buffer_unordered(EACH)
            .for_each(|said| {
                match said {
                    Ok(guard) => granted.0.extend(guard),
                    Err(e) => granted.1.push(e),
                }
                ready(())
            })
            .await;
        granted
    }

    /// Grants before and after the replicas stop; then the master stops, and what the promoted one knows is counted.
    async fn count(&self, nodes: &[Redis], master: usize) {
        let mut plain = self.grants(&self.plain, 0).await;
        // What is confirmed of these came after the others, so those are at the replica as well.
        let careful = self.grants(&self.careful, EACH).await;
        let mut replicas = Vec::new();
        for node in nodes {
            if node.info("role").await.unwrap().as_deref() == Some("slave") {
                replicas.push(node);
            }
        }
        for replica in &replicas {
            replica.pause().unwrap();
        }
        // What is on its way to the stopped ones would be read when they go on.
        let cut = ["CLIENT", "KILL", "TYPE", "replica"];
        nodes[master].command(&cut).await.unwrap();
        let (unconfirmed, _) = self.granted(&self.plain, 2 * EACH, EACH).await;
        assert_eq!(unconfirmed.len(), EACH);
        plain.extend(unconfirmed);
        let (undone, refused) = self.granted(&self.careful, 3 * EACH, 2).await;
        assert_eq!(undone.len(), 0);
        let undone = |e: &Error| e.kind() == ErrorKind::Unavailable;
        assert!(refused.iter().all(undone), "{refused:?}");
        nodes[master].pause().unwrap();
        for replica in &replicas {
            replica.resume().unwrap();
        }
        until("a new master", async || {
            let first = self.plain.inspect(&self.names[0]).await;
            first.is_ok_and(|lock| lock.holders.len() == 1)
        })
        .await;
        let lost = [
            lost(&self.plain, &plain).await,
            lost(&self.careful, &careful).await,
        ];
        println!(
            "a failover lost {} of {} grants without min_replicas, {} of {} with it",
            lost[0],
            plain.len(),
            lost[1],
            careful.len()
        );
        assert_eq!(lost, [EACH, 0]);
        nodes[master].resume().unwrap();
    }
}

async fn open(config: Config) -> Client {
    let open = move |engine| async move { distlock_redis::open(engine, config).await };
    Client::builder().build(open).await.unwrap()
}

/// How many of the grants the new master does not know.
async fn lost(client: &Client, grants: &[Guard]) -> usize {
    let mut lost = 0;
    for guard in grants {
        // A client may still ask the one that stopped.
        until("the new master to answer", async || {
            match client.inspect(guard.key()).await {
                Ok(lock) => {
                    lost += usize::from(lock.holders.is_empty());
                    true
                }
                Err(_) => false,
            }
        })
        .await;
    }
    lost
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f53_a_failover_by_sentinels_loses_what_was_not_confirmed_and_nothing_else() {
    let Some(group) = or_skip(RedisSentinel::start().await) else {
        return;
    };
    let addresses = group.sentinel_addresses();
    let sentinels = hosts(&addresses).into_iter();
    let mut config = Config::new(Endpoint::Sentinel {
        sentinels: sentinels
            .map(|(host, port)| (host.to_owned(), port.unwrap()))
            .collect(),
        master: "mymaster".into(),
    });
    config.timeout = 500 * MS;
    let names = (0..4 * EACH).map(|n| format!("k{n}")).collect();
    let master = group.master().await.unwrap();
    Clients::open(config, names)
        .await
        .count(group.nodes(), master)
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f53_a_failover_of_a_cluster_loses_what_was_not_confirmed_and_nothing_else() {
    let Some(servers) = or_skip(RedisCluster::start().await) else {
        return;
    };
    let nodes: Vec<String> = servers.nodes().iter().map(Redis::address).collect();
    let config = cluster(&nodes, &[("timeout", "500ms")]);
    let master = servers.master_of("distlock:k0").await.unwrap();
    let mut names = Vec::new();
    for n in 0.. {
        let name = format!("k{n}");
        if servers.master_of(&format!("distlock:{name}")).await == Some(master) {
            names.push(name);
        }
        if names.len() == 4 * EACH {
            break;
        }
    }
    Clients::open(config, names)
        .await
        .count(servers.nodes(), master)
        .await;
}
