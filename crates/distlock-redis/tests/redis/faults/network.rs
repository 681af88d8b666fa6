//! The network between a client and the server.

use std::time::Duration;

use distlock_core::ErrorKind;
use distlock_core::driver::{LostReason, Order};
use distlock_testkit::proxy::{Fault, Proxy};
use distlock_testkit::servers::Redis;

use super::{TTL, locks_are_gone};
use crate::common::{MS, client, config, int, keys, until};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f02_a_held_reply_of_an_acquisition_is_unknown_and_cleaned_up() {
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

/// The network breaks after each piece of what is sent, and of what is answered.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f01_a_cut_anywhere_leaves_no_lock_without_an_end() {
    let redis = redis!(Redis::start());
    let proxy = Proxy::start(redis.address()).await.unwrap();
    let locks = client(config(&proxy.address())).await;
    for replies in [false, true] {
        for bytes in (0..600).step_by(43) {
            match replies {
                false => proxy.requests(Fault::CutAfter(bytes)),
                true => proxy.replies(Fault::CutAfter(bytes / 8)),
            }
            let guard = locks
                .mutex("cut")
                .ttl(10 * TTL)
                .wait(2 * TTL)
                .acquire()
                .await
                .unwrap();
            assert!(int(&redis, &["PTTL", "distlock:cut"]).await > 0, "no end");
            let said = guard.release().await;
            assert!(!matches!(said, Ok(distlock_core::Release::Lost(_))), "{said:?}");
            proxy.heal();
        }
    }
    locks_are_gone(&redis).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f34_black_holes_are_told_in_time_and_cleaned_up() {
    let redis = redis!(Redis::start());
    let proxy = Proxy::start(redis.address()).await.unwrap();
    let locks = client(config(&proxy.address())).await;
    let guard = locks.mutex("held").ttl(10 * TTL).acquire().await.unwrap();
    proxy.both(Fault::Blackhole);
    let start = tokio::time::Instant::now();
    let e = locks
        .mutex("hole")
        .ttl(10 * TTL)
        .wait(300 * MS)
        .acquire()
        .await
        .unwrap_err();
    assert!(
        matches!(e.kind(), ErrorKind::OutcomeUnknown | ErrorKind::Unavailable),
        "{e}"
    );
    assert!(start.elapsed() < TTL, "{:?}", start.elapsed());
    let said = guard.release().await;
    assert!(!matches!(said, Ok(distlock_core::Release::Lost(_))), "{said:?}");
    assert!(start.elapsed() < 3 * TTL, "{:?}", start.elapsed());
    proxy.heal();
    // Long before the leases of 30 s.
    locks_are_gone(&redis).await;
}
