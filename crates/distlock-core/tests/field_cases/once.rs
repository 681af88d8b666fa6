//! At most once per key and window.

use distlock_core::{ErrorKind, Held, OnCrash, Ran, RunError};
use futures_util::future::join_all;

use super::*;

const HOUR: Duration = Duration::from_secs(3600);

fn done(n: u32) -> impl AsyncFnOnce(Held) -> Result<u32, std::io::Error> {
    async move |_| Ok(n)
}

/// One call of a stranger, whose body gives `n`.
async fn call(scene: &Scene, on_crash: OnCrash, n: u32) -> Ran<u32> {
    let client = scene.client();
    let ran = client
        .once("k", HOUR, on_crash)
        .run(|held| done(n)(held))
        .await
        .unwrap();
    client.shutdown(SECS(1)).await;
    ran
}

#[tokio::test]
async fn the_window_is_rolling_and_counts_from_the_start_of_the_run() {
    for on_crash in [OnCrash::Retry, OnCrash::Skip] {
        let scene = Scene::new();
        let (clock, client) = (scene.client().clock().clone(), scene.client());
        let running = tokio::spawn(async move {
            let slow = async |_| {
                clock.sleep(SECS(600)).await;
                Ok::<_, std::io::Error>(1)
            };
            client.once("k", HOUR, on_crash).run(slow).await
        });
        scene.time.settle().await;
        let meanwhile = call(&scene, on_crash, 2).await;
        assert!(
            matches!(meanwhile, Ran::Elsewhere { holder: Some(_) }),
            "{meanwhile:?}"
        );
        scene.time.advance(SECS(600)).await;
        assert_eq!(running.await.unwrap().unwrap(), Ran::Now(1));
        let Ran::Already { again_in: Some(left) } = call(&scene, on_crash, 3).await else {
            panic!("it ran again");
        };
        assert!(left > SECS(2990) && left <= SECS(3000), "{left:?}");
        scene.time.advance(left - SECS(1)).await;
        assert!(matches!(call(&scene, on_crash, 4).await, Ran::Already { .. }));
        scene.time.advance(SECS(1)).await;
        assert_eq!(call(&scene, on_crash, 5).await, Ran::Now(5));
    }
}

#[tokio::test]
async fn of_many_callers_one_does_it() {
    for on_crash in [OnCrash::Retry, OnCrash::Skip] {
        let scene = Scene::new();
        let calls = (0..50).map(|n| call(&scene, on_crash, n));
        let ran: Vec<_> = join_all(calls).await.into_iter().filter_map(Ran::now).collect();
        assert_eq!(ran.len(), 1, "{on_crash:?}: {ran:?}");
    }
}

#[tokio::test]
async fn a_failure_or_a_dropped_future_is_tried_again_or_not_as_the_caller_said() {
    for (on_crash, again) in [(OnCrash::Retry, true), (OnCrash::Skip, false)] {
        let scene = Scene::new();
        let client = scene.client();
        let failed = client
            .once("k", HOUR, on_crash)
            .run(async |_| Err::<u32, _>("no"))
            .await;
        assert!(matches!(failed, Err(RunError::Body("no"))));
        assert_eq!(
            call(&scene, on_crash, 1).await.now().is_some(),
            again,
            "{on_crash:?}"
        );

        let scene = Scene::new();
        let client = scene.client();
        let hanging = client.clone();
        let hangs = tokio::spawn(async move {
            let body = async |_| std::future::pending::<Result<u32, &str>>().await;
            hanging.once("k", HOUR, on_crash).run(body).await
        });
        scene.time.settle().await;
        hangs.abort();
        scene.time.settle().await;
        assert_eq!(
            call(&scene, on_crash, 1).await.now().is_some(),
            again,
            "{on_crash:?}"
        );
    }
}

#[tokio::test]
async fn a_crash_is_tried_again_after_the_lease_or_not_before_the_windows_end() {
    for (on_crash, after) in [(OnCrash::Retry, SECS(31)), (OnCrash::Skip, HOUR + SECS(1))] {
        let scene = Scene::new();
        let client = scene.client();
        let begun = client.once("k", HOUR, on_crash).lock().acquire().await.unwrap();
        scene.memory.faults().partition(client.id());
        scene.time.advance(after / 2).await;
        let meanwhile = call(&scene, on_crash, 1).await;
        assert!(
            matches!(meanwhile, Ran::Elsewhere { .. }),
            "{on_crash:?}: {meanwhile:?}"
        );
        scene.time.advance(after / 2 + MS(1)).await;
        assert!(!begun.is_held(), "told before anybody else");
        assert_eq!(call(&scene, on_crash, 2).await, Ran::Now(2), "{on_crash:?}");
    }
}

#[tokio::test]
async fn what_cannot_be_kept_is_refused_before_the_engine_is_asked() {
    let scene = Scene::new();
    let client = scene.client();
    scene.memory.faults().record();
    for (once, named) in [
        (client.once("k", Duration::ZERO, OnCrash::Retry), "window 0ns"),
        (client.once("k", HOUR * 9000, OnCrash::Skip), "366 days"),
        (client.once("k", HOUR, OnCrash::Skip).ttl(SECS(5)), "ttl 5s"),
    ] {
        let Err(RunError::Lock(e)) = once.run(|held| done(1)(held)).await else {
            panic!("not refused: {named}");
        };
        assert_eq!(e.kind(), ErrorKind::InvalidConfig);
        assert!(e.to_string().contains(named), "{e}");
    }
    let nested = client.mutex("k").run(async |_| {
        let inner = client
            .once("k", HOUR, OnCrash::Retry)
            .run(|held| done(1)(held))
            .await;
        assert!(matches!(inner, Err(RunError::Lock(e)) if e.kind() == ErrorKind::WouldDeadlock));
        Ok::<_, std::io::Error>(())
    });
    nested.await.unwrap();
    assert_eq!(scene.asked(Call::Try).len(), 1);
}
