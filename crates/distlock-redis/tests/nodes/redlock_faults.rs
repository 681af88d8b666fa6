//! Nodes that are dead, stopped, or come back empty.

use std::time::{Duration, Instant};

use distlock_core::{Client, ErrorKind, Guard, Release};
use distlock_testkit::servers::{Data, Redis, or_skip};
use futures_util::future::join_all;

use super::started::{MS, calls, client, redlock, until};

const KEY: &str = "order:42";

async fn five() -> Option<(Vec<Redis>, Vec<String>)> {
    let nodes = or_skip(Redis::several(5, &Redis::options()).await)?;
    let addresses = nodes.iter().map(Redis::address).collect();
    Some((nodes, addresses))
}

/// A client that is not troubled by a busy machine.
async fn patient(nodes: &[String]) -> Client {
    client(redlock(nodes, &[("node_timeout", "500ms"), ("max_ttl", "30s")])).await
}

async fn holds(node: &Redis) -> bool {
    let found = node.command(&["EXISTS", "distlock:order:42"]).await.unwrap();
    found.int() == Some(1)
}

/// Holds on every node: one that is slow at first (the machine is busy) is not in the grant, and may not be lost then.
async fn on_all(locks: &Client, nodes: &[Redis]) -> Guard {
    let end = Instant::now() + Duration::from_secs(20);
    loop {
        let guard = locks.mutex(KEY).wait(5000 * MS).acquire().await.unwrap();
        let held = join_all(nodes.iter().map(holds)).await;
        if held.iter().all(|held| *held) {
            return guard;
        }
        assert!(
            Instant::now() < end,
            "not within 20 s: a grant of all nodes ({held:?})"
        );
        guard.release().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f54_two_of_five_dead_or_stopped_slow_nobody() {
    let Some((mut nodes, addresses)) = five().await else {
        return;
    };
    let locks = client(redlock(&addresses, &[])).await;
    let mut last = on_all(&locks, &nodes).await;
    nodes[1].kill9().unwrap();
    nodes[3].pause().unwrap();
    locks_on(&locks, &mut last).await;
    nodes[3].resume().unwrap();
    assert_eq!(last.release().await.unwrap(), Release::Clean);
}

/// Holds on, renews, and takes the lock over and over with what is left.
async fn locks_on(locks: &Client, last: &mut Guard) {
    until("the hold to be renewed on the rest", async || {
        last.verify().await.is_ok()
    })
    .await;
    let mut took = Vec::new();
    for round in 0..100 {
        let start = Instant::now();
        let guard = locks
            .mutex(format!("k{}", round % 7))
            .wait(2000 * MS)
            .acquire()
            .await
            .unwrap();
        assert_eq!(guard.release().await.unwrap(), Release::Clean);
        took.push(start.elapsed());
    }
    took.sort_unstable();
    println!("two of five gone: p50 {:?}, p99 {:?}", took[50], took[98]);
    // The machine may be busy; a wait for a node that is gone would show in each of them.
    assert!(
        took[50] < 50 * MS,
        "every lock waits for a node that is gone: {:?}",
        took[50]
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f08_three_of_five_stopped_refuse_and_nothing_is_left_behind() {
    let Some((nodes, addresses)) = five().await else {
        return;
    };
    let locks = client(redlock(&addresses, &[])).await;
    locks
        .mutex("warm")
        .wait(5000 * MS)
        .acquire()
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    for node in &nodes[..3] {
        node.pause().unwrap();
    }
    let start = Instant::now();
    let e = locks.mutex(KEY).try_acquire().await.unwrap_err();
    assert_eq!(e.kind(), ErrorKind::NoQuorum, "{e}");
    for node in &addresses[..3] {
        let vote = [
            format!("{node}: no answer in time"),
            format!("{node}: has not answered"),
        ];
        assert!(vote.iter().any(|vote| e.to_string().contains(vote)), "{e}");
    }
    assert!(
        start.elapsed() < Duration::from_secs(2),
        "refused after {:?}",
        start.elapsed()
    );
    for node in &nodes[..3] {
        node.resume().unwrap();
    }
    // What was on its way to them is executed now, and the release behind it.
    until("all five are free", async || {
        for node in &nodes {
            if holds(node).await {
                return false;
            }
        }
        true
    })
    .await;
    let guard = locks.mutex(KEY).wait(2000 * MS).acquire().await.unwrap();
    assert_eq!(guard.release().await.unwrap(), Release::Clean);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f53_a_node_that_restarts_empty_gives_no_second_majority() {
    let Some((mut nodes, addresses)) = five().await else {
        return;
    };
    distlock_vouch(&addresses).await;
    let (a, b) = (patient(&addresses).await, patient(&addresses).await);
    // A holds on three of five.
    nodes[3].kill9().unwrap();
    nodes[4].kill9().unwrap();
    let guard = a
        .mutex(KEY)
        .ttl(Duration::from_secs(20))
        .wait(5000 * MS)
        .acquire()
        .await
        .unwrap();
    for node in [3, 4] {
        nodes[node].restart(Data::Keep).await.unwrap();
        nodes[node].command(&["SET", "distlock_born", "0"]).await.unwrap();
    }
    nodes[2].restart(Data::Empty).await.unwrap();
    // B could have 2, 3 and 4; node 2 has no vote.
    for _ in 0..5 {
        let got = b.mutex(KEY).try_acquire().await;
        assert!(!matches!(got, Ok(Some(_))), "two holders");
    }
    drop(guard);
    let next = b.mutex(KEY).wait(5000 * MS).acquire().await.unwrap();
    assert_eq!(next.release().await.unwrap(), Release::Clean);
}

pub(crate) async fn distlock_vouch(addresses: &[String]) {
    use distlock_core::Namespace;
    use distlock_core::clock::Clock;
    use distlock_core::engine::Engine;
    let (engine, thread) = Engine::start(Clock::boot(), Namespace::default(), None).unwrap();
    let vouched = distlock_redis::vouch(engine, &redlock(addresses, &[]))
        .await
        .unwrap();
    assert_eq!(vouched, addresses);
    drop(thread);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f66_a_node_that_forgets_early_as_by_a_clock_that_jumps_ends_no_hold() {
    let Some((nodes, addresses)) = five().await else {
        return;
    };
    let (a, b) = (patient(&addresses).await, patient(&addresses).await);
    let guard = a.mutex(KEY).wait(5000 * MS).acquire().await.unwrap();
    until("all five have it", async || {
        let mut have = 0;
        for node in &nodes {
            have += usize::from(holds(node).await);
        }
        have == 5
    })
    .await;
    for node in &nodes[..2] {
        node.command(&["PEXPIRE", "distlock:order:42", "1"])
            .await
            .unwrap();
    }
    assert!(b.mutex(KEY).try_acquire().await.unwrap().is_none(), "two holders");
    guard.verify().await.unwrap();
    assert_eq!(guard.release().await.unwrap(), Release::Clean);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_that_a_majority_lost_is_told_within_a_second() {
    let Some((nodes, addresses)) = five().await else {
        return;
    };
    let locks = patient(&addresses).await;
    let guard = locks.mutex(KEY).wait(5000 * MS).acquire().await.unwrap();
    guard.verify().await.unwrap();
    let start = Instant::now();
    for node in &nodes[..3] {
        node.command(&["DEL", "distlock:order:42"]).await.unwrap();
    }
    guard.lost().await;
    assert!(
        start.elapsed() < Duration::from_secs(2),
        "told after {:?}",
        start.elapsed()
    );
}

/// All nodes store the token that is proposed to them, so that none has to be raised; what one of them cannot give is
/// raised on the others as before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_that_all_nodes_can_give_needs_no_second_phase() {
    const ROUNDS: u64 = 50;
    let Some((nodes, addresses)) = five().await else {
        return;
    };
    let (a, b) = (patient(&addresses).await, patient(&addresses).await);
    let mut last = 0;
    let mut cycle = async |locks: &Client, key: &str| {
        let guard = locks.mutex(key).wait(5000 * MS).acquire().await.unwrap();
        let token = guard.token().unwrap().get();
        assert!(token > last, "{token} after {last}");
        last = token;
        guard.release().await.unwrap();
        token
    };
    for locks in [&a, &b] {
        cycle(locks, KEY).await;
    }
    let before = calls(&nodes, "evalsha").await;
    for _ in 0..ROUNDS {
        cycle(&a, KEY).await;
        cycle(&b, KEY).await;
    }
    // An acquisition and a release on each node; a third phase for each would be 15 of them.
    let scripts = calls(&nodes, "evalsha").await - before;
    assert!(
        scripts < 2 * ROUNDS * 12,
        "{scripts} scripts for {} grants",
        2 * ROUNDS
    );
    // A node whose last token is far ahead of all clocks decides.
    let far = cycle(&a, KEY).await + 3_600_000_000;
    let record = format!("{far} {{}}");
    nodes[2]
        .command(&["SET", "{distlock:order:42}:distlock", &record])
        .await
        .unwrap();
    let mut seen = Vec::new();
    for _ in 0..10 {
        seen.push(cycle(&a, KEY).await);
        seen.push(cycle(&b, KEY).await);
    }
    assert!(seen.last() > Some(&far), "{seen:?}");
}
