//! Waiting, and leaving it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use distlock_core::driver::Order;
use distlock_core::memory::{Call, Fault, Rule};
use distlock_core::{ErrorKind, Wait};

use crate::{MS, SECS, Scene};

#[tokio::test]
async fn f33_a_cancelled_wait_is_never_a_grant() {
    let scene = Scene::new();
    let (a, b, c) = (scene.client(), scene.client(), scene.client());
    let clock = a.clock().clone();
    let (mut granted, mut cancelled) = (0, 0);
    for round in 0..2000u64 {
        let held = a.mutex("k").acquire().await.unwrap();
        if round % 3 == 0 {
            // The grant is on its way when B goes away.
            let slow = Rule::new(Call::Try, Fault::Slow(MS(1))).of(b.id()).skip(1);
            scene.memory.faults().add(slow);
        }
        let (lock, timer) = (b.mutex("k"), clock.clone());
        let waiter = tokio::spawn(async move {
            // In the same millisecond as the release, before and after it.
            tokio::select! {
                biased;
                () = timer.sleep(MS(1 + round % 4)) => None,
                guard = lock.acquire() => Some(guard.unwrap()),
            }
        });
        scene.time.advance(MS(round / 4 % 4)).await;
        held.release().await.unwrap();
        scene.time.advance(MS(10)).await;
        assert!(waiter.is_finished());
        let inside = c.mutex("k").try_acquire().await.unwrap();
        match waiter.await.unwrap() {
            Some(guard) => {
                granted += 1;
                assert!(guard.is_held() && inside.is_none(), "round {round}");
                guard.release().await.unwrap();
            }
            None => {
                cancelled += 1;
                assert!(inside.is_some(), "round {round}: left with B");
            }
        }
        scene.memory.faults().clear();
        drop(inside);
        scene.time.settle().await;
        assert!(a.inspect("k").await.unwrap().waiters.is_empty());
    }
    assert!(
        granted > 100 && cancelled > 100,
        "vacuous: {granted}, {cancelled}"
    );
}

#[tokio::test]
async fn f34_with_the_engine_down_every_call_keeps_its_limit() {
    for fault in [Fault::NotSent, Fault::Silent] {
        let scene = Scene::new();
        let (a, faults) = (scene.client(), scene.memory.faults());
        let held = a.mutex("held").ttl(SECS(30)).acquire().await.unwrap();
        for call in [Call::Try, Call::Renew, Call::Release] {
            faults.add(Rule::new(call, fault).always());
        }
        let waited = tokio::spawn(a.mutex("k").wait(SECS(3)).acquire());
        let tried = tokio::spawn(a.mutex("t").ttl(SECS(3)).wait(Wait::Try).acquire());
        let released = tokio::spawn(held.release());
        scene.time.advance(MS(3000)).await;
        assert!(waited.is_finished(), "{fault:?}");
        // A try has no limit of its own but the lease that it asked for, and asks twice.
        scene.time.advance(SECS(3)).await;
        assert!(tried.is_finished(), "{fault:?}");
        scene.time.advance(SECS(24)).await;
        assert!(released.is_finished(), "{fault:?}");
        let told = if fault == Fault::NotSent {
            ErrorKind::Unavailable
        } else {
            ErrorKind::OutcomeUnknown
        };
        assert_eq!(waited.await.unwrap().unwrap_err().kind(), told, "{fault:?}");
        assert_eq!(tried.await.unwrap().unwrap_err().kind(), told, "{fault:?}");
        assert_eq!(released.await.unwrap().unwrap_err().kind(), told, "{fault:?}");
    }
}

#[tokio::test]
async fn f36_waiters_that_left_swallow_no_wake_up() {
    for order in [Order::Any, Order::Fifo] {
        let scene = Scene::new();
        let (a, b) = (scene.client(), scene.client());
        let clock = a.clock().clone();
        let held = a.mutex("k").order(order).acquire().await.unwrap();
        let inside = Arc::new(AtomicU32::new(0));
        let done = Arc::new(AtomicU32::new(0));
        for i in 0..100u64 {
            // Half of them wait in the holder's own process.
            let client = if i % 2 == 0 { &a } else { &b };
            let (lock, clock) = (client.mutex("k").order(order), clock.clone());
            let (inside, done) = (inside.clone(), done.clone());
            tokio::spawn(async move {
                if i % 10 != 0 {
                    // At moments before, at and after the release.
                    let left = clock.timeout(MS(i % 17), lock.acquire()).await;
                    drop(left);
                    return;
                }
                let guard = lock.acquire().await.unwrap();
                assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                clock.sleep(MS(1)).await;
                inside.fetch_sub(1, Ordering::SeqCst);
                guard.release().await.unwrap();
                done.fetch_add(1, Ordering::SeqCst);
            });
        }
        scene.time.advance(MS(8)).await;
        held.release().await.unwrap();
        scene.time.advance(SECS(1)).await;
        assert_eq!(done.load(Ordering::SeqCst), 10, "{order:?}");
        let left = a.inspect("k").await.unwrap();
        assert!(left.holders.is_empty() && left.waiters.is_empty(), "{left:?}");
    }
}

#[tokio::test]
async fn f36_a_waiter_that_left_when_its_turn_had_come_passes_it_on() {
    let scene = Scene::new();
    let a = scene.client();
    for _ in 0..100 {
        let held = a.mutex("k").acquire().await.unwrap();
        let waiters: Vec<_> = (0..3)
            .map(|_| tokio::spawn(a.mutex("k").wait(SECS(1)).acquire()))
            .collect();
        scene.time.settle().await;
        held.release().await.unwrap();
        // Its turn has come, and it has not run since.
        waiters[0].abort();
        for waiter in waiters.into_iter().skip(1) {
            scene.time.settle().await;
            assert!(waiter.is_finished());
            drop(waiter.await.unwrap().unwrap());
        }
        scene.time.settle().await;
    }
    assert!(scene.is_free("k").await);
}

#[tokio::test]
async fn f45_a_waiting_writer_gets_in_while_readers_come_and_go() {
    // Readers of the writer's own client, and readers of others if the writer asks for its turn.
    for (own, order) in [(true, Order::Any), (false, Order::Fifo)] {
        let scene = Scene::new();
        let writer = scene.client();
        let clock = writer.clock().clone();
        for i in 0..10u64 {
            let reader = if own { writer.clone() } else { scene.client() };
            let clock = clock.clone();
            tokio::spawn(async move {
                clock.sleep(MS(20 * i)).await;
                loop {
                    let guard = reader.rw("k").read().acquire().await.unwrap();
                    clock.sleep(MS(200)).await;
                    guard.release().await.unwrap();
                }
            });
        }
        scene.time.advance(MS(450)).await;
        let start = clock.now();
        let lock = writer.rw("k").write().order(order).wait(SECS(20));
        let written = tokio::spawn(async move {
            let guard = lock.acquire().await.unwrap();
            let at = clock.now();
            guard.release().await.unwrap();
            at
        });
        scene.time.advance(SECS(2)).await;
        assert!(written.is_finished(), "own {own}: starved");
        let waited = written.await.unwrap().since(start);
        assert!(waited > MS(100), "vacuous: own {own}, {waited:?}");
        assert!(waited <= MS(200), "own {own}: {waited:?}");
    }
}

#[tokio::test]
async fn f106_a_thousand_waiters_hardly_ask() {
    let scene = Scene::new();
    let (a, b) = (scene.client(), scene.client());
    let held = a.mutex("k").acquire().await.unwrap();
    for i in 0..1000 {
        // Over two hundred keys of one, and one key of all.
        let lock = b.mutex(if i % 2 == 0 {
            "k".to_owned()
        } else {
            format!("k{}", i % 200)
        });
        tokio::spawn(async move {
            let _guard = lock.acquire().await;
            std::future::pending::<()>().await;
        });
    }
    scene.time.settle().await;
    scene.memory.faults().record();
    scene.time.advance(SECS(60)).await;
    let looks = scene.asked(Call::Try).len();
    assert!(looks <= 100 * 60, "{looks} looks in a minute");
    // The engine is down: paced, with a ceiling of one look a second.
    let before = scene.asked(Call::Try).len();
    scene.memory.faults().partition(b.id());
    scene.time.advance(SECS(60)).await;
    let looks = scene.asked(Call::Try).len() - before;
    assert!(
        looks > 0 && looks < 101 * 150,
        "{looks} looks in a minute without an engine"
    );
    scene.memory.faults().clear();
    // And yet a release is noticed at once.
    drop(held);
    scene.time.settle().await;
    scene.time.advance(SECS(2)).await;
    let found = a.inspect("k").await.unwrap();
    assert!(found.holders[0].owner.starts_with(&b.id().to_string()));
}
