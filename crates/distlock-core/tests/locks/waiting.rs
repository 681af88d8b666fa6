//! Waiting and sharing.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use distlock_core::clock::Clock;
use distlock_core::driver::Order;
use distlock_core::{Client, ErrorKind, Wait};

use crate::{MS, client, manual};

#[tokio::test]
async fn a_wait_ends_in_time_and_names_the_holder() {
    let (time, memory, _) = manual();
    let a = Client::builder()
        .label("api-7")
        .clock(Clock::Manual(time.clone()))
        .memory(&memory)
        .unwrap();
    let b = client(&time, &memory);
    let _held = a.mutex("k").reason("closing").acquire().await.unwrap();
    let waiter = tokio::spawn(async move { b.mutex("k").wait(MS(200)).acquire().await });
    time.advance(MS(200)).await;
    let e = waiter.await.unwrap().unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Timeout);
    assert!(
        e.to_string().contains("api-7") && e.to_string().contains("closing"),
        "{e}"
    );
    let e = a.mutex("k").wait(Wait::Try).acquire().await.unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Busy);
    assert!(e.to_string().contains("held by this process"), "{e}");
}

#[tokio::test]
async fn a_semaphore_admits_its_number_and_readers_share() {
    let (_time, _memory, a) = manual();
    let one = a.semaphore("s", 2).acquire().await.unwrap();
    let _two = a.semaphore("s", 2).acquire().await.unwrap();
    assert!(a.semaphore("s", 2).try_acquire().await.unwrap().is_none());
    one.release().await.unwrap();
    assert!(a.semaphore("s", 2).try_acquire().await.unwrap().is_some());
    let r1 = a.rw("r").read().acquire().await.unwrap();
    let r2 = a.rw("r").read().acquire().await.unwrap();
    assert_eq!((r1.token(), r2.token()), (None, None));
    assert!(a.rw("r").write().try_acquire().await.unwrap().is_none());
    drop((r1, r2));
    assert!(a.rw("r").write().acquire().await.unwrap().token().is_some());
}

#[tokio::test]
async fn ten_thousand_local_waiters_are_one_contender_on_the_engine() {
    let (time, _memory, a) = manual();
    let held = a.mutex("k").acquire().await.unwrap();
    let done = Arc::new(AtomicU32::new(0));
    for _ in 0..10_000 {
        let (a, done) = (a.clone(), done.clone());
        tokio::spawn(async move {
            let guard = a.mutex("k").acquire().await.unwrap();
            done.fetch_add(1, Ordering::SeqCst);
            guard.release().await.unwrap();
        });
    }
    time.settle().await;
    let info = a.inspect("k").await.unwrap();
    assert!(
        info.waiters.len() <= 1,
        "{} waiters at the engine",
        info.waiters.len()
    );
    held.release().await.unwrap();
    while done.load(Ordering::SeqCst) < 10_000 {
        time.settle().await;
    }
    time.settle().await;
    assert!(a.inspect("k").await.unwrap().holders.is_empty());
}

#[tokio::test]
async fn fifo_serves_in_order_across_clients() {
    let (time, memory, a) = manual();
    let held = a.mutex("k").order(Order::Fifo).acquire().await.unwrap();
    let order = Arc::new(std::sync::Mutex::new(Vec::new()));
    for i in 0..20 {
        let (c, order) = (client(&time, &memory), order.clone());
        tokio::spawn(async move {
            let guard = c.mutex("k").order(Order::Fifo).acquire().await.unwrap();
            order.lock().unwrap().push(i);
            guard.release().await.unwrap();
        });
        time.settle().await;
    }
    held.release().await.unwrap();
    time.advance(MS(100)).await;
    assert_eq!(*order.lock().unwrap(), (0..20).collect::<Vec<_>>());
}
