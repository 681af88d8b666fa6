//! Commit first, release second.

use distlock_core::{CommitError, ErrorKind, Release, Renew, RunError};

use super::{MS, client, manual};

/// A commit that answers when it is told to.
fn commit() -> (
    tokio::sync::oneshot::Sender<Result<u8, &'static str>>,
    impl Future<Output = Result<u8, &'static str>>,
) {
    let (answer, answered) = tokio::sync::oneshot::channel();
    (answer, async move { answered.await.unwrap_or(Err("gone")) })
}

#[tokio::test]
async fn a_release_comes_after_the_commit() {
    let (time, memory, a) = manual();
    let b = client(&time, &memory);
    let (answer, committing) = commit();
    let guard = a.mutex("k").ttl(MS(1000)).acquire().await.unwrap();
    let done = tokio::spawn(guard.release_after(committing));
    // Long commits are renewed.
    time.advance(MS(10_000)).await;
    assert!(b.mutex("k").try_acquire().await.unwrap().is_none());
    answer.send(Ok(7)).unwrap();
    let done = done.await.unwrap().unwrap();
    assert_eq!((done.value, done.release.unwrap()), (7, Release::Clean));
    assert!(b.mutex("k").try_acquire().await.unwrap().is_some());
}

#[tokio::test]
async fn f70_a_commit_whose_outcome_is_unknown_keeps_the_lock() {
    for dropped in [false, true] {
        let (time, memory, a) = manual();
        let b = client(&time, &memory);
        let (answer, committing) = commit();
        let guard = a.mutex("k").ttl(MS(1000)).acquire().await.unwrap();
        let done = tokio::spawn(guard.release_after(committing));
        time.advance(MS(5000)).await;
        if dropped {
            done.abort();
            assert!(done.await.unwrap_err().is_cancelled());
        } else {
            answer.send(Err("cut")).unwrap();
            let Err(CommitError::Failed(failed)) = done.await.unwrap() else {
                panic!("it failed")
            };
            assert_eq!(failed.into_error(), "cut");
        }
        time.advance(MS(300)).await;
        // Other processes, and other tasks of this one.
        for other in [&a, &b] {
            assert!(other.mutex("k").try_acquire().await.unwrap().is_none());
        }
        let waiter = tokio::spawn(a.mutex("k").wait(MS(5000)).acquire());
        time.advance(MS(1000)).await;
        assert!(waiter.await.unwrap().unwrap().is_held(), "the lease has ended it");
    }
}

#[tokio::test]
async fn a_commit_that_is_known_to_have_failed_frees_the_lock() {
    let (time, memory, a) = manual();
    let b = client(&time, &memory);
    let guard = a.mutex("k").acquire().await.unwrap();
    let Err(CommitError::Failed(failed)) = guard.release_after(async { Err::<(), _>("refused") }).await
    else {
        panic!("it failed")
    };
    assert_eq!(*failed.error(), "refused");
    assert_eq!(failed.rolled_back().await.unwrap(), Release::Clean);
    assert!(b.mutex("k").try_acquire().await.unwrap().is_some());
}

#[tokio::test]
async fn a_lost_lock_is_not_committed_under() {
    let (time, _memory, a) = manual();
    let guard = a
        .mutex("k")
        .ttl(MS(100))
        .renew(Renew::Never)
        .acquire()
        .await
        .unwrap();
    time.advance(MS(200)).await;
    let mut begun = false;
    let done = guard
        .release_after(async {
            begun = true;
            Ok::<_, &str>(())
        })
        .await;
    assert!(matches!(done, Err(CommitError::Lost(e)) if e.kind() == ErrorKind::Lost));
    assert!(!begun);
}

#[tokio::test]
async fn a_body_that_returns_its_transaction_is_committed_before_the_release() {
    let (time, memory, a) = manual();
    let b = client(&time, &memory);
    let run = |outcome: Result<(), &'static str>| {
        let (a, b) = (a.clone(), b.clone());
        a.mutex("k").ttl(MS(1000)).run_then_commit(
            async move |held| Ok((held.token(), "transaction")),
            async move |transaction| {
                assert_eq!(transaction, "transaction");
                assert!(b.mutex("k").try_acquire().await.unwrap().is_none());
                outcome
            },
        )
    };
    assert!(run(Ok(())).await.unwrap().is_some());
    assert!(b.mutex("k").try_acquire().await.unwrap().is_some());
    assert!(matches!(run(Err("cut")).await, Err(RunError::Body("cut"))));
    assert!(b.mutex("k").try_acquire().await.unwrap().is_none(), "kept");
    time.advance(MS(1100)).await;
    assert!(b.mutex("k").try_acquire().await.unwrap().is_some());

    // A body that fails, or loses its lock, commits nothing; the first frees the lock.
    let never = async |(): ()| panic!("nothing to commit");
    let failed = a
        .mutex("k")
        .run_then_commit(async |_| Err::<((), ()), _>("body"), never);
    assert!(matches!(failed.await, Err(RunError::Body("body"))));
    assert!(b.mutex("k").try_acquire().await.unwrap().is_some());
    let clock = a.clock().clone();
    let lost = a.mutex("k").ttl(MS(100)).renew(Renew::Never).run_then_commit(
        async move |_| {
            clock.sleep(MS(500)).await;
            Ok::<_, &str>(((), ()))
        },
        async |(): ()| panic!("nothing to commit"),
    );
    let lost = tokio::spawn(lost);
    time.advance(MS(1000)).await;
    assert!(matches!(
        lost.await.unwrap(),
        Err(RunError::Lost { value: None, .. })
    ));
}

#[tokio::test]
async fn an_unknown_commit_inside_keeps_the_lock_of_the_outer_run() {
    let (time, memory, a) = manual();
    let b = client(&time, &memory);
    let outer = a.mutex("k").ttl(MS(1000)).run(async |_| {
        let inner = a
            .mutex("k")
            .run_then_commit(async |_| Ok(((), ())), async |()| Err("cut"));
        assert!(matches!(inner.await, Err(RunError::Body("cut"))));
        Ok::<_, &str>(())
    });
    outer.await.unwrap();
    assert!(b.mutex("k").try_acquire().await.unwrap().is_none());
    time.advance(MS(1100)).await;
    assert!(b.mutex("k").try_acquire().await.unwrap().is_some());
}
