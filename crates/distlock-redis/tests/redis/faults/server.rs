//! The server dies, forgets, stops, or loads its data.

use std::time::Duration;

use distlock_core::ErrorKind;
use distlock_core::driver::LostReason;
use distlock_testkit::servers::{Data, FakeClock, Redis, or_skip};

use super::{TTL, locks_are_gone};
use crate::common::{MS, client, config, int, until};

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

/// F66: the server's clock judges leases. When it jumps forward they end early, which holders are told and the tokens
/// show; when it jumps back they end later, by as much.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "libfaketime cannot be loaded beside jemalloc; scripts/versions redis-6.2 has a server without"]
async fn f66_a_jump_of_the_servers_clock_is_told_and_fenced() {
    let Some(clock) = or_skip(FakeClock::new()) else {
        return;
    };
    let options = clock
        .env()
        .into_iter()
        .fold(Redis::options(), |options, (name, value)| {
            options.env(name, value)
        });
    let redis = redis!(options.start());
    let (a, b) = (
        client(config(&redis.address())).await,
        client(config(&redis.address())).await,
    );
    let held = a.mutex("clock").ttl(20 * TTL).acquire().await.unwrap();
    let permit = a.semaphore("clocks", 1).ttl(TTL).acquire().await.unwrap();
    assert!(b.mutex("clock").try_acquire().await.unwrap().is_none());
    assert!(b.semaphore("clocks", 1).try_acquire().await.unwrap().is_none());

    clock.set(3600).unwrap();
    let next = b.mutex("clock").ttl(20 * TTL).wait(TTL).acquire().await.unwrap();
    assert!(next.token() > held.token(), "the store tells them apart");
    let others = b
        .semaphore("clocks", 1)
        .ttl(20 * TTL)
        .wait(TTL)
        .acquire()
        .await
        .unwrap();
    for lost in [held.lost(), permit.lost()] {
        let reason = tokio::time::timeout(2 * TTL, lost).await.expect("not told");
        assert_eq!(reason, LostReason::Taken);
    }

    clock.set(-3600).unwrap();
    for guard in [&next, &others] {
        guard.verify().await.unwrap();
    }
    assert!(a.mutex("clock").try_acquire().await.unwrap().is_none());
    // Those were renewals, which count from the clock as it is then.
    let left = int(&redis, &["PTTL", "distlock:clock"]).await;
    assert!((1..=60_000).contains(&left), "{left}");
    others.release().await.unwrap();
    let token = next.token();
    next.release().await.unwrap();
    let last = a.mutex("clock").wait(TTL).acquire().await.unwrap();
    assert!(last.token() > token, "the token stepped back with the clock");
    last.release().await.unwrap();
    locks_are_gone(&redis).await;
}
