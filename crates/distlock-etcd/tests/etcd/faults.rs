//! Lost replies, dead leases, compaction, leaders that go.

use std::sync::Arc;
use std::time::Instant;

use distlock_core::clock::Clock;
use distlock_core::driver::{Life, Line, Mode, Order, Released, Standing, Want};
use distlock_core::engine::Engine;
use distlock_core::{ErrorKind, Key, Namespace, Wait};
use distlock_etcd::Config;
use distlock_testkit::proxy::{Fault, Proxy};

use crate::cluster::{MS, SECS, client, config, ctl, etcd, keys, until};

/// The only lease of a server with one client.
async fn lease_of(at: &str, prefix: &str) -> String {
    let key = keys(at, prefix).await.into_iter().next().unwrap();
    let place = key.rsplit_once('/').unwrap().1.to_owned();
    place.split_once('.').unwrap().0.to_owned()
}

#[tokio::test]
async fn a_lease_revoked_by_an_admin_is_told_within_a_second() {
    let etcd = etcd!(1);
    let at = &etcd.addresses()[0];
    let locks = client(config(&etcd), "ns").await;
    let held = locks.mutex("k").ttl(SECS(60)).acquire().await.unwrap();
    let other = locks.mutex("other").ttl(SECS(60)).acquire().await.unwrap();
    until("both are watched", async || held.valid_for() < SECS(59)).await;
    ctl(at, &["lease", "revoke", &lease_of(at, "ns:k/").await]).await;
    let start = Instant::now();
    tokio::time::timeout(SECS(1), held.lost())
        .await
        .expect("told within a second");
    tokio::time::timeout(SECS(1), other.lost())
        .await
        .expect("all claims of the lease are told");
    assert!(start.elapsed() < SECS(1));
    // The next one has a lease that lives.
    let next = locks.mutex("k").ttl(SECS(60)).acquire().await.unwrap();
    next.verify().await.unwrap();
}

#[tokio::test]
async fn a_key_deleted_by_an_admin_is_told_within_a_second() {
    let etcd = etcd!(1);
    let at = &etcd.addresses()[0];
    let locks = client(config(&etcd), "ns").await;
    let held = locks.mutex("k").ttl(SECS(60)).acquire().await.unwrap();
    let other = locks.mutex("other").ttl(SECS(60)).acquire().await.unwrap();
    until("it is watched", async || held.valid_for() < SECS(59)).await;
    ctl(at, &["del", "--prefix", "ns:k/"]).await;
    tokio::time::timeout(SECS(1), held.lost())
        .await
        .expect("told within a second");
    other.verify().await.unwrap();
}

#[tokio::test]
async fn f07_a_waiter_is_not_granted_on_a_dead_lease() {
    let etcd = etcd!(1);
    let at = &etcd.addresses()[0];
    let (a, b, c) = (
        client(config(&etcd), "ns").await,
        client(config(&etcd), "ns").await,
        client(config(&etcd), "ns").await,
    );
    let held = a.mutex("k").acquire().await.unwrap();
    let waiting = tokio::spawn(b.mutex("k").ttl(SECS(60)).acquire());
    until("it waits", async || keys(at, "ns:k/").await.len() == 2).await;
    let old: Vec<String> = keys(at, "ns:k/").await;
    let info = c.inspect("k").await.unwrap();
    assert_eq!(info.waiters.len(), 1);
    for key in &old {
        if ctl(at, &["get", key, "--print-value-only"])
            .await
            .contains(&info.waiters[0].owner)
        {
            let lease = key.rsplit_once('/').unwrap().1.split_once('.').unwrap().0;
            ctl(at, &["lease", "revoke", lease]).await;
        }
    }
    until("it waits again, on another lease", async || {
        let now = keys(at, "ns:k/").await;
        now.len() == 2 && now.iter().any(|k| !old.contains(k))
    })
    .await;
    assert!(held.is_held());
    held.release().await.unwrap();
    let granted = tokio::time::timeout(SECS(10), waiting)
        .await
        .expect("granted")
        .unwrap()
        .unwrap();
    granted.verify().await.unwrap();
    assert!(c.mutex("k").try_acquire().await.unwrap().is_none());
}

#[tokio::test]
async fn f03_a_wait_outlives_compaction_and_broken_watches() {
    let etcd = etcd!(1);
    let at = etcd.addresses()[0].clone();
    let proxy = Proxy::start(&at).await.unwrap();
    let (a, b) = (
        client(config(&etcd), "ns").await,
        client(Config::new([proxy.address()]), "ns").await,
    );
    let held = a.mutex("k").acquire().await.unwrap();
    let theirs = b.mutex("held through it").acquire().await.unwrap();
    // A TTL so long that looking again without being told would be late.
    let waiting = tokio::spawn(b.mutex("k").ttl(SECS(60)).acquire());
    until("it waits", async || keys(&at, "ns:k/").await.len() == 2).await;
    for round in 0..3 {
        ctl(&at, &["put", "noise", &round.to_string()]).await;
        let status = ctl(&at, &["get", "noise", "-w", "json"]).await;
        let revision: String = status
            .split("\"revision\":")
            .nth(1)
            .unwrap()
            .chars()
            .take_while(char::is_ascii_digit)
            .collect();
        ctl(&at, &["compact", &revision]).await;
        // The stream of watches has to start again, before what was compacted away.
        proxy.cut();
        assert!(!waiting.is_finished());
    }
    held.release().await.unwrap();
    let start = Instant::now();
    let granted = tokio::time::timeout(SECS(20), waiting)
        .await
        .expect("granted")
        .unwrap()
        .unwrap();
    assert!(start.elapsed() < SECS(3), "granted after {:?}", start.elapsed());
    assert!(theirs.is_held());
    theirs.verify().await.unwrap();
    granted.release().await.unwrap();
    theirs.release().await.unwrap();
    until("nothing is left", async || keys(&at, "ns:").await.is_empty()).await;
}

/// A join that waits in the network while its claim is given up and released over another way does nothing when it
/// arrives at last.
#[tokio::test]
async fn a_join_that_arrives_after_its_release_does_nothing() {
    let etcd = etcd!(1);
    let at = etcd.addresses()[0].clone();
    let proxy = Proxy::start(&at).await.unwrap();
    let config = Config::new([proxy.address(), at.clone()]).timeout(MS(300));
    let (engine, _thread) = Engine::start(Clock::boot(), Namespace::default(), None).unwrap();
    let driver = distlock_etcd::open(engine.clone(), config).await.unwrap();
    let want = |name: &str| {
        Arc::new(Want {
            key: Key::new(name).unwrap(),
            owner: engine.owners().next(),
            mode: Mode::Mutex,
            order: Order::Any,
            line: Line::Join,
            life: Life::Process,
            ttl: SECS(30),
            label: None,
            reason: None,
            bell: Default::default(),
        })
    };
    // The lease, and the connection, are there.
    let mut first = driver.claim(want("first")).unwrap();
    assert!(matches!(first.try_acquire().await.unwrap(), Standing::Held(_)));
    // Later than the claim is given up; the word that it was given up comes later still.
    proxy.requests(Fault::Delay {
        by: SECS(1),
        jitter: Default::default(),
    });
    let mut late = driver.claim(want("k")).unwrap();
    let e = late.try_acquire().await.unwrap_err();
    assert!(e.retry, "{e}");
    // Over the other endpoint.
    assert_eq!(late.release(None).await.unwrap(), Released::NotHeld);
    // Longer than the delay.
    let start = Instant::now();
    until("the join has arrived", async || {
        assert!(keys(&at, "distlock:k/").await.is_empty(), "a ghost");
        start.elapsed() > SECS(2)
    })
    .await;
    proxy.heal();
    // The session lives, and other claims join with its new version.
    let mut next = driver.claim(want("k")).unwrap();
    assert!(matches!(next.try_acquire().await.unwrap(), Standing::Held(_)));
    next.release(None).await.unwrap();
    first.release(None).await.unwrap();
}

#[tokio::test]
async fn f02_a_lost_reply_leaves_nothing_and_blocks_nobody() {
    let etcd = etcd!(1);
    let at = etcd.addresses()[0].clone();
    let proxy = Proxy::start(&at).await.unwrap();
    let (a, b) = (
        client(Config::new([proxy.address()]).timeout(MS(500)), "ns").await,
        client(config(&etcd), "ns").await,
    );
    a.mutex("warm").acquire().await.unwrap().release().await.unwrap();
    for _ in 0..3 {
        proxy.replies(Fault::Hold);
        let e = a.mutex("k").wait(Wait::Try).acquire().await.unwrap_err();
        assert_eq!(e.kind(), ErrorKind::OutcomeUnknown, "{e}");
        proxy.heal();
        let guard = b.mutex("k").wait(SECS(10)).acquire().await.unwrap();
        guard.release().await.unwrap();
        until("nothing is left", async || keys(&at, "ns:").await.is_empty()).await;
    }
}

#[tokio::test]
async fn f01_a_cut_anywhere_leaves_no_lock_without_an_end() {
    let etcd = etcd!(1);
    let at = etcd.addresses()[0].clone();
    let proxy = Proxy::start(&at).await.unwrap();
    let (a, b) = (
        client(Config::new([proxy.address()]).timeout(MS(500)), "ns").await,
        client(config(&etcd), "ns").await,
    );
    a.mutex("k")
        .ttl(SECS(2))
        .acquire()
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    let before = proxy.passed();
    let whole = a.mutex("k").ttl(SECS(2)).acquire().await.unwrap();
    let after = proxy.passed();
    whole.release().await.unwrap();
    let mut cuts = Vec::new();
    for part in 1..10 {
        cuts.push((true, (after.0 - before.0) * part / 10));
        cuts.push((false, (after.1 - before.1) * part / 10));
    }
    for (request, bytes) in cuts {
        match request {
            true => proxy.requests(Fault::CutAfter(bytes)),
            false => proxy.replies(Fault::CutAfter(bytes)),
        }
        drop(a.mutex("k").ttl(SECS(2)).wait(Wait::Try).acquire().await);
        let stored = ctl(&at, &["get", "--prefix", "ns", "-w", "json"]).await;
        assert_eq!(
            stored.matches("\"create_revision\"").count(),
            stored.matches("\"lease\"").count(),
            "a key without a lease: {stored}"
        );
        proxy.heal();
        let next = b.mutex("k").ttl(SECS(2)).wait(SECS(20)).acquire().await;
        next.unwrap().release().await.unwrap();
    }
}

#[tokio::test]
async fn f60_a_holder_that_is_cut_off_is_told_before_the_next_one_is_granted() {
    let etcd = etcd!(1);
    let at = etcd.addresses()[0].clone();
    let proxy = Proxy::start(&at).await.unwrap();
    let (a, b) = (
        client(Config::new([proxy.address()]), "ns").await,
        client(config(&etcd), "ns").await,
    );
    let held = a.mutex("k").ttl(SECS(2)).acquire().await.unwrap();
    let start = Instant::now();
    until("it was renewed", async || start.elapsed() > MS(1500)).await;
    proxy.both(Fault::Hold);
    let told = tokio::spawn({
        let lost = held.lost();
        async move {
            lost.await;
            Instant::now()
        }
    });
    let next = b.mutex("k").wait(SECS(20)).acquire().await.unwrap();
    let granted = Instant::now();
    let told = told.await.unwrap();
    assert!(told < granted, "told {:?} after the next grant", told - granted);
    assert!(!held.is_held());
    assert!(next.token() > held.token());
    proxy.heal();
    next.verify().await.unwrap();
}

#[tokio::test]
async fn a_leader_that_dies_costs_neither_hold_nor_place() {
    let mut etcd = etcd!(3);
    let (a, b) = (
        client(config(&etcd), "ns").await,
        client(config(&etcd), "ns").await,
    );
    let held = a.mutex("k").ttl(SECS(10)).acquire().await.unwrap();
    let waiting = tokio::spawn(b.mutex("k").ttl(SECS(10)).acquire());
    until("it waits", async || {
        a.inspect("k").await.is_ok_and(|i| i.waiters.len() == 1)
    })
    .await;
    let leader = etcd.leader().await.unwrap();
    etcd.member(leader).kill9().unwrap();
    until("there is another leader", async || held.verify().await.is_ok()).await;
    assert!(held.is_held() && !waiting.is_finished());
    held.release().await.unwrap();
    let granted = tokio::time::timeout(SECS(20), waiting)
        .await
        .expect("granted")
        .unwrap()
        .unwrap();
    granted.release().await.unwrap();
}

#[tokio::test]
async fn f34_without_servers_calls_end_in_time_and_say_so() {
    let mut etcd = etcd!(1);
    let locks = client(config(&etcd).timeout(MS(400)), "ns").await;
    locks
        .mutex("warm")
        .acquire()
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    etcd.member(0).pause().unwrap();
    let start = Instant::now();
    let e = locks.mutex("k").wait(SECS(2)).acquire().await.unwrap_err();
    assert!(
        matches!(e.kind(), ErrorKind::OutcomeUnknown | ErrorKind::Unavailable),
        "{e}"
    );
    let e = locks.mutex("k").try_acquire().await.unwrap_err();
    assert!(
        matches!(e.kind(), ErrorKind::OutcomeUnknown | ErrorKind::Unavailable),
        "{e}"
    );
    assert!(start.elapsed() < SECS(8), "after {:?}", start.elapsed());
    etcd.member(0).resume().unwrap();
    let guard = locks.mutex("k").wait(SECS(20)).acquire().await.unwrap();
    guard.release().await.unwrap();
    etcd.member(0).kill9().unwrap();
    let e = locks.mutex("k").wait(SECS(1)).acquire().await.unwrap_err();
    assert!(
        matches!(e.kind(), ErrorKind::OutcomeUnknown | ErrorKind::Unavailable),
        "{e}"
    );
}
