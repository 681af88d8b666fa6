//! Networks and servers that fail, seen through the core: nobody is told a wrong thing, nothing is left behind.
#![allow(clippy::unwrap_used, missing_docs)]

mod common;

use std::time::Duration;

use common::{MS, client, config, keys, until};
use distlock_core::ErrorKind;
use distlock_core::driver::{LostReason, Order};
use distlock_testkit::proxy::{Fault, Proxy};
use distlock_testkit::servers::{Data, Redis, or_skip};

macro_rules! redis {
    ($start:expr) => {
        match or_skip($start.await) {
            Some(redis) => redis,
            None => return,
        }
    };
}

const TTL: Duration = Duration::from_secs(3);

async fn locks_are_gone(redis: &Redis) {
    until("no lock to be left", async || {
        keys(redis, "*")
            .await
            .iter()
            .all(|key| key.ends_with("}:distlock"))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_held_reply_of_an_acquisition_is_unknown_and_cleaned_up() {
    let redis = redis!(Redis::start());
    let proxy = Proxy::start(redis.address()).await.unwrap();
    for order in [Order::Any, Order::Fifo] {
        let locks = client(config(&proxy.address())).await;
        // The server must know the scripts, or it is their text that is waited for.
        let warm = locks.mutex("warm").order(order).acquire().await.unwrap();
        warm.release().await.unwrap();
        proxy.replies(Fault::Hold);
        let asked = locks.mutex("held").ttl(10 * TTL).order(order).wait(300 * MS);
        let asked = tokio::spawn(asked.acquire());
        until("the request to arrive", async || {
            keys(&redis, "distlock:held").await.len() == 1
        })
        .await;
        let e = asked.await.unwrap().unwrap_err();
        assert_eq!(e.kind(), ErrorKind::OutcomeUnknown, "{e}");
        proxy.heal();
        // Long before its TTL of 30 s.
        locks_are_gone(&redis).await;
        locks
            .mutex("held")
            .wait(TTL)
            .acquire()
            .await
            .unwrap()
            .release()
            .await
            .unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_arrives_late_is_chased() {
    let redis = redis!(Redis::start());
    let proxy = Proxy::start(redis.address()).await.unwrap();
    let locks = client(config(&proxy.address())).await;
    locks
        .mutex("warm")
        .acquire()
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    proxy.requests(Fault::Hold);
    let e = locks
        .mutex("late")
        .ttl(10 * TTL)
        .wait(300 * MS)
        .acquire()
        .await
        .unwrap_err();
    assert_eq!(e.kind(), ErrorKind::OutcomeUnknown, "{e}");
    assert!(keys(&redis, "distlock:late").await.is_empty());
    proxy.heal();
    locks_are_gone(&redis).await;
    let direct = client(config(&redis.address())).await;
    let _again = direct.mutex("late").wait(TTL).acquire().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_held_reply_of_a_release_never_strands_the_lock() {
    let redis = redis!(Redis::start());
    let proxy = Proxy::start(redis.address()).await.unwrap();
    let locks = client(config(&proxy.address())).await;
    locks
        .mutex("warm")
        .acquire()
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    let guard = locks.mutex("r").ttl(10 * TTL).acquire().await.unwrap();
    proxy.replies(Fault::Hold);
    let released = tokio::spawn(guard.release());
    until("the release to arrive", async || {
        keys(&redis, "distlock:r").await.is_empty()
    })
    .await;
    proxy.heal();
    // Answered, or honestly unsure; never "you did not hold it".
    let said = released.await.unwrap();
    assert!(!matches!(said, Ok(distlock_core::Release::Lost(_))), "{said:?}");
    let _again = locks.mutex("r").wait(TTL).acquire().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn held_replies_of_renewals_do_not_lose_the_lock() {
    let redis = redis!(Redis::start());
    let proxy = Proxy::start(redis.address()).await.unwrap();
    let locks = client(config(&proxy.address())).await;
    let guard = locks.mutex("n").ttl(TTL).acquire().await.unwrap();
    proxy.replies(Fault::Hold);
    tokio::time::sleep(TTL / 2).await;
    proxy.heal();
    let before = guard.valid_for();
    until("a renewal", async || guard.valid_for() > before + TTL / 4).await;
    assert!(guard.is_held());
    guard.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f60_a_black_hole_ends_the_hold_before_anybody_else_can_have_it() {
    let redis = redis!(Redis::start());
    let proxy = Proxy::start(redis.address()).await.unwrap();
    let (near, far) = (
        client(config(&redis.address())).await,
        client(config(&proxy.address())).await,
    );
    let guard = far.mutex("b").ttl(TTL).acquire().await.unwrap();
    let first = guard.token();
    proxy.both(Fault::Blackhole);
    let next = tokio::spawn(async move { near.mutex("b").wait(10 * TTL).acquire().await.unwrap() });
    assert_eq!(guard.lost().await, LostReason::Expired);
    assert!(!next.is_finished(), "granted before the loss was told");
    let next = next.await.unwrap();
    assert!(next.token() > first);
    proxy.heal();
    assert!(guard.ensure().is_err());
    next.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_are_cut_cost_nothing_but_time() {
    let redis = redis!(Redis::start());
    let proxy = Proxy::start(redis.address()).await.unwrap();
    let locks = client(config(&proxy.address())).await;
    let guard = locks.mutex("c").ttl(TTL).acquire().await.unwrap();
    for n in 0..20 {
        proxy.cut();
        assert!(guard.is_held());
        // A connection that died while idle does not fail a single try.
        let tried = locks.mutex(format!("c{n}")).try_acquire().await;
        tried.unwrap().unwrap().release().await.unwrap();
    }
    guard.verify().await.unwrap();
    guard.release().await.unwrap();
    locks_are_gone(&redis).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f30_a_waiter_hears_of_a_release_although_its_subscription_was_cut() {
    let redis = redis!(Redis::start());
    let (a, b) = (
        client(config(&redis.address())).await,
        client(config(&redis.address())).await,
    );
    for order in [Order::Any, Order::Fifo] {
        let guard = a.mutex("s").ttl(60 * TTL).acquire().await.unwrap();
        let waiter = b.clone();
        let waits = tokio::spawn(async move { waiter.mutex("s").order(order).acquire().await.unwrap() });
        until("a subscriber", async || {
            let found = redis
                .command(&["PUBSUB", "CHANNELS", "redisson_lock__channel*"])
                .await
                .unwrap();
            !found.items().is_empty()
        })
        .await;
        redis
            .command(&["CLIENT", "KILL", "TYPE", "pubsub"])
            .await
            .unwrap();
        guard.release().await.unwrap();
        // Without resubscription it would sleep for the 5 s recheck.
        let got = tokio::time::timeout(Duration::from_secs(3), waits).await;
        got.expect("the release was not noticed")
            .unwrap()
            .release()
            .await
            .unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopped_server_is_reported_in_time_and_used_again_when_it_goes_on() {
    let redis = redis!(Redis::start());
    let locks = client(config(&redis.address())).await;
    let guard = locks.mutex("p").ttl(2 * TTL).acquire().await.unwrap();
    redis.pause().unwrap();
    let start = tokio::time::Instant::now();
    let e = locks.mutex("q").wait(TTL / 2).acquire().await.unwrap_err();
    assert!(
        matches!(e.kind(), ErrorKind::OutcomeUnknown | ErrorKind::Unavailable),
        "{e}"
    );
    assert!(start.elapsed() < 2 * TTL, "{:?}", start.elapsed());
    assert!(guard.is_held());
    redis.resume().unwrap();
    until("the hold to be verified", async || guard.verify().await.is_ok()).await;
    locks
        .mutex("q")
        .wait(TTL)
        .acquire()
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    guard.release().await.unwrap();
    locks_are_gone(&redis).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_forgot_everything_tells_the_holder_at_once() {
    let mut redis = redis!(Redis::start());
    let locks = client(config(&redis.address())).await;
    let guard = locks.mutex("k").ttl(20 * TTL).acquire().await.unwrap();
    let first = guard.token();
    redis.kill9().unwrap();
    assert!(guard.is_held());
    redis.restart(Data::Empty).await.unwrap();
    // Verified after the reconnect, not at the next renewal 20 s later.
    let reason = tokio::time::timeout(Duration::from_secs(5), guard.lost())
        .await
        .expect("not told");
    assert_eq!(reason, LostReason::Taken);
    let next = locks.mutex("k").wait(TTL).acquire().await.unwrap();
    assert!(next.token() > first, "the token stepped back");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_kept_its_data_keeps_the_hold() {
    let mut redis = redis!(Redis::options().durable().start());
    let locks = client(config(&redis.address())).await;
    let guard = locks.mutex("k").ttl(2 * TTL).acquire().await.unwrap();
    redis.kill9().unwrap();
    redis.restart(Data::Keep).await.unwrap();
    until("the hold to be verified", async || guard.verify().await.is_ok()).await;
    assert!(guard.is_held());
    guard.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f51_out_of_memory_refuses_new_locks_and_keeps_the_old() {
    let redis = redis!(Redis::start());
    let locks = client(config(&redis.address())).await;
    let guard = locks.mutex("old").ttl(TTL).acquire().await.unwrap();
    redis.command(&["CONFIG", "SET", "maxmemory", "1"]).await.unwrap();
    let e = locks.mutex("new").wait(200 * MS).acquire().await.unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Unavailable, "{e}");
    assert!(e.to_string().contains("out of memory"), "{e}");
    assert!(keys(&redis, "distlock:new").await.is_empty());
    guard.verify().await.unwrap();
    guard.release().await.unwrap();
    redis.command(&["CONFIG", "SET", "maxmemory", "0"]).await.unwrap();
    let _new = locks.mutex("new").wait(TTL).acquire().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f47_a_server_that_became_a_replica_is_used_again_when_it_is_the_master() {
    let redis = redis!(Redis::start());
    let other = redis!(Redis::start());
    let locks = client(config(&redis.address())).await;
    locks.mutex("x").acquire().await.unwrap().release().await.unwrap();
    redis
        .command(&["REPLICAOF", "127.0.0.1", &other.port().to_string()])
        .await
        .unwrap();
    let e = locks.mutex("x").wait(200 * MS).acquire().await.unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Unavailable, "{e}");
    let waiter = locks.clone();
    let waits = tokio::spawn(async move { waiter.mutex("x").wait(5 * TTL).acquire().await });
    redis.command(&["REPLICAOF", "NO", "ONE"]).await.unwrap();
    drop(waits.await.unwrap().unwrap());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn misconf_is_unavailable_with_advice() {
    let mut redis = redis!(Redis::start());
    if redis
        .info("redis_version")
        .await
        .unwrap()
        .is_some_and(|v| !v.starts_with("6."))
    {
        redis = redis!(
            Redis::options()
                .args(["--enable-protected-configs", "yes"])
                .start()
        );
    }
    let locks = client(config(&redis.address())).await;
    let gone = redis.dir().join("gone");
    std::fs::create_dir(&gone).unwrap();
    redis
        .command(&["CONFIG", "SET", "dir", gone.to_str().unwrap()])
        .await
        .unwrap();
    std::fs::remove_dir(&gone).unwrap();
    redis.command(&["CONFIG", "SET", "save", "3600 1"]).await.unwrap();
    redis.command(&["SET", "x", "1"]).await.unwrap();
    redis.command(&["BGSAVE"]).await.unwrap();
    until("the save to fail", async || {
        redis.info("rdb_last_bgsave_status").await.unwrap().as_deref() == Some("err")
    })
    .await;
    let e = locks.mutex("m").wait(200 * MS).acquire().await.unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Unavailable, "{e}");
    assert!(e.to_string().contains("cannot save"), "{e}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f59_missing_rights_and_passwords_are_told_and_not_tried_for_ever() {
    let rules = ["~*", "&*", "+@all", "-publish"];
    let redis = redis!(Redis::options().user("app", "secret", rules).start());
    let mut wrong = config(&redis.address());
    wrong.user = Some("app".into());
    wrong.password = Some(distlock_redis::Secret::new("nope"));
    let e = common::Peer::open(wrong.clone()).await.err().unwrap();
    assert!(!e.retry && e.to_string().contains("password"), "{e}");
    assert!(!format!("{e:?}").contains("nope"));
    wrong.password = Some(distlock_redis::Secret::new("secret"));
    let e = common::Peer::open(wrong).await.err().unwrap();
    assert!(!e.retry && e.to_string().contains("PUBLISH"), "{e}");
    assert!(keys(&redis, "*").await.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f48_a_loading_server_is_unavailable_and_never_free() {
    let mut redis = redis!(Redis::options().durable().start());
    let locks = client(config(&redis.address())).await;
    let guard = locks.mutex("l").ttl(10 * TTL).acquire().await.unwrap();
    for n in 0..200 {
        redis
            .command(&["SET", &format!("fill:{n}"), &"x".repeat(2000)])
            .await
            .unwrap();
    }
    redis
        .command(&["CONFIG", "SET", "key-load-delay", "5000"])
        .await
        .unwrap();
    redis
        .command(&["CONFIG", "SET", "loading-process-events-interval-bytes", "1024"])
        .await
        .unwrap();
    redis.command(&["CONFIG", "REWRITE"]).await.unwrap();
    redis.kill9().unwrap();
    let other = locks.clone();
    let tries = async move {
        for _ in 0..20 {
            match other.mutex("l").try_acquire().await {
                Ok(Some(_)) => panic!("granted twice"),
                Ok(None) => {}
                Err(e) => assert!(
                    matches!(e.kind(), ErrorKind::Unavailable | ErrorKind::OutcomeUnknown),
                    "{e}"
                ),
            }
            tokio::time::sleep(50 * MS).await;
        }
    };
    let (restarted, ()) = tokio::join!(redis.restart(Data::Keep), tries);
    restarted.unwrap();
    until("the hold to be verified", async || guard.verify().await.is_ok()).await;
    guard.release().await.unwrap();
}
