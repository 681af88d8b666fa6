//! Releases: late, cancelled, failed, after panics.

use std::pin::pin;

use distlock_core::driver::LostReason;
use distlock_core::memory::{Call, Fault, Rule};
use distlock_core::{ErrorKind, Held, Release, RunError};
use futures_util::{FutureExt, poll};

use crate::telling::Lines;
use crate::{MS, SECS, Scene, key, overrun};

#[tokio::test]
async fn f12_a_release_ends_with_the_lease() {
    // Overrun: at once, although the acquire would have waited for ever.
    let scene = Scene::new();
    let a = scene.client();
    let late = overrun(&scene, &a, SECS(1)).await;
    let released = tokio::spawn(late.release());
    scene.time.settle().await;
    assert!(released.is_finished());
    assert_eq!(
        released.await.unwrap().unwrap(),
        Release::Lost(LostReason::Expired)
    );

    // Cut off: at once, with the error; the rest goes on in the background.
    let held = a.mutex("k").ttl(SECS(5)).acquire().await.unwrap();
    scene.memory.faults().partition(a.id());
    let released = tokio::spawn(held.release());
    scene.time.settle().await;
    assert!(released.is_finished());
    assert_eq!(
        released.await.unwrap().unwrap_err().kind(),
        ErrorKind::Unavailable
    );
    scene.memory.faults().heal(a.id());
    assert!(scene.wait_for("k", SECS(5)).await < SECS(1));

    // An engine that never answers: with the lease, and then others get in.
    let held = a.mutex("k").ttl(SECS(5)).acquire().await.unwrap();
    scene
        .memory
        .faults()
        .add(Rule::new(Call::Release, Fault::Silent).of(a.id()).always());
    let released = tokio::spawn(held.release());
    scene.time.advance(MS(4900)).await;
    assert!(!released.is_finished());
    scene.time.advance(MS(100)).await;
    assert!(released.is_finished());
    assert_eq!(
        released.await.unwrap().unwrap_err().kind(),
        ErrorKind::OutcomeUnknown
    );
    scene.time.advance(MS(1)).await;
    assert!(scene.is_free("k").await);
}

#[tokio::test]
async fn f13_a_cancelled_release_goes_on() {
    for reply in [Fault::Slow(MS(50)), Fault::Late(MS(50)), Fault::LostReply] {
        for polls in 0..4 {
            let scene = Scene::new();
            let a = scene.client();
            let held = a.mutex("k").ttl(SECS(10)).acquire().await.unwrap();
            scene
                .memory
                .faults()
                .add(Rule::new(Call::Release, reply).of(a.id()).times(2));
            scene.memory.faults().record();
            {
                let mut released = pin!(held.release());
                for _ in 0..polls {
                    // Each poll is one more millisecond of the fifty.
                    if poll!(released.as_mut()).is_ready() {
                        break;
                    }
                    scene.time.advance(MS(1)).await;
                }
            }
            let waited = scene.wait_for("k", SECS(10)).await;
            assert!(
                waited <= MS(200),
                "{reply:?} dropped after {polls} polls: {waited:?}"
            );
            scene.time.advance(SECS(30)).await;
            assert_eq!(a.held(), 0);
            assert_eq!(scene.asked(Call::Renew), [], "renewed after its release");
        }
    }
}

#[tokio::test]
async fn f14_the_bodys_error_is_what_the_caller_sees() {
    let (lines, _guard) = Lines::catch();
    // The lock was deleted behind the body.
    let scene = Scene::new();
    let a = scene.client();
    let body = async |_| {
        scene.memory.faults().delete(&key("k"));
        Err::<(), _>("X")
    };
    let out = a.mutex("k").run(body).await;
    assert!(matches!(out, Err(RunError::Body("X"))), "{out:?}");
    assert_eq!(lines.with("not held any more at its release").len(), 1);

    // The engine is gone at the release.
    let body = async |_| {
        scene.memory.faults().partition(a.id());
        Err::<(), _>("X")
    };
    let out = a.mutex("k").run(body).await;
    assert!(matches!(out, Err(RunError::Body("X"))), "{out:?}");
    assert_eq!(lines.with("a release was not confirmed").len(), 1);
    scene.memory.faults().heal(a.id());

    // The body overran its lease without an await, and failed; inside another scope of the lock, too.
    scene.time.advance(SECS(60)).await;
    let overrunning = async |held: Held| {
        // Polled once, which moves the clock: as a body that blocks.
        let _ = scene.time.jump(SECS(60)).now_or_never();
        assert!(!held.is_held());
        Err::<(), _>("X")
    };
    let out = a.mutex("k").run(overrunning).await;
    assert!(matches!(out, Err(RunError::Body("X"))), "{out:?}");
    let nested = async |_| match a.mutex("k").run(overrunning).await {
        Err(RunError::Body(e)) => Err::<(), _>(e),
        other => panic!("{other:?}"),
    };
    let out = a.mutex("k").run(nested).await;
    assert!(matches!(out, Err(RunError::Body("X"))), "{out:?}");

    // A panic, with the engine gone.
    let b = a.clone();
    let faults = scene.memory.faults();
    let body = async move |_| -> Result<(), ()> {
        faults.partition(b.id());
        panic!("the body's own panic");
    };
    let lock = a.mutex("p");
    let panicked = tokio::spawn(async move { lock.run(body).await })
        .await
        .unwrap_err();
    let said = *panicked.into_panic().downcast::<&str>().unwrap();
    assert_eq!(said, "the body's own panic");
}

#[tokio::test]
async fn f17_a_panic_an_early_return_or_a_cancelled_body_releases_at_once() {
    async fn early(a: distlock_core::Client) -> Result<(), String> {
        let _guard = a.mutex("k").acquire().await.map_err(|e| e.to_string())?;
        Err::<(), _>("early".to_owned())?;
        Ok(())
    }
    async fn guard_panics(a: distlock_core::Client) -> Result<(), String> {
        let _guard = a.mutex("k").acquire().await.unwrap();
        panic!("under a guard");
    }
    async fn body_panics(a: distlock_core::Client) -> Result<(), String> {
        let body = async |_| -> Result<(), ()> { panic!("under run") };
        a.mutex("k").run(body).await.map_err(|_| "failed".to_owned())
    }
    async fn never_ends(a: distlock_core::Client) -> Result<(), String> {
        let body = async |_| -> Result<(), ()> { std::future::pending().await };
        a.mutex("k").run(body).await.map_err(|_| "failed".to_owned())
    }
    let scene = Scene::new();
    let a = scene.client();
    let fails = [
        tokio::spawn(early(a.clone())),
        tokio::spawn(guard_panics(a.clone())),
        tokio::spawn(body_panics(a.clone())),
    ];
    for fails in fails {
        assert!(!matches!(fails.await, Ok(Ok(()))));
        assert!(scene.wait_for("k", SECS(5)).await < SECS(1));
    }
    // The body is cancelled.
    let cancelled = tokio::spawn(never_ends(a.clone()));
    scene.time.settle().await;
    assert!(!scene.is_free("k").await);
    cancelled.abort();
    assert!(scene.wait_for("k", SECS(5)).await < SECS(1));
    // The step between the grant and the body: the grant happened, its reply never comes, the caller goes away.
    scene
        .memory
        .faults()
        .add(Rule::new(Call::Try, Fault::SilentApplied).of(a.id()));
    let cancelled = tokio::spawn(never_ends(a.clone()));
    scene.time.settle().await;
    assert!(!scene.is_free("k").await);
    cancelled.abort();
    assert!(scene.wait_for("k", SECS(5)).await < SECS(1));
    // Nothing is poisoned.
    a.mutex("k").run(async |_| Ok::<_, ()>(())).await.unwrap();
}
