//! Bad settings are refused before anything happens.

use std::time::Duration;

use distlock_core::clock::Clock;
use distlock_core::{Client, ErrorKind};

use crate::{MS, client, manual};

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
async fn an_exact_name_is_the_same_lock_as_the_prefixed_key() {
    let (time, memory, prefixed) = manual();
    let exact = Client::builder()
        .clock(Clock::Manual(time))
        .namespace("")
        .memory(&memory)
        .unwrap();
    let guard = prefixed.mutex("a:b").try_acquire().await.unwrap().unwrap();
    assert!(exact.mutex("distlock:a:b").try_acquire().await.unwrap().is_none());
    assert!(exact.mutex("a:b").try_acquire().await.unwrap().is_some());
    guard.release().await.unwrap();
    assert!(exact.mutex("distlock:a:b").try_acquire().await.unwrap().is_some());
}
