//! How a hold is kept, and how it ends.

use std::time::Duration;

use distlock_core::driver::LostReason;
use distlock_core::{Client, ErrorKind, Release, Renew};

use crate::{MS, client, key, manual};

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
