//! Requests and replies.

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use distlock::clock::Moment;
use distlock::driver::{Mode, Order};
use distlock::{Error, Guard, Lock, Release, Renew, Wait};
use distlock_testkit::history::{HoldId, HowReleased, What};
use distlock_testkit::store::StoreClient;
use distlock_testkit::worker::{Answer, Ask, Do, Reply, Request};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::sync::{mpsc, watch};

use super::Shared;
use super::load::Tasks;

/// Numbers the contenders of this process.
static HOLDS: AtomicU64 = AtomicU64::new(1);

pub(super) fn next_hold() -> u64 {
    HOLDS.fetch_add(1, Ordering::Relaxed)
}

type Guards = Arc<Mutex<HashMap<u64, Guard>>>;

/// Serves until the standard input ends.
pub(super) async fn serve(shared: &Arc<Shared>) -> io::Result<()> {
    let (replies, mut outgoing) = mpsc::unbounded_channel::<Reply>();
    let writer = tokio::spawn(async move {
        let mut stdout = tokio::io::stdout();
        while let Some(reply) = outgoing.recv().await {
            let mut line = serde_json::to_vec(&reply)?;
            line.push(b'\n');
            stdout.write_all(&line).await?;
            stdout.flush().await?;
        }
        io::Result::Ok(())
    });
    let (guards, tasks) = (Guards::default(), Arc::new(Tasks::default()));
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    while let Some(line) = lines.next_line().await? {
        let Request { id, task } = serde_json::from_str(&line)?;
        let (shared, guards, tasks) = (shared.clone(), guards.clone(), tasks.clone());
        let replies = replies.clone();
        tokio::spawn(async move {
            let answer = perform(&shared, &guards, &tasks, task).await;
            let answer = answer.unwrap_or_else(|e| failed("io", &e));
            let _ = replies.send(Reply { id, answer });
        });
    }
    tasks.rest().await;
    guards.lock().unwrap_or_else(PoisonError::into_inner).clear();
    drop(replies);
    // A writer whose reader is gone has nothing more to do.
    writer.abort();
    Ok(())
}

async fn perform(shared: &Arc<Shared>, guards: &Guards, tasks: &Tasks, task: Do) -> io::Result<Answer> {
    let take = |hold: u64| {
        guards
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&hold)
    };
    let view = |hold: u64| {
        let guards = guards.lock().unwrap_or_else(PoisonError::into_inner);
        guards.get(&hold).map(Guard::held)
    };
    let unknown = || Err(io::Error::other("no such hold"));
    match task {
        Do::Acquire(ask) => match acquire(shared, &ask, 0).await? {
            Ok((hold, guard)) => {
                let token = guard.token().map(|t| t.get());
                tokio::spawn(follow(shared.clone(), hold, guard.deadlines()));
                guards
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .insert(hold, guard);
                Ok(Answer::Granted { hold, token })
            }
            Err(e) => Ok(failed(e.kind().word(), &e)),
        },
        Do::Held { hold } => {
            let Some(view) = view(hold) else { return unknown() };
            shared.recorder.record(What::Looks { hold })?;
            let held = view.is_held();
            shared.recorder.record(What::Held { hold, held })?;
            Ok(if held { Answer::Yes } else { Answer::No })
        }
        Do::Lost { hold } => {
            let Some(view) = view(hold) else { return unknown() };
            let why = view.lost().await;
            shared.recorder.record(What::Lost {
                hold,
                why: why.word().into(),
            })?;
            Ok(failed(why.word(), &why))
        }
        Do::Write { hold } => {
            let Some(view) = view(hold) else { return unknown() };
            let by = HoldId {
                process: shared.process,
                hold,
            };
            let (key, token) = (view.key().as_str(), view.token().map(|t| t.get()));
            let mut store = StoreClient::connect(&shared.store).await?;
            let accepted = store.append(by, key, token, value(shared)).await?;
            Ok(if accepted { Answer::Yes } else { Answer::No })
        }
        Do::Release { hold } => match take(hold) {
            Some(guard) => Ok(match release(shared, hold, guard).await? {
                HowReleased::Freed => Answer::Yes,
                _ => Answer::No,
            }),
            None => unknown(),
        },
        Do::Drop { hold } => match take(hold) {
            Some(guard) => {
                shared.recorder.record(What::Releases { hold })?;
                drop(guard);
                Ok(Answer::Yes)
            }
            None => unknown(),
        },
        Do::Exit { abort: true } => std::process::abort(),
        Do::Exit { abort: false } => std::process::exit(3),
        Do::Load(load) => {
            tasks.start(shared, load);
            Ok(Answer::Yes)
        }
        Do::Rest => {
            tasks.rest().await;
            Ok(Answer::Yes)
        }
    }
}

fn failed(kind: &str, message: &dyn std::fmt::Display) -> Answer {
    Answer::Failed {
        kind: kind.into(),
        message: message.to_string(),
    }
}

/// A value that no other write of the run has.
pub(super) fn value(shared: &Shared) -> u64 {
    static VALUES: AtomicU64 = AtomicU64::new(1);
    u64::from(shared.process) << 40 | VALUES.fetch_add(1, Ordering::Relaxed)
}

fn lock(shared: &Shared, ask: &Ask) -> Lock {
    let lock = match ask.mode {
        Mode::Mutex => shared.locks.mutex(ask.key.as_str()),
        Mode::Read => shared.locks.rw(ask.key.as_str()).read(),
        Mode::Write => shared.locks.rw(ask.key.as_str()).write(),
        Mode::Slot { of } => shared.locks.semaphore(ask.key.as_str(), of),
    };
    let wait = match ask.wait_ms {
        None => Wait::Forever,
        Some(0) => Wait::Try,
        Some(ms) => Wait::For(Duration::from_millis(ms)),
    };
    lock.ttl(Duration::from_millis(ask.ttl_ms))
        .wait(wait)
        .order(if ask.fifo { Order::Fifo } else { Order::Any })
        .renew(if ask.renew { Renew::Auto } else { Renew::Never })
}

/// Acquires, and records it.
pub(super) async fn acquire(
    shared: &Shared,
    ask: &Ask,
    task: u32,
) -> io::Result<Result<(u64, Guard), Error>> {
    let hold = next_hold();
    shared.recorder.record(What::Asked {
        hold,
        task,
        key: ask.key.clone(),
        mode: ask.mode,
        fifo: ask.fifo,
        ttl: ask.ttl_ms * 1_000_000,
    })?;
    match lock(shared, ask).acquire().await {
        Ok(guard) => {
            let until = guard.deadlines().borrow().as_nanos();
            let token = guard.token().map(|t| t.get());
            shared.recorder.record(What::Granted { hold, token, until })?;
            Ok(Ok((hold, guard)))
        }
        Err(e) => {
            let why = e.kind().word();
            let maybe = why == "outcome_unknown";
            shared.recorder.record(What::Refused {
                hold,
                maybe,
                why: why.into(),
            })?;
            Ok(Err(e))
        }
    }
}

/// Records each renewal until the hold ends.
async fn follow(shared: Arc<Shared>, hold: u64, mut deadlines: watch::Receiver<Moment>) -> io::Result<()> {
    while deadlines.changed().await.is_ok() {
        let until = deadlines.borrow_and_update().as_nanos();
        shared.recorder.record(What::Valid { hold, until })?;
    }
    Ok(())
}

/// Releases, and records it.
pub(super) async fn release(shared: &Shared, hold: u64, guard: Guard) -> io::Result<HowReleased> {
    shared.recorder.record(What::Releases { hold })?;
    let how = match guard.release().await {
        Ok(Release::Clean) => HowReleased::Freed,
        Ok(Release::Lost(_)) => HowReleased::NotHeld,
        Ok(Release::Unsure) | Err(_) => HowReleased::Unsure,
    };
    shared.recorder.record(What::Released { hold, how })?;
    Ok(how)
}
