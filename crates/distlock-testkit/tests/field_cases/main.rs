//! Field cases that take several processes, on the file engine: holders that overrun, die, exit, come back.

#![allow(clippy::unwrap_used)]

mod idle;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use distlock_core::driver::Mode;
use distlock_testkit::check::{self, Bounds};
use distlock_testkit::history::{History, Recorder, What};
use distlock_testkit::store::Store;
use distlock_testkit::worker::{Answer, Ask, Do, Fleet, Worker};
use tempfile::TempDir;

/// A directory of locks, stores, and processes that use them.
struct Scene {
    fleet: Fleet,
    _store: Store,
    dir: TempDir,
}

impl Scene {
    fn new() -> Self {
        let dir = TempDir::with_prefix("distlock-field-").unwrap();
        let recorder = Arc::new(Recorder::open(&dir.path().join("harness.jsonl"), 0).unwrap());
        let store = Store::start(&dir.path().join("store.sock"), recorder.clone()).unwrap();
        let fleet = Fleet::new(
            Path::new(env!("CARGO_BIN_EXE_distlock-worker")).to_owned(),
            format!("file://{}", dir.path().join("locks").display()),
            dir.path().to_owned(),
            store.path().to_owned(),
            recorder,
        );
        Self {
            fleet,
            _store: store,
            dir,
        }
    }

    fn worker(&self) -> Worker {
        self.fleet.start().unwrap()
    }

    /// Whatever a case is about, the standing checks hold.
    fn history(&self) -> History {
        let history = History::read(self.dir.path()).unwrap();
        let second = Duration::from_secs(1);
        let bounds = Bounds {
            takeover: second,
            death_at_once: true,
            dead_waiter: Duration::ZERO,
            handoff: second,
            told: second,
        };
        let found = check::all(&history, &bounds);
        assert!(found.is_empty(), "{found:#?}");
        history
    }
}

fn ask(ttl_ms: u64) -> Ask {
    Ask {
        key: "k".into(),
        mode: Mode::Mutex,
        fifo: false,
        ttl_ms,
        wait_ms: None,
        renew: true,
    }
}

async fn acquire(worker: &Worker, ask: Ask) -> Answer {
    worker.ask(Do::Acquire(ask)).await.unwrap()
}

#[track_caller]
fn granted(answer: Answer) -> (u64, u64) {
    match answer {
        Answer::Granted { hold, token } => (hold, token.unwrap()),
        other => panic!("not granted: {other:?}"),
    }
}

#[track_caller]
fn kind(answer: Answer) -> String {
    match answer {
        Answer::Failed { kind, .. } => kind,
        other => panic!("not refused: {other:?}"),
    }
}

async fn release(worker: &Worker, hold: u64) -> Answer {
    worker.ask(Do::Release { hold }).await.unwrap()
}

#[tokio::test]
async fn f05_after_a_takeover_everything_is_the_new_owners() {
    let scene = Scene::new();
    let (a, b, c) = (scene.worker(), scene.worker(), scene.worker());
    let (_, first) = granted(
        acquire(
            &a,
            Ask {
                renew: false,
                ..ask(1000)
            },
        )
        .await,
    );
    a.kill9().unwrap();
    let (hold, second) = granted(acquire(&b, ask(300)).await);
    assert!(second > first);
    // Longer than its lease: the renewals are its own.
    assert_eq!(
        kind(
            acquire(
                &c,
                Ask {
                    wait_ms: Some(700),
                    ..ask(300)
                }
            )
            .await
        ),
        "timeout"
    );
    assert_eq!(b.ask(Do::Held { hold }).await.unwrap(), Answer::Yes);
    assert_eq!(release(&b, hold).await, Answer::Yes);
    granted(
        acquire(
            &c,
            Ask {
                wait_ms: Some(0),
                ..ask(300)
            },
        )
        .await,
    );
    scene.history();
}

#[tokio::test]
async fn f10_f11_a_late_release_leaves_the_next_holder_alone() {
    let scene = Scene::new();
    let (a, b, c) = (scene.worker(), scene.worker(), scene.worker());
    let (late, _) = granted(
        acquire(
            &a,
            Ask {
                renew: false,
                ..ask(200)
            },
        )
        .await,
    );
    let (hold, _) = granted(acquire(&b, ask(30_000)).await);
    assert_eq!(
        a.ask(Do::Write { hold: late }).await.unwrap(),
        Answer::Yes,
        "nobody has written since"
    );
    assert_eq!(b.ask(Do::Write { hold }).await.unwrap(), Answer::Yes);
    assert_eq!(
        a.ask(Do::Write { hold: late }).await.unwrap(),
        Answer::No,
        "the stale token is refused"
    );
    assert_eq!(kind(a.ask(Do::Lost { hold: late }).await.unwrap()), "expired");
    assert_eq!(release(&a, late).await, Answer::No, "an answer, not an error");
    assert_eq!(b.ask(Do::Held { hold }).await.unwrap(), Answer::Yes);
    assert_eq!(
        kind(
            acquire(
                &c,
                Ask {
                    wait_ms: Some(0),
                    ..ask(300)
                }
            )
            .await
        ),
        "busy"
    );
    assert_eq!(
        kind(
            acquire(
                &c,
                Ask {
                    wait_ms: Some(500),
                    ..ask(300)
                }
            )
            .await
        ),
        "timeout"
    );
    assert_eq!(release(&b, hold).await, Answer::Yes);
    // Overrun with nobody else around: the same answer.
    let (alone, _) = granted(
        acquire(
            &c,
            Ask {
                renew: false,
                ..ask(100)
            },
        )
        .await,
    );
    assert_eq!(kind(c.ask(Do::Lost { hold: alone }).await.unwrap()), "expired");
    assert_eq!(release(&c, alone).await, Answer::No);
    scene.history();
}

#[tokio::test]
async fn f19_exit_and_abort_free_the_lock_at_once() {
    for abort in [false, true] {
        let scene = Scene::new();
        let (a, b) = (scene.worker(), scene.worker());
        let (_, first) = granted(acquire(&a, ask(60_000)).await);
        a.exit(abort).await.unwrap();
        let (_, second) = granted(
            acquire(
                &b,
                Ask {
                    wait_ms: Some(10_000),
                    ..ask(300)
                },
            )
            .await,
        );
        assert!(second > first);
        scene.history();
    }
}

#[tokio::test]
async fn f31_a_waiter_without_a_limit_outlasts_many_leases() {
    let scene = Scene::new();
    let (a, b, c) = (scene.worker(), scene.worker(), scene.worker());
    let (hold, _) = granted(acquire(&a, ask(150)).await);
    let waiting = acquire(&b, ask(150));
    let limited = async {
        let start = Instant::now();
        let refused = kind(
            acquire(
                &c,
                Ask {
                    wait_ms: Some(1500),
                    ..ask(150)
                },
            )
            .await,
        );
        (refused, start.elapsed(), release(&a, hold).await)
    };
    let (granted_at_last, (refused, waited, released)) = tokio::join!(waiting, limited);
    granted(granted_at_last);
    assert_eq!((refused.as_str(), released), ("timeout", Answer::Yes));
    assert!(waited >= Duration::from_millis(1500), "{waited:?}");
    scene.history();
}

#[tokio::test]
async fn f41_a_restarted_process_is_a_stranger() {
    let scene = Scene::new();
    let (a, b) = (scene.worker(), scene.worker());
    granted(acquire(&a, ask(10_000)).await);
    // The same program, host, user and environment.
    assert_eq!(
        kind(
            acquire(
                &b,
                Ask {
                    wait_ms: Some(0),
                    ..ask(300)
                }
            )
            .await
        ),
        "busy"
    );
    a.stop().unwrap();
    let again = scene.worker();
    assert_eq!(
        kind(
            acquire(
                &again,
                Ask {
                    wait_ms: Some(0),
                    ..ask(300)
                }
            )
            .await
        ),
        "busy"
    );
    a.resume().unwrap();
    a.kill9().unwrap();
    let (hold, _) = granted(
        acquire(
            &again,
            Ask {
                wait_ms: Some(10_000),
                ..ask(30_000)
            },
        )
        .await,
    );
    assert_eq!(release(&again, hold).await, Answer::Yes);
    let history = scene.history();
    let last = history.holds().into_iter().next_back().unwrap();
    assert!(
        last.until() - last.granted.unwrap() > 25_000_000_000,
        "a lease of its own, not what was left"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f46_five_hundred_waiters_all_get_their_turn() {
    for fifo in [true, false] {
        let scene = Scene::new();
        let workers: Vec<Arc<Worker>> = (0..5).map(|_| Arc::new(scene.worker())).collect();
        let (first, _) = granted(acquire(&workers[0], ask(5000)).await);
        let waiting: Vec<_> = (0..500)
            .map(|n| {
                let worker = workers[n % 5].clone();
                // One in ten gives up early.
                let wait_ms = (n % 10 == 3).then_some(1 + n as u64 / 10);
                tokio::spawn(async move {
                    match acquire(
                        &worker,
                        Ask {
                            fifo,
                            wait_ms,
                            ..ask(5000)
                        },
                    )
                    .await
                    {
                        Answer::Granted { hold, .. } => (true, release(&worker, hold).await),
                        refused => (wait_ms.is_none(), refused),
                    }
                })
            })
            .collect();
        let asked = async || {
            let history = History::read(scene.dir.path()).unwrap();
            let asked = history
                .events()
                .iter()
                .filter(|e| matches!(e.what, What::Asked { .. }))
                .count();
            (asked == 501).then_some(())
        };
        distlock_testkit::servers::eventually(Duration::from_secs(60), asked)
            .await
            .expect("all wait");
        assert_eq!(release(&workers[0], first).await, Answer::Yes);
        for waiter in waiting {
            let (must, outcome) = waiter.await.unwrap();
            assert!(!must || outcome == Answer::Yes, "{outcome:?}");
        }
        scene.history();
        granted(
            acquire(
                &workers[1],
                Ask {
                    wait_ms: Some(0),
                    ..ask(300)
                },
            )
            .await,
        );
    }
}

#[tokio::test]
async fn f69_a_long_wait_does_not_eat_the_lease() {
    let scene = Scene::new();
    let (a, b) = (scene.worker(), scene.worker());
    let (hold, _) = granted(acquire(&a, ask(300)).await);
    let waiting = acquire(
        &b,
        Ask {
            renew: false,
            ..ask(1000)
        },
    );
    // B has waited for longer than its own lease when A releases.
    let releasing = async {
        assert_eq!(
            kind(
                acquire(
                    &a,
                    Ask {
                        wait_ms: Some(1500),
                        ..ask(300)
                    }
                )
                .await
            ),
            "timeout"
        );
        release(&a, hold).await
    };
    let (late, released) = tokio::join!(waiting, releasing);
    assert_eq!(released, Answer::Yes);
    let (hold, _) = granted(late);
    assert_eq!(release(&b, hold).await, Answer::Yes);
    let holds = scene.history().holds();
    let late = holds.iter().find(|h| h.id.process == b.process()).unwrap();
    let (granted, asked) = (late.granted.unwrap(), late.asked);
    assert!(granted - asked > 1_000_000_000, "it waited longer than its lease");
    assert!(
        late.until() - granted > 800_000_000,
        "and had nearly all of it: {}",
        late.until() - granted
    );
}

#[tokio::test]
async fn f90_a_client_that_is_shut_down_releases_at_once() {
    let scene = Scene::new();
    let (a, b) = (scene.worker(), scene.worker());
    granted(acquire(&a, ask(60_000)).await);
    let waiting = acquire(
        &b,
        Ask {
            wait_ms: Some(20_000),
            ..ask(300)
        },
    );
    let (answer, quit) = tokio::join!(waiting, a.quit());
    quit.unwrap();
    granted(answer);
}
