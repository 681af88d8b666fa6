//! `run`, owners and several locks at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use distlock_core::driver::LostReason;
use distlock_core::{ErrorKind, Owner, Release, RunError, all};

use crate::{MS, client, key, manual};

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
