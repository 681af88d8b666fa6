//! Durations at and beyond their limits.

use std::time::Duration;

use distlock_core::driver::{Break, MAX_TTL};
use distlock_core::{Error, ErrorKind, Guard, all};

use crate::{SECS, Scene};

#[track_caller]
fn refused<T: std::fmt::Debug>(out: Result<T, Error>, what: impl std::fmt::Debug) {
    let e = out.unwrap_err();
    assert_eq!(e.kind(), ErrorKind::InvalidConfig, "{what:?}: {e}");
}

#[tokio::test]
async fn f62_a_ttl_of_zero_is_refused_before_the_engine_is_asked() {
    let scene = Scene::new();
    let a = scene.client();
    let held = a.mutex("k").ttl(SECS(30)).acquire().await.unwrap();
    scene.memory.faults().record();
    let zero = Duration::ZERO;
    refused(a.mutex("z").ttl(zero).acquire().await, "acquire");
    refused(a.mutex("z").ttl(zero).try_acquire().await, "try");
    refused(all([a.mutex("y"), a.mutex("z").ttl(zero)]).acquire().await, "all");
    refused(held.extend(zero).await, "extend");
    refused(held.held().extend(zero).await, "extend of a view");
    refused(
        scene.builder().ttl(zero).memory(&scene.memory),
        "a client's default",
    );
    let tiny = Duration::from_nanos(1);
    refused(a.mutex("z").ttl(tiny).acquire().await, "almost zero");
    refused(scene.builder().ttl(tiny).memory(&scene.memory), "almost zero");
    assert_eq!(scene.memory.faults().history(), []);
    let found = a.inspect("k").await.unwrap();
    assert_eq!(found.holders[0].expires_in, Some(SECS(30)));
    scene.time.advance(SECS(120)).await;
    assert!(held.is_held() && !scene.is_free("k").await);
}

/// Durations that overflow somewhere: in nanoseconds, in milliseconds, in a signed number, as a date.
fn huge() -> Vec<Duration> {
    vec![
        Duration::MAX,
        Duration::from_millis(u64::MAX),
        Duration::from_millis(i64::MAX as u64),
        SECS(i64::MAX as u64),
        Duration::from_millis(1 << 53),
        SECS(1000 * 366 * 24 * 3600),
        MAX_TTL + Duration::from_nanos(1),
    ]
}

#[tokio::test]
async fn f64_a_huge_duration_is_refused_and_blocks_nobody() {
    let scene = Scene::new();
    let a = scene.client();
    for d in huge() {
        refused(a.mutex("k").ttl(d).acquire().await, d);
        refused(a.mutex("k").wait(d).acquire().await, d);
        refused(a.mutex("k").max_hold(d).acquire().await, d);
        refused(a.mutex("k").min_hold(d).acquire().await, d);
        refused(a.mutex("k").expect(d).acquire().await, d);
        refused(all([a.mutex("k")]).wait(d).acquire().await, d);
        refused(scene.builder().ttl(d).memory(&scene.memory), d);
        let held = a.mutex("k").acquire().await.unwrap();
        refused(held.extend(d).await, d);
        let grace = Break {
            grace: d,
            ..Break::default()
        };
        refused(a.break_lock("k", grace).await, d);
        assert!(held.is_held());
        held.release().await.unwrap();
        assert!(scene.is_free("k").await);
    }
    // The ceiling itself is fine, for everything.
    let lock = a
        .mutex("k")
        .ttl(MAX_TTL)
        .wait(MAX_TTL)
        .max_hold(MAX_TTL)
        .expect(MAX_TTL);
    let held: Guard = lock.acquire().await.unwrap();
    held.extend(MAX_TTL).await.unwrap();
    scene.time.advance(MAX_TTL / 2).await;
    assert!(held.is_held());
    held.release().await.unwrap();
    assert!(scene.is_free("k").await);
    assert!(a.shutdown(Duration::MAX).await);
}

#[tokio::test]
async fn f65_what_is_accepted_is_stored_as_asked() {
    let scene = Scene::new();
    let a = scene.client();
    let units: [fn(u64) -> Duration; 4] = [
        Duration::from_secs,
        Duration::from_millis,
        Duration::from_micros,
        Duration::from_nanos,
    ];
    let mut asked: Vec<Duration> = huge();
    for unit in units {
        for most in [u64::MAX, i64::MAX as u64, u64::from(u32::MAX), i32::MAX as u64] {
            for per in [1, 1000, 1_000_000, 1_000_000_000] {
                asked.extend([unit(most / per), unit((most / per).saturating_add(1))]);
            }
        }
        asked.extend([50, 53, 62].map(|bits| unit(1 << bits)));
    }
    asked.sort();
    let mut accepted = Vec::new();
    for (n, ttl) in asked.iter().enumerate() {
        match a.mutex(format!("k{n}")).ttl(*ttl).acquire().await {
            Ok(held) => {
                let found = a.inspect(held.key()).await.unwrap();
                assert_eq!(found.holders[0].expires_in, Some(*ttl));
                assert!(held.valid_for() <= *ttl && held.valid_for() >= *ttl * 9 / 10);
                accepted.push(n);
                held.release().await.unwrap();
            }
            Err(e) => assert_eq!(e.kind(), ErrorKind::InvalidConfig, "{ttl:?}: {e}"),
        }
    }
    // Monotone: one range, without holes.
    assert!(accepted.len() > 10, "vacuous");
    assert!(accepted.windows(2).all(|pair| pair[1] == pair[0] + 1));
    assert!(accepted.iter().all(|n| asked[*n] <= MAX_TTL));
}
