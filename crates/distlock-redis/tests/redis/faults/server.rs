//! The server dies, forgets, stops, or loads its data.

use std::time::Duration;

use distlock_core::ErrorKind;
use distlock_core::driver::LostReason;
use distlock_testkit::servers::{Data, Redis};

use super::{TTL, locks_are_gone};
use crate::common::{MS, client, config, until};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f34_a_stopped_server_is_reported_in_time_and_used_again_when_it_goes_on() {
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
