//! Slots that move, masters that die, and names of any shape.

use std::time::{Duration, Instant};

use distlock_core::driver::{Order, Severity};
use distlock_core::{Client, ErrorKind, Release};
use distlock_testkit::servers::{Redis, RedisCluster, Resp, or_skip};

use super::started::{MS, cluster, until};

const KEY: &str = "order:42";
const STORED: &str = "distlock:order:42";

pub(crate) async fn client(servers: &RedisCluster, parameters: &[(&str, &str)], namespace: &str) -> Client {
    let nodes: Vec<String> = servers.nodes().iter().map(Redis::address).collect();
    let config = cluster(&nodes, parameters);
    let open = move |engine| async move { distlock_redis::open(engine, config).await };
    let builder = Client::builder().label("tester").namespace(namespace);
    builder.build(open).await.unwrap()
}

pub(crate) async fn said(node: &Redis, words: &[&str]) -> Resp {
    let answer = node.command(words).await.unwrap();
    assert!(!matches!(answer, Resp::Error(_)), "{words:?} gave {answer:?}");
    answer
}

async fn id(node: &Redis) -> String {
    said(node, &["CLUSTER", "MYID"]).await.text().unwrap().to_owned()
}

/// A slot on its way to another master, as `redis-cli --cluster reshard` moves it.
struct Move<'a> {
    source: &'a Redis,
    target: &'a Redis,
    slot: String,
    /// The other masters.
    others: Vec<&'a Redis>,
    target_id: String,
}

impl<'a> Move<'a> {
    async fn begin(servers: &'a RedisCluster, stored: &str) -> Self {
        let mut masters = Vec::new();
        for node in servers.nodes() {
            if node.info("role").await.unwrap().as_deref() == Some("master") {
                masters.push(node);
            }
        }
        let from = &servers.nodes()[servers.master_of(stored).await.unwrap()];
        let at = masters.iter().position(|m| m.port() == from.port()).unwrap();
        masters.rotate_left(at);
        let (source, target) = (masters[0], masters[1]);
        let slot = said(source, &["CLUSTER", "KEYSLOT", stored]).await.int().unwrap();
        let (slot, target_id) = (slot.to_string(), id(target).await);
        said(
            target,
            &["CLUSTER", "SETSLOT", &slot, "IMPORTING", &id(source).await],
        )
        .await;
        said(source, &["CLUSTER", "SETSLOT", &slot, "MIGRATING", &target_id]).await;
        Self {
            source,
            target,
            slot,
            others: masters[2..].to_vec(),
            target_id,
        }
    }

    async fn keys(&self) {
        loop {
            let keys = said(self.source, &["CLUSTER", "GETKEYSINSLOT", &self.slot, "100"]).await;
            let keys: Vec<&str> = keys.items().iter().filter_map(Resp::text).collect();
            if keys.is_empty() {
                return;
            }
            let port = self.target.port().to_string();
            let mut words = vec!["MIGRATE", "127.0.0.1", &port, "", "0", "5000", "KEYS"];
            words.extend(keys);
            said(self.source, &words).await;
        }
    }

    async fn end(self, servers: &RedisCluster, stored: &str) {
        self.keys().await;
        for node in [self.target, self.source].into_iter().chain(self.others) {
            said(node, &["CLUSTER", "SETSLOT", &self.slot, "NODE", &self.target_id]).await;
        }
        until("all nodes to agree", async || {
            let master = servers.agreed_master_of(stored).await;
            master.is_some_and(|at| servers.nodes()[at].port() == self.target.port())
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f49_a_slot_that_moves_reaches_no_caller() {
    let Some(servers) = or_skip(RedisCluster::start().await) else {
        return;
    };
    let (a, b) = (
        client(&servers, &[], "distlock").await,
        client(&servers, &[], "distlock").await,
    );
    let ttl = Duration::from_secs(2);
    let guard = a.mutex(KEY).ttl(ttl).acquire().await.unwrap();
    let waiters: Vec<_> = [Order::Any, Order::Fifo, Order::Fifo]
        .into_iter()
        .map(|order| {
            let locks = b.clone();
            tokio::spawn(async move {
                let wait = Duration::from_secs(60);
                let got = locks.mutex(KEY).order(order).wait(wait).acquire().await?;
                got.release().await
            })
        })
        .collect();
    // Half way for longer than the lease: renewals follow the key.
    let half = Move::begin(&servers, STORED).await;
    half.keys().await;
    let since = Instant::now();
    until("the lease is long over but for renewals", async || {
        assert!(guard.is_held(), "lost while the slot was on its way");
        since.elapsed() > ttl.mul_f32(1.5)
    })
    .await;
    guard.verify().await.unwrap();
    half.end(&servers, STORED).await;
    for round in 0..5 {
        Move::begin(&servers, STORED).await.end(&servers, STORED).await;
        until("the hold to be renewed where it is now", async || {
            guard.verify().await.is_ok()
        })
        .await;
        assert!(guard.is_held(), "lost in move {round}");
        let other = b.mutex(KEY).try_acquire().await;
        assert!(other.as_ref().is_ok_and(Option::is_none), "{other:?}");
    }
    assert_eq!(guard.release().await.unwrap(), Release::Clean);
    for waiter in waiters {
        let released = waiter.await.unwrap();
        assert!(released.is_ok(), "{released:?}");
    }
    // The node to which a hold has gone tells when it is taken away.
    let guard = a.mutex(KEY).ttl(60 * ttl).acquire().await.unwrap();
    Move::begin(&servers, STORED).await.end(&servers, STORED).await;
    until("the hold to be renewed where it is now", async || {
        guard.verify().await.is_ok()
    })
    .await;
    let node = servers.master_of(STORED).await.unwrap();
    until("the node to track the key", async || {
        let info = servers.nodes()[node].info("tracking_total_keys").await.unwrap();
        info.is_some_and(|count| count != "0")
    })
    .await;
    let start = Instant::now();
    said(&servers.nodes()[node], &["DEL", STORED]).await;
    guard.lost().await;
    assert!(start.elapsed() < 2000 * MS, "told after {:?}", start.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f61_a_failover_of_a_cluster_leaves_nobody_stuck() {
    let Some(mut servers) = or_skip(RedisCluster::start().await) else {
        return;
    };
    // The replica has it: what is tested is who finds the new master, not what a failover loses.
    let a = client(&servers, &[("min_replicas", "1")], "distlock").await;
    let b = client(&servers, &[], "distlock").await;
    let guard = a.mutex(KEY).ttl(Duration::from_secs(20)).acquire().await.unwrap();
    let dead = servers.master_of(STORED).await.unwrap();
    let mut elsewhere = None;
    for n in 0..100 {
        let key = format!("elsewhere:{n}");
        if servers.master_of(&format!("distlock:{key}")).await != Some(dead) {
            elsewhere = Some(key);
            break;
        }
    }
    let elsewhere = a
        .mutex(elsewhere.unwrap())
        .ttl(Duration::from_secs(2))
        .acquire()
        .await
        .unwrap();
    let waiter = {
        let locks = b.clone();
        tokio::spawn(async move {
            let got = locks.mutex(KEY).wait(Duration::from_secs(60)).acquire().await?;
            got.release().await
        })
    };
    until("somebody waits", async || {
        let heard = said(&servers.nodes()[dead], &["PUBSUB", "SHARDCHANNELS"]).await;
        !heard.items().is_empty()
    })
    .await;
    servers.node(dead).kill9().unwrap();
    until("a new master to renew the hold", async || {
        assert!(elsewhere.is_held(), "a sick node delayed another's renewals");
        guard.verify().await.is_ok()
    })
    .await;
    assert!(guard.is_held());
    assert_eq!(guard.release().await.unwrap(), Release::Clean);
    assert_eq!(elsewhere.release().await.unwrap(), Release::Clean);
    let released = waiter.await.unwrap();
    assert!(released.is_ok(), "{released:?}");
    let findings = b.doctor().await.unwrap();
    assert!(
        findings.iter().any(|f| f.id == "redis-cluster-replicas"),
        "{findings:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f102_names_of_any_shape_stay_in_one_slot_or_are_refused() {
    let Some(servers) = or_skip(RedisCluster::start().await) else {
        return;
    };
    let named = client(&servers, &[], "distlock").await;
    for key in ["{}", "a{b", "a}b", "{a}", "100%", "a{b}c{d}"] {
        let lock = || named.mutex(key).order(Order::Fifo).wait(5000 * MS);
        let guard = lock().acquire().await.unwrap();
        let listed = named.list(key, None, 10).await.unwrap();
        assert!(
            listed.iter().any(|info| info.key.as_str() == key),
            "{key}: {listed:?}"
        );
        guard.release().await.unwrap();
    }
    let exact = client(&servers, &[], "").await;
    for key in ["{}", "a{b", "a}b"] {
        let e = exact.mutex(key).try_acquire().await.unwrap_err();
        assert_eq!(e.kind(), ErrorKind::InvalidKey, "{key}: {e}");
    }
    for key in ["user:{42}:lock", "plain"] {
        let guard = exact.mutex(key).wait(5000 * MS).acquire().await.unwrap();
        guard.release().await.unwrap();
    }
    told_in_both_ways(&servers).await;
    examined(&servers, &named).await;
}

/// Without being told, waiters look every 5 s.
async fn told_in_both_ways(servers: &RedisCluster) {
    for pubsub in ["classic", "sharded"] {
        let told = client(servers, &[("pubsub", pubsub)], "distlock").await;
        let lock = || {
            told.mutex(KEY)
                .ttl(Duration::from_secs(60))
                .wait(Duration::from_secs(60))
        };
        let guard = lock().acquire().await.unwrap();
        let other = client(servers, &[("pubsub", pubsub)], "distlock").await;
        let waiter = tokio::spawn(async move {
            let got = other.mutex(KEY).wait(Duration::from_secs(60)).acquire().await?;
            Ok::<_, distlock_core::Error>((Instant::now(), got.release().await?))
        });
        let node = &servers.nodes()[servers.master_of(STORED).await.unwrap()];
        let channels = if pubsub == "sharded" {
            "SHARDCHANNELS"
        } else {
            "CHANNELS"
        };
        let channel = format!("redisson_lock__channel:{{{STORED}}}");
        until("the waiter to listen", async || {
            let heard = said(node, &["PUBSUB", channels, &channel]).await;
            !heard.items().is_empty()
        })
        .await;
        let start = Instant::now();
        assert_eq!(guard.release().await.unwrap(), Release::Clean);
        let (granted, _) = waiter.await.unwrap().unwrap();
        let took = granted.duration_since(start);
        assert!(took < 1000 * MS, "{pubsub}: told after {took:?}");
    }
}

/// A cluster as it should be is not complained of; what is wrong is found.
async fn examined(servers: &RedisCluster, locks: &Client) {
    let found = async || {
        let findings = locks.doctor().await.unwrap();
        let serious = findings.into_iter().filter(|f| f.severity > Severity::Info);
        serious.map(|f| f.id.into_owned()).collect::<Vec<_>>()
    };
    for node in servers.nodes() {
        for (name, value) in [("appendonly", "yes"), ("min-replicas-to-write", "1")] {
            said(node, &["CONFIG", "SET", name, value]).await;
        }
    }
    assert_eq!(found().await, [""; 0]);
    let node = &servers.nodes()[servers.master_of(STORED).await.unwrap()];
    said(node, &["CONFIG", "SET", "cluster-node-timeout", "15000"]).await;
    assert_eq!(found().await[0], "redis-cluster-timing");
    said(node, &["CONFIG", "SET", "cluster-node-timeout", "1000"]).await;
    // A slot that nobody serves any more.
    let slot = said(node, &["CLUSTER", "KEYSLOT", STORED])
        .await
        .int()
        .unwrap()
        .to_string();
    for node in servers.nodes() {
        said(node, &["CLUSTER", "DELSLOTS", &slot]).await;
    }
    until("the slot to be missed", async || {
        let e = locks.mutex(KEY).try_acquire().await.unwrap_err();
        assert_eq!(e.kind(), ErrorKind::Unavailable, "{e}");
        let found = found().await;
        let has = |wanted: &str| found.iter().any(|id| id == wanted);
        has("redis-cluster-coverage") && has("redis-cluster-state")
    })
    .await;
}
