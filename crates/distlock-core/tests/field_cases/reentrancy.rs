//! Nested use of one lock.

use distlock_core::{Client, ErrorKind, Owner, RunError, Wait};

use crate::{MS, Scene};

/// Runs `depth` scopes inside each other; the innermost fails. Each scope on the way out still excludes others.
async fn nest(scene: &Scene, a: &Client, depth: u32) -> Result<u32, &'static str> {
    let body = async |_| {
        let out = match depth {
            1 => Err("the innermost failed"),
            _ => Box::pin(nest(scene, a, depth - 1)).await,
        };
        assert!(!scene.is_free("k").await, "free at depth {depth}");
        // All but the innermost two recover.
        if depth > 2 { Ok(out.unwrap_or(0) + 1) } else { out }
    };
    match a.mutex("k").wait(Wait::Try).run(body).await {
        Ok(n) => Ok(n),
        Err(RunError::Body(e)) => Err(e),
        Err(other) => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn f39_only_the_outermost_release_frees() {
    let scene = Scene::new();
    let a = scene.client();
    assert_eq!(nest(&scene, &a, 5).await, Ok(3));
    assert!(scene.is_free("k").await);

    // Guards of one owner, five deep, released from the inside and from the outside.
    for inside_first in [true, false] {
        let me = Owner::new();
        let mut guards = Vec::new();
        for _ in 0..5 {
            guards.push(a.mutex("k").owner(&me).acquire().await.unwrap());
        }
        while let Some(guard) = if inside_first {
            guards.pop()
        } else if guards.is_empty() {
            None
        } else {
            Some(guards.remove(0))
        } {
            assert!(!scene.is_free("k").await);
            guard.release().await.unwrap();
            assert!(guards.iter().all(|g| g.is_held()));
        }
        assert!(scene.is_free("k").await);
    }

    // Without: refused at once inside a scope, timed out with the reason outside of one; nothing is freed.
    let body = async |_| {
        let e = a.mutex("k").wait(Wait::Try).acquire().await.unwrap_err();
        assert_eq!(e.kind(), ErrorKind::WouldDeadlock);
        assert!(e.to_string().contains("enclosing `run` holds it"), "{e}");
        assert!(!scene.is_free("k").await);
        Ok::<_, ()>(())
    };
    a.mutex("k").run(body).await.unwrap();
    let held = a.mutex("k").acquire().await.unwrap();
    let second = tokio::spawn(a.mutex("k").wait(MS(100)).acquire());
    scene.time.advance(MS(100)).await;
    let e = second.await.unwrap().unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Timeout);
    assert!(e.to_string().contains("held by this process"), "{e}");
    assert!(held.is_held() && !scene.is_free("k").await);
}

#[tokio::test]
async fn f42_a_spawned_task_is_a_stranger_unless_it_is_handed_the_owner() {
    let scene = Scene::new();
    let a = scene.client();
    let body = async |_| {
        let stranger = tokio::spawn(a.mutex("k").try_acquire());
        assert!(stranger.await.unwrap().unwrap().is_none());
        Ok::<_, ()>(())
    };
    a.mutex("k").run(body).await.unwrap();
    let me = Owner::new();
    let outer = a.mutex("k").owner(&me).acquire().await.unwrap();
    let handed = a.mutex("k").owner(&me);
    let inner = tokio::spawn(async move { handed.acquire().await.unwrap().token() });
    assert_eq!(inner.await.unwrap(), outer.token());
    scene.time.settle().await;
    assert!(outer.is_held() && !scene.is_free("k").await);
}
