//! Cases that are about threads and runtimes: on the host's clock.

use std::cell::RefCell;
use std::future::Future;
use std::sync::mpsc;
use std::task::Poll;
use std::time::{Duration, Instant};

use distlock_core::memory::Memory;
use distlock_core::{Client, Guard, Release, Wait};
use tokio::runtime::{Builder, Runtime};

use crate::{MS, SECS};

fn client(memory: &Memory) -> Client {
    Client::builder().memory(memory).unwrap()
}

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

/// How long a stranger waited for the lock.
fn waited(memory: &Memory) -> Duration {
    let start = Instant::now();
    let guard = client(memory).blocking().mutex("k").wait(SECS(20)).acquire();
    guard.unwrap().release().unwrap();
    start.elapsed()
}

#[test]
fn f15_ownership_follows_the_guard_not_the_thread() {
    let memory = Memory::new();
    let a = client(&memory);
    // Acquired in a task of one runtime; renewed and released in a task of another, on another thread.
    let guard = runtime().block_on(a.mutex("k").acquire()).unwrap();
    let elsewhere = std::thread::spawn(move || {
        runtime().block_on(async {
            guard.verify().await.unwrap();
            guard.extend(SECS(60)).await.unwrap();
            assert!(guard.valid_for() > SECS(50));
            guard.release().await.unwrap()
        })
    });
    assert_eq!(elsewhere.join().unwrap(), Release::Clean);
    // By code that blocks.
    let guard = a.blocking().mutex("k").acquire().unwrap();
    let elsewhere = std::thread::spawn(move || {
        guard.verify().unwrap();
        guard.release().unwrap()
    });
    assert_eq!(elsewhere.join().unwrap(), Release::Clean);
    // By another client altogether, which has nothing but the lease.
    let guard = a.blocking().mutex("k").detachable().acquire().unwrap();
    let lease = guard.detach().unwrap().to_string();
    let resumed = client(&memory)
        .blocking()
        .resume(&lease.parse().unwrap())
        .unwrap();
    assert_eq!(resumed.release().unwrap(), Release::Clean);
    assert!(waited(&memory) < SECS(5));
}

thread_local! {
    static KEPT: RefCell<Option<Guard>> = const { RefCell::new(None) };
}

#[test]
fn f18_a_guard_may_be_dropped_anywhere() {
    // A TTL of 60 s, so that only a release can have freed the lock.
    let take = |a: &Client| runtime().block_on(a.mutex("k").ttl(SECS(60)).acquire()).unwrap();
    let freed = |memory: &Memory| assert!(waited(memory) < SECS(10));
    let memory = Memory::new();
    let a = client(&memory);

    // After its runtime was shut down, and on a plain thread.
    let ended = runtime();
    let guard = ended.block_on(a.mutex("k").ttl(SECS(60)).acquire()).unwrap();
    ended.shutdown_background();
    drop(guard);
    freed(&memory);
    let guard = take(&a);
    std::thread::spawn(move || drop(guard)).join().unwrap();
    freed(&memory);

    // Inside a task of a current-thread runtime, which may not block.
    runtime().block_on(async { drop(a.mutex("k").ttl(SECS(60)).acquire().await.unwrap()) });
    freed(&memory);

    // In the destructor of a thread-local.
    let guard = take(&a);
    let kept = std::thread::spawn(move || KEPT.with(|kept| *kept.borrow_mut() = Some(guard)));
    kept.join().unwrap();
    freed(&memory);

    // During a panic.
    let guard = take(&a);
    let panicked = std::thread::spawn(move || {
        let _guard = guard;
        panic!("with a guard");
    });
    assert!(panicked.join().is_err());
    freed(&memory);

    // As the last that is left of its client: outside of a runtime, and inside of one.
    let guard = take(&client(&memory));
    drop(guard);
    freed(&memory);
    let last = client(&memory);
    runtime().block_on(async move {
        let guard = last.mutex("k").ttl(SECS(60)).acquire().await.unwrap();
        drop(last);
        drop(guard);
    });
    freed(&memory);
}

#[test]
fn f22_a_blocked_executor_does_not_starve_the_renewal() {
    let memory = Memory::new();
    let (a, b) = (client(&memory), client(&memory).blocking());
    // B looks from its own thread while A's only executor thread stands still for several TTLs.
    let (go, started) = mpsc::channel();
    let (stop, stopped) = mpsc::channel::<()>();
    let watcher = std::thread::spawn(move || {
        started.recv().unwrap();
        let mut looks = 0u32;
        let end = Instant::now() + SECS(3);
        while Instant::now() < end {
            assert!(b.mutex("k").try_acquire().unwrap().is_none(), "look {looks}");
            looks += 1;
            std::thread::park_timeout(MS(20));
        }
        stop.send(()).unwrap();
        looks
    });
    runtime().block_on(async {
        let guard = a.mutex("k").ttl(SECS(1)).acquire().await.unwrap();
        go.send(()).unwrap();
        // Blocks the executor.
        stopped.recv().unwrap();
        assert!(guard.is_held());
        assert_eq!(guard.release().await.unwrap(), Release::Clean);
    });
    assert!(watcher.join().unwrap() > 10, "vacuous");
}

/// Polls a future to its end, each time on a new thread: a task that moves at every await.
fn on_many_threads<T: Send>(future: impl Future<Output = T> + Send) -> (T, u32) {
    let mut future = std::pin::pin!(future);
    for threads in 1.. {
        let polled = std::thread::scope(|scope| {
            let here = future.as_mut();
            let poll = move || runtime().block_on(async { futures_util::poll!(here) });
            scope.spawn(poll).join().unwrap()
        });
        if let Poll::Ready(out) = polled {
            return (out, threads);
        }
    }
    unreachable!()
}

#[test]
fn f42_the_owner_re_enters_on_whatever_thread_it_is() {
    let memory = Memory::new();
    let a = client(&memory);
    let (_, threads) = on_many_threads(a.mutex("k").run(async |outer| {
        for _ in 0..20 {
            tokio::task::yield_now().await;
            let inner = a.mutex("k").wait(Wait::Try);
            let token = inner.run(async |held| Ok::<_, ()>(held.token())).await;
            assert_eq!(token.unwrap(), outer.token());
        }
        Ok::<_, ()>(())
    }));
    assert!(threads > 20, "vacuous: {threads} threads");
    assert!(waited(&memory) < SECS(5));
}
