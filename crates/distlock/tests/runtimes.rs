//! Locks do not depend on the caller's runtime: which one it is, whether it is blocked, gone, or was never there.
//! Each case runs on the memory and on the file engine.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::time::{Duration, Instant};

use distlock::driver::Order;
use distlock::memory::Memory;
use distlock::{Client, Guard, Locks};
use tokio::runtime::{Builder, Runtime};

const MS: fn(u64) -> Duration = Duration::from_millis;
const TTL: Duration = Duration::from_millis(300);

/// An engine that several clients can be made for.
enum Engine {
    Memory(Memory),
    File(tempfile::TempDir),
}

impl Engine {
    fn both() -> [Engine; 2] {
        [
            Engine::Memory(Memory::new()),
            Engine::File(tempfile::tempdir().unwrap()),
        ]
    }

    fn client(&self) -> Locks {
        match self {
            Engine::Memory(memory) => Client::builder().memory(memory).unwrap().into(),
            Engine::File(dir) => {
                let config = distlock_file::Config::new(dir.path());
                Client::builder()
                    .build_now(|engine| distlock_file::open(engine, config))
                    .unwrap()
                    .into()
            }
        }
    }
}

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

/// Counts the panics of this thread from now on, caught ones too.
fn panics_of_this_thread() -> Arc<AtomicUsize> {
    let (count, thread) = (Arc::new(AtomicUsize::new(0)), std::thread::current().id());
    let (counted, others) = (count.clone(), std::panic::take_hook());
    std::panic::set_hook(Box::new(move |panic| {
        if std::thread::current().id() == thread {
            counted.fetch_add(1, Ordering::Relaxed);
        }
        others(panic);
    }));
    count
}

/// Polls until it holds; the time limit is only there to end a test that fails.
fn eventually(what: &str, holds: impl Fn() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(
            start.elapsed() < Duration::from_secs(20),
            "{what}: not within 20 s"
        );
        std::thread::sleep(MS(2));
    }
}

/// Whether somebody else can have the lock.
fn is_free(locks: &Locks, key: &str) -> bool {
    locks.blocking().mutex(key).try_acquire().unwrap().is_some()
}

/// Whether nobody holds or waits.
fn nothing_left(locks: &Locks, key: &str) {
    eventually("nothing is left", || {
        let info = locks.blocking().inspect(key).unwrap();
        info.holders.is_empty() && info.waiters.is_empty()
    });
}

#[test]
fn a_blocked_runtime_keeps_its_lock() {
    for engine in Engine::both() {
        let (a, b) = (engine.client(), engine.client());
        runtime().block_on(async {
            let held = a.mutex("k").ttl(TTL).acquire().await.unwrap();
            // No await: this executor runs nothing else meanwhile.
            let start = Instant::now();
            while start.elapsed() < 5 * TTL {
                std::thread::sleep(MS(20));
                assert!(held.is_held());
            }
            assert!(b.mutex("k").try_acquire().await.unwrap().is_none());
        });
    }
}

#[test]
fn a_guard_may_be_dropped_anywhere() {
    for engine in Engine::both() {
        let (a, b) = (engine.client(), engine.client());
        let take = || -> Guard { runtime().block_on(a.mutex("k").acquire()).unwrap() };
        // After its runtime's end, with no runtime.
        drop(take());
        eventually("free after a drop without a runtime", || is_free(&b, "k"));
        // In another runtime.
        let held = take();
        runtime().block_on(async move { drop(held) });
        eventually("free after a drop in another runtime", || is_free(&b, "k"));
        // Released on another thread and runtime.
        let held = take();
        std::thread::spawn(move || runtime().block_on(held.release()).unwrap())
            .join()
            .unwrap();
        assert!(is_free(&b, "k"));
    }
}

#[test]
fn a_runtime_shut_down_under_its_waiters_leaves_nothing() {
    for engine in Engine::both() {
        let (a, b) = (engine.client(), engine.client());
        let blocker = b.blocking().mutex("k").acquire().unwrap();
        let rt = Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        let started = Arc::new(AtomicUsize::new(0));
        for i in 0..20 {
            let (a, started) = (a.clone(), started.clone());
            let order = if i % 2 == 0 { Order::Any } else { Order::Fifo };
            rt.spawn(async move {
                started.fetch_add(1, Ordering::SeqCst);
                let _held = a.mutex("k").order(order).acquire().await;
            });
        }
        eventually("all wait", || started.load(Ordering::SeqCst) == 20);
        rt.shutdown_timeout(Duration::from_secs(5));
        drop(blocker);
        nothing_left(&b, "k");
    }
}

#[test]
fn acquires_dropped_at_random_moments_leave_nothing() {
    for engine in Engine::both() {
        let (a, b) = (engine.client(), engine.client());
        let rt = Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        rt.block_on(async {
            for round in 0..10_000u32 {
                let client = if round % 2 == 0 { &a } else { &b };
                let lock = client.mutex("k").ttl(Duration::from_secs(5));
                // Nanoseconds to some microseconds: before, between and after the polls of an acquire.
                let limit = Duration::from_nanos(u64::from(scatter(round)) % 30_000);
                let mut acquire = std::pin::pin!(lock.acquire());
                let start = Instant::now();
                let held = std::future::poll_fn(|cx| match acquire.as_mut().poll(cx) {
                    Poll::Pending if start.elapsed() < limit => {
                        cx.waker().wake_by_ref();
                        Poll::Pending
                    }
                    other => Poll::Ready(other),
                });
                // Dropped here, held or not.
                let _ = held.await;
            }
        });
        nothing_left(&a, "k");
        assert!(is_free(&b, "k"));
    }
}

/// A small hash, so that a failing round can be found again.
fn scatter(n: u32) -> u32 {
    let x = n.wrapping_mul(0x9E37_79B9);
    (x ^ (x >> 15)).wrapping_mul(0x85EB_CA6B) >> 8
}

#[test]
fn no_runtime_is_needed() {
    for engine in Engine::both() {
        let (a, b) = (engine.client(), engine.client());
        let blocking = a.blocking();
        let held = blocking.mutex("k").acquire().unwrap();
        assert!(!is_free(&b, "k"));
        held.verify().unwrap();
        held.release().unwrap();
        let out = blocking.mutex("k").run(|held| {
            // Nested: re-enters.
            let token = blocking
                .mutex("k")
                .run(|inner| Ok::<_, ()>(inner.token()))
                .unwrap();
            assert_eq!(token, held.token());
            Ok::<_, ()>(7)
        });
        assert_eq!(out.unwrap(), 7);
        assert!(is_free(&b, "k"));
        // An executor that is not tokio's.
        let held = park_on(a.mutex("k").acquire()).unwrap();
        assert!(held.is_held());
        park_on(held.release()).unwrap();
        assert!(is_free(&b, "k"));
    }
}

/// The smallest executor there is.
fn park_on<F: Future>(future: F) -> F::Output {
    struct Unpark(std::thread::Thread);
    impl std::task::Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Arc::new(Unpark(std::thread::current())).into();
    let mut cx = std::task::Context::from_waker(&waker);
    let mut future = std::pin::pin!(future);
    loop {
        match future.as_mut().poll(&mut cx) {
            Poll::Ready(out) => return out,
            Poll::Pending => std::thread::park(),
        }
    }
}

#[test]
fn a_blocking_call_inside_async_code_is_refused_and_on_a_blocking_thread_it_works() {
    let engine = Engine::Memory(Memory::new());
    let a = engine.client();
    let rt = runtime();
    // Refused quietly: not by a panic that the panic hook tells of.
    let panics = panics_of_this_thread();
    let refused = || {
        let e = a.blocking().mutex("k").acquire().unwrap_err();
        assert_eq!(e.kind(), distlock::ErrorKind::Unsupported);
        assert!(e.to_string().contains("spawn_blocking"), "{e}");
    };
    rt.block_on(async { refused() });
    rt.block_on(async { tokio::task::LocalSet::new().run_until(async { refused() }).await });
    assert_eq!(panics.load(Ordering::Relaxed), 0);
    rt.block_on(tokio::task::unconstrained(async { refused() }));
    // The task goes on with the budget that it had.
    rt.block_on(async {
        refused();
        let mut polls = 0;
        while tokio::task::coop::has_budget_remaining() && polls < 1000 {
            tokio::task::coop::consume_budget().await;
            polls += 1;
        }
        assert!((100..1000).contains(&polls), "{polls}");
    });
    let b = a.clone();
    let blocking = async {
        tokio::task::spawn_blocking(move || b.blocking().mutex("k").acquire())
            .await
            .unwrap()
    };
    drop(rt.block_on(blocking).unwrap());
}

/// `run` and its body are `Send` when the body is, also with borrowed locals; on one thread they need not be.
#[test]
fn the_future_of_run_is_as_send_as_its_body() {
    let engine = Engine::Memory(Memory::new());
    let a = engine.client();
    let rt = Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    let locks = a.clone();
    let spawned = rt.spawn(async move {
        let local = String::from("borrowed");
        let text = &local;
        locks
            .mutex("k")
            .run(async |held| Ok::<_, ()>((text.len(), held.token().is_some())))
            .await
    });
    assert_eq!(rt.block_on(spawned).unwrap().unwrap(), (8, true));
    runtime().block_on(async {
        let not_send = std::rc::Rc::new(5);
        let out = a.mutex("k").run(async |_| Ok::<_, ()>(*not_send)).await;
        assert_eq!(out.unwrap(), 5);
    });
}
