//! The public API over the memory engine: what a user relies on, in virtual time where time matters.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use distlock_core::clock::{Clock, ManualClock};
use distlock_core::driver::{LostReason, Order};
use distlock_core::memory::Memory;
use distlock_core::{Client, ErrorKind, Key, Owner, Release, Renew, RunError, Wait, all};

const MS: fn(u64) -> Duration = Duration::from_millis;

fn manual() -> (ManualClock, Memory, Client) {
    let time = ManualClock::new();
    let memory = Memory::new();
    let client = client(&time, &memory);
    (time, memory, client)
}

fn client(time: &ManualClock, memory: &Memory) -> Client {
    Client::builder()
        .clock(Clock::Manual(time.clone()))
        .memory(memory)
        .unwrap()
}

fn key(name: &str) -> Key {
    Key::new(name).unwrap()
}

#[tokio::test]
async fn one_holds_and_the_next_one_follows() {
    let (time, memory, a) = manual();
    let b = client(&time, &memory);
    let held = a.mutex("k").acquire().await.unwrap();
    assert!(held.is_held());
    assert!(b.mutex("k").try_acquire().await.unwrap().is_none());
    assert!(b.mutex("other").try_acquire().await.unwrap().is_some());
    let waiter = tokio::spawn(async move { b.mutex("k").acquire().await.map(|g| g.token()) });
    time.settle().await;
    assert!(!waiter.is_finished());
    let first = held.token();
    assert_eq!(held.release().await.unwrap(), Release::Clean);
    let second = waiter.await.unwrap().unwrap();
    assert!(second > first && first.is_some());
}

#[tokio::test]
async fn the_watchdog_renews_for_as_long_as_the_guard_lives() {
    let (time, memory, a) = manual();
    let b = client(&time, &memory);
    let held = a.mutex("k").ttl(MS(300)).acquire().await.unwrap();
    time.advance(Duration::from_secs(60)).await;
    assert!(held.is_held());
    assert!(b.mutex("k").try_acquire().await.unwrap().is_none());
    drop(held);
    time.settle().await;
    assert!(b.mutex("k").try_acquire().await.unwrap().is_some());
}

#[tokio::test]
async fn without_renewal_the_loss_is_told_before_the_next_grant() {
    let (time, memory, a) = manual();
    let b = client(&time, &memory);
    let held = a
        .mutex("k")
        .ttl(MS(1000))
        .renew(Renew::Never)
        .acquire()
        .await
        .unwrap();
    let lost = tokio::spawn({
        let (lost, clock) = (held.lost(), a.clock().clone());
        async move { (lost.await, clock.now()) }
    });
    let next = tokio::spawn(async move {
        let guard = b.mutex("k").acquire().await.unwrap();
        (b.clock().now(), guard)
    });
    time.advance(MS(2000)).await;
    let (reason, told_at) = lost.await.unwrap();
    let (granted_at, _guard) = next.await.unwrap();
    assert_eq!(reason, LostReason::Expired);
    assert!(
        told_at < granted_at,
        "told at {told_at:?}, granted at {granted_at:?}"
    );
    assert_eq!(held.ensure().unwrap_err().kind(), ErrorKind::Lost);
    assert_eq!(held.release().await.unwrap(), Release::Lost(LostReason::Expired));
}

#[tokio::test]
async fn a_stopped_process_sees_its_loss_first_thing_after_it_goes_on() {
    let (time, _memory, a) = manual();
    let held = a.mutex("k").ttl(MS(300)).acquire().await.unwrap();
    time.jump(MS(400)).await;
    assert!(!held.is_held());
    assert_eq!(
        held.ensure().unwrap_err().lost_reason(),
        Some(&LostReason::Expired)
    );
}

#[tokio::test]
async fn a_wait_ends_in_time_and_names_the_holder() {
    let (time, memory, _) = manual();
    let a = Client::builder()
        .label("api-7")
        .clock(Clock::Manual(time.clone()))
        .memory(&memory)
        .unwrap();
    let b = client(&time, &memory);
    let _held = a.mutex("k").reason("closing").acquire().await.unwrap();
    let waiter = tokio::spawn(async move { b.mutex("k").wait(MS(200)).acquire().await });
    time.advance(MS(200)).await;
    let e = waiter.await.unwrap().unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Timeout);
    assert!(
        e.to_string().contains("api-7") && e.to_string().contains("closing"),
        "{e}"
    );
    let e = a.mutex("k").wait(Wait::Try).acquire().await.unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Busy);
    assert!(e.to_string().contains("held by this process"), "{e}");
}

#[tokio::test]
async fn run_releases_after_success_failure_and_panic() {
    let (time, _memory, a) = manual();
    assert_eq!(a.mutex("k").run(async |_| Ok::<_, ()>(1)).await.unwrap(), 1);
    let e = a.mutex("k").run(async |_| Err::<(), _>("no")).await.unwrap_err();
    assert!(matches!(e, RunError::Body("no")));
    let b = a.clone();
    let panics = async move {
        b.mutex("k")
            .run(async |_| -> Result<(), ()> { panic!("on purpose") })
            .await
    };
    assert!(tokio::spawn(panics).await.unwrap_err().is_panic());
    time.settle().await;
    assert!(a.mutex("k").try_acquire().await.unwrap().is_some());
}

#[tokio::test]
async fn run_drops_the_body_when_the_lock_is_lost() {
    let (time, memory, a) = manual();
    let steps = Arc::new(AtomicU32::new(0));
    let body_steps = steps.clone();
    let clock = a.clock().clone();
    let run = tokio::spawn(async move {
        let body = async |_| {
            for _ in 0..1000 {
                clock.sleep(MS(50)).await;
                body_steps.fetch_add(1, Ordering::SeqCst);
            }
            Ok::<(), ()>(())
        };
        a.mutex("k").ttl(MS(300)).run(body).await
    });
    time.advance(MS(1000)).await;
    assert_eq!(steps.load(Ordering::SeqCst), 20);
    memory.faults().delete(&key("k"));
    time.advance(MS(1000)).await;
    assert!(matches!(
        run.await.unwrap(),
        Err(RunError::Lost {
            reason: LostReason::Taken,
            ..
        })
    ));
    assert!(steps.load(Ordering::SeqCst) <= 23, "{steps:?}");
}

#[tokio::test]
async fn max_hold_ends_a_hold_that_would_be_renewed_for_ever() {
    let (time, _memory, a) = manual();
    let held = a
        .mutex("k")
        .ttl(MS(300))
        .max_hold(MS(1000))
        .acquire()
        .await
        .unwrap();
    time.advance(MS(999)).await;
    assert!(held.is_held());
    time.advance(MS(1)).await;
    assert_eq!(held.lost().await, LostReason::MaxHold);
    assert_eq!(held.release().await.unwrap(), Release::Lost(LostReason::MaxHold));
    assert!(a.mutex("k").try_acquire().await.unwrap().is_some());
}

#[tokio::test]
async fn min_hold_keeps_others_out_after_a_quick_job() {
    let (time, memory, a) = manual();
    let b = client(&time, &memory);
    let held = a.mutex("k").min_hold(MS(500)).acquire().await.unwrap();
    time.advance(MS(100)).await;
    assert_eq!(held.release().await.unwrap(), Release::Clean);
    assert!(b.mutex("k").try_acquire().await.unwrap().is_none());
    time.advance(MS(401)).await;
    assert!(b.mutex("k").try_acquire().await.unwrap().is_some());
}

#[tokio::test]
async fn extend_moves_the_end_and_verify_asks_the_engine() {
    let (time, memory, a) = manual();
    let held = a
        .mutex("k")
        .ttl(MS(300))
        .renew(Renew::Never)
        .acquire()
        .await
        .unwrap();
    held.extend(MS(5000)).await.unwrap();
    time.advance(MS(4000)).await;
    held.verify().await.unwrap();
    assert_eq!(
        held.extend(MS(1)).await.unwrap_err().kind(),
        ErrorKind::InvalidConfig
    );
    memory.faults().delete(&key("k"));
    assert_eq!(held.verify().await.unwrap_err().kind(), ErrorKind::Lost);
    assert!(!held.is_held());
}

#[tokio::test]
async fn nested_runs_re_enter_and_siblings_exclude_each_other() {
    let (_time, _memory, a) = manual();
    let inside = AtomicU32::new(0);
    let outer = a.mutex("k").run(async |outer| {
        let token = a
            .mutex("k")
            .run(async |inner| Ok::<_, ()>(inner.token()))
            .await
            .unwrap();
        assert_eq!(token, outer.token());
        let e = a.mutex("k").acquire().await.unwrap_err();
        assert_eq!(e.kind(), ErrorKind::WouldDeadlock);
        assert_eq!(
            a.mutex("k").try_acquire().await.unwrap_err().kind(),
            ErrorKind::WouldDeadlock
        );
        let e = a.rw("k").read().run(async |_| Ok::<_, ()>(())).await.unwrap_err();
        assert!(matches!(e, RunError::Lock(e) if e.kind() == ErrorKind::KindMismatch));
        Ok::<_, ()>(())
    });
    outer.await.unwrap();
    let sibling = async || {
        let body = async |_| {
            assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
            tokio::task::yield_now().await;
            inside.fetch_sub(1, Ordering::SeqCst);
            Ok::<_, ()>(())
        };
        a.mutex("s").run(body).await.unwrap();
    };
    tokio::join!(sibling(), sibling());
}

#[tokio::test]
async fn a_reader_cannot_become_the_writer_but_a_writer_reads() {
    let (_time, _memory, a) = manual();
    let upgrade = async |_| match a.rw("k").write().run(async |_| Ok::<_, ()>(())).await {
        Err(RunError::Lock(e)) => Err(e.kind()),
        other => panic!("{other:?}"),
    };
    let out: Result<(), _> = a.rw("k").read().run(upgrade).await;
    assert!(matches!(out, Err(RunError::Body(ErrorKind::WouldDeadlock))));
    let read = async |_| {
        a.rw("k")
            .read()
            .run(async |_| Ok::<_, ()>(()))
            .await
            .map_err(|_| ())
    };
    a.rw("k").write().run(read).await.unwrap();
}

#[tokio::test]
async fn an_explicit_owner_re_enters_and_the_last_guard_releases() {
    let (time, memory, a) = manual();
    let b = client(&time, &memory);
    let me = Owner::new();
    let outer = a.mutex("k").owner(&me).acquire().await.unwrap();
    let inner = a.mutex("k").owner(&me).acquire().await.unwrap();
    assert_eq!(inner.token(), outer.token());
    outer.release().await.unwrap();
    assert!(inner.is_held());
    assert!(b.mutex("k").try_acquire().await.unwrap().is_none());
    inner.release().await.unwrap();
    assert!(b.mutex("k").try_acquire().await.unwrap().is_some());
}

#[tokio::test]
async fn all_is_all_or_nothing_and_opposite_orders_do_not_deadlock() {
    let (time, memory, a) = manual();
    let b = client(&time, &memory);
    let blocker = b.mutex("y").acquire().await.unwrap();
    assert!(
        all([a.mutex("x"), a.mutex("y")])
            .try_acquire()
            .await
            .unwrap()
            .is_none()
    );
    assert!(b.mutex("x").try_acquire().await.unwrap().is_some());
    time.settle().await;
    blocker.release().await.unwrap();
    let done = Arc::new(AtomicU32::new(0));
    for i in 0..20 {
        let (c, done) = (if i % 2 == 0 { a.clone() } else { b.clone() }, done.clone());
        tokio::spawn(async move {
            let locks = if i % 3 == 0 {
                [c.mutex("x"), c.mutex("y")]
            } else {
                [c.mutex("y"), c.mutex("x")]
            };
            let guard = all(locks).acquire().await.unwrap();
            assert_eq!(guard.tokens().len(), 2);
            c.clock().sleep(MS(10)).await;
            assert_eq!(guard.release().await.unwrap(), Release::Clean);
            done.fetch_add(1, Ordering::SeqCst);
        });
    }
    time.advance(MS(1000)).await;
    assert_eq!(done.load(Ordering::SeqCst), 20);
    let e = all([]).acquire().await.unwrap_err();
    assert_eq!(e.kind(), ErrorKind::InvalidConfig);
}

#[tokio::test]
async fn a_lease_changes_hands() {
    let (time, memory, a) = manual();
    let b = client(&time, &memory);
    let held = a.mutex("k").ttl(MS(1000)).detachable().acquire().await.unwrap();
    let token = held.token();
    let lease = held.detach().unwrap().to_string();
    a.shutdown(MS(100)).await;
    time.advance(MS(500)).await;
    assert!(b.mutex("k").try_acquire().await.unwrap().is_none());
    let resumed = b.resume(&lease.parse().unwrap()).await.unwrap();
    assert_eq!(resumed.token(), token);
    time.advance(MS(5000)).await;
    assert!(resumed.is_held());
    assert_eq!(resumed.release().await.unwrap(), Release::Clean);
    assert_eq!(
        b.resume(&lease.parse().unwrap()).await.unwrap_err().kind(),
        ErrorKind::NotHeld
    );
    let held = a_client_that_did_not_ask(&b).await;
    assert_eq!(held.kind(), ErrorKind::InvalidConfig);
}

async fn a_client_that_did_not_ask(b: &Client) -> distlock_core::Error {
    b.mutex("k").acquire().await.unwrap().detach().unwrap_err()
}

#[tokio::test]
async fn shutdown_tells_holders_and_refuses_later_calls() {
    let (time, memory, a) = manual();
    let b = client(&time, &memory);
    let held = a.mutex("k").acquire().await.unwrap();
    drop(a.mutex("dropped").acquire().await.unwrap());
    assert!(a.shutdown(MS(100)).await);
    assert_eq!(held.lost().await, LostReason::Shutdown);
    assert_eq!(
        a.mutex("k").acquire().await.unwrap_err().kind(),
        ErrorKind::Closed
    );
    assert!(b.mutex("dropped").try_acquire().await.unwrap().is_some());
}

#[tokio::test]
async fn bad_settings_are_refused_before_any_look_at_the_engine() {
    let (_time, memory, a) = manual();
    memory.faults().record();
    let bad = [
        (
            a.mutex("").acquire().await,
            ErrorKind::InvalidKey,
            "1 to 512 bytes",
        ),
        (
            a.mutex("k").ttl(Duration::ZERO).acquire().await,
            ErrorKind::InvalidConfig,
            "ttl 0ns",
        ),
        (
            a.mutex("k").ttl(Duration::from_micros(10)).acquire().await,
            ErrorKind::InvalidConfig,
            "ttl 10µs",
        ),
        (
            a.mutex("k").ttl(Duration::from_secs(1 << 60)).acquire().await,
            ErrorKind::InvalidConfig,
            "366 days",
        ),
        (
            a.mutex("k").wait(Duration::MAX).acquire().await,
            ErrorKind::InvalidConfig,
            "wait",
        ),
        (
            a.mutex("k").max_hold(Duration::ZERO).acquire().await,
            ErrorKind::InvalidConfig,
            "max_hold",
        ),
        (
            a.mutex("k").max_hold(MS(10)).min_hold(MS(20)).acquire().await,
            ErrorKind::InvalidConfig,
            "min_hold",
        ),
        (
            a.semaphore("k", 0).acquire().await,
            ErrorKind::InvalidConfig,
            "permits 0",
        ),
        (
            a.rw("k").read().fenced().acquire().await,
            ErrorKind::InvalidConfig,
            "fenced",
        ),
    ];
    for (result, kind, word) in bad {
        let e = result.unwrap_err();
        assert_eq!(e.kind(), kind, "{e}");
        assert!(e.to_string().contains(word), "{e}");
    }
    assert!(memory.faults().history().is_empty());
}

#[tokio::test]
async fn permits_that_differ_are_both_named() {
    let (time, memory, a) = manual();
    let b = client(&time, &memory);
    let _one = a.semaphore("k", 2).acquire().await.unwrap();
    let e = b.semaphore("k", 3).acquire().await.unwrap_err();
    assert_eq!(e.kind(), ErrorKind::KindMismatch);
    assert!(
        e.to_string().contains("2 permits") && e.to_string().contains("3 permits"),
        "{e}"
    );
    let e = a.mutex("k").acquire().await.unwrap_err();
    assert_eq!(e.kind(), ErrorKind::KindMismatch);
}

#[tokio::test]
async fn a_semaphore_admits_its_number_and_readers_share() {
    let (_time, _memory, a) = manual();
    let one = a.semaphore("s", 2).acquire().await.unwrap();
    let _two = a.semaphore("s", 2).acquire().await.unwrap();
    assert!(a.semaphore("s", 2).try_acquire().await.unwrap().is_none());
    one.release().await.unwrap();
    assert!(a.semaphore("s", 2).try_acquire().await.unwrap().is_some());
    let r1 = a.rw("r").read().acquire().await.unwrap();
    let r2 = a.rw("r").read().acquire().await.unwrap();
    assert_eq!((r1.token(), r2.token()), (None, None));
    assert!(a.rw("r").write().try_acquire().await.unwrap().is_none());
    drop((r1, r2));
    assert!(a.rw("r").write().acquire().await.unwrap().token().is_some());
}

#[tokio::test]
async fn ten_thousand_local_waiters_are_one_contender_on_the_engine() {
    let (time, _memory, a) = manual();
    let held = a.mutex("k").acquire().await.unwrap();
    let done = Arc::new(AtomicU32::new(0));
    for _ in 0..10_000 {
        let (a, done) = (a.clone(), done.clone());
        tokio::spawn(async move {
            let guard = a.mutex("k").acquire().await.unwrap();
            done.fetch_add(1, Ordering::SeqCst);
            guard.release().await.unwrap();
        });
    }
    time.settle().await;
    let info = a.inspect("k").await.unwrap();
    assert!(
        info.waiters.len() <= 1,
        "{} waiters at the engine",
        info.waiters.len()
    );
    held.release().await.unwrap();
    while done.load(Ordering::SeqCst) < 10_000 {
        time.settle().await;
    }
    time.settle().await;
    assert!(a.inspect("k").await.unwrap().holders.is_empty());
}

#[tokio::test]
async fn fifo_serves_in_order_across_clients() {
    let (time, memory, a) = manual();
    let held = a.mutex("k").order(Order::Fifo).acquire().await.unwrap();
    let order = Arc::new(std::sync::Mutex::new(Vec::new()));
    for i in 0..20 {
        let (c, order) = (client(&time, &memory), order.clone());
        tokio::spawn(async move {
            let guard = c.mutex("k").order(Order::Fifo).acquire().await.unwrap();
            order.lock().unwrap().push(i);
            guard.release().await.unwrap();
        });
        time.settle().await;
    }
    held.release().await.unwrap();
    time.advance(MS(100)).await;
    assert_eq!(*order.lock().unwrap(), (0..20).collect::<Vec<_>>());
}

#[tokio::test]
async fn an_unanswered_renewal_is_not_a_loss_until_the_deadline() {
    let (time, memory, a) = manual();
    let held = a.mutex("k").ttl(MS(1000)).acquire().await.unwrap();
    memory.faults().partition(a.id());
    time.advance(MS(600)).await;
    assert!(held.is_held());
    memory.faults().heal(a.id());
    time.advance(MS(3000)).await;
    assert!(held.is_held());
    memory.faults().partition(a.id());
    time.advance(MS(1000)).await;
    assert_eq!(held.lost().await, LostReason::Expired);
}
