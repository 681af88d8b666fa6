//! The gate in memory.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use distlock_fence::{FenceError, FenceGate, FencingToken, MemoryGate};

fn t(n: u64) -> FencingToken {
    FencingToken::new(n)
}

#[tokio::test]
async fn a_stale_token_is_refused_and_the_present_one_may_write_often() {
    let gate = MemoryGate::new();
    for token in [5, 5, 7, 7] {
        assert_eq!(gate.pass("r", t(token), || token).await.unwrap(), token);
    }
    match gate.pass("r", t(6), || panic!("a stale write ran")).await {
        Err(FenceError::Stale {
            resource,
            token,
            newest,
        }) => {
            assert_eq!((resource.as_str(), token, newest), ("r", t(6), t(7)));
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(
        gate.pass("other", t(1), || 1).await.unwrap(),
        1,
        "resources are apart"
    );
}

#[tokio::test]
async fn a_larger_token_waits_for_the_write_in_progress() {
    let gate = MemoryGate::new();
    let slow = gate.enter("r", t(1)).await.unwrap();
    let next = gate.enter("r", t(2));
    let mut next = std::pin::pin!(next);
    assert!(
        tokio::time::timeout(Duration::from_millis(50), &mut next)
            .await
            .is_err()
    );
    drop(slow);
    assert_eq!(next.await.unwrap().token(), Some(t(2)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn under_contention_admitted_tokens_never_step_back() {
    let gate = MemoryGate::new();
    let last = std::sync::Arc::new(AtomicU64::new(0));
    let tasks: Vec<_> = (0..8u64)
        .map(|task| {
            let (gate, last) = (gate.clone(), last.clone());
            tokio::spawn(async move {
                let mut admitted = 0;
                for i in 1..=500u64 {
                    let token = i * 8 + task;
                    let write = || {
                        assert!(last.swap(token, Ordering::SeqCst) <= token, "stepped back");
                    };
                    admitted += u64::from(gate.pass("r", t(token), write).await.is_ok());
                    tokio::task::yield_now().await;
                }
                admitted
            })
        })
        .collect();
    let mut admitted = 0;
    for task in tasks {
        admitted += task.await.unwrap();
    }
    assert!(
        admitted >= 500,
        "only {admitted} of 4000 writes were admitted: the test shows nothing"
    );
}

#[tokio::test]
async fn what_a_store_kept_can_be_restored_and_forgotten() {
    let gate = MemoryGate::new();
    gate.raise("r", t(9)).await;
    gate.raise("r", t(3)).await;
    assert_eq!(gate.newest_token("r").await, Some(t(9)));
    assert!(gate.enter("r", t(8)).await.is_err());
    gate.forget("r");
    assert_eq!(gate.newest_token("r").await, None);
    assert!(gate.enter("r", t(8)).await.is_ok());
}

#[test]
fn the_blocking_form_keeps_the_same_rule() {
    let gate = MemoryGate::new();
    drop(gate.blocking_enter("r", t(2)).unwrap());
    assert!(gate.blocking_enter("r", t(1)).unwrap_err().is_stale());
}
