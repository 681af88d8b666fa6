//! Every call under every fault, dropped at every poll: nothing is left behind.

use distlock_testkit::gates::{FAULTS, Op, Sort, prove};

async fn proven(op: Op) {
    let limit = std::time::Duration::from_secs(120);
    let tally = tokio::time::timeout(limit, prove(op))
        .await
        .expect("a cell hangs")
        .expect("nothing is left");
    let least = (Sort::ALL.len() * FAULTS.len()) as u32;
    assert!(tally.cells >= least, "vacuous: {tally:?}");
    assert!(
        tally.dropped >= least && tally.struck >= least / 2,
        "vacuous: {tally:?}"
    );
    assert!(tally.ended >= least / 2, "vacuous: {tally:?}");
}

#[tokio::test]
async fn acquiring_a_free_lock() {
    proven(Op::Acquire).await;
}

#[tokio::test]
async fn acquiring_a_held_lock() {
    proven(Op::AcquireHeld).await;
}

#[tokio::test]
async fn trying_a_free_lock() {
    proven(Op::TryAcquire).await;
}

#[tokio::test]
async fn trying_a_held_lock() {
    proven(Op::TryHeld).await;
}

#[tokio::test]
async fn releasing() {
    proven(Op::Release).await;
}

#[tokio::test]
async fn dropping_a_guard() {
    proven(Op::DropGuard).await;
}

#[tokio::test]
async fn extending() {
    proven(Op::Extend).await;
}

#[tokio::test]
async fn verifying() {
    proven(Op::Verify).await;
}

#[tokio::test]
async fn running_a_body() {
    proven(Op::Run).await;
}
