//! Requests that may come twice: by its idempotency key, a repeated one gets what the first one got.
//!
//! This is remembered by one gateway, in memory. At another one a repeated request is a new contender, under another
//! owner: what the first one may have been granted ends when its gateway sees that its caller is gone, at the latest
//! with its TTL. That costs time, never exclusion.

use std::collections::HashMap;
use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use axum::http::StatusCode;
use distlock_core::Waiting;
use tokio::sync::watch;
use tokio::task::AbortHandle;

use crate::api::types::Granted;
use crate::problem::Problem;

/// How long it is remembered that a request is over, at least.
const MEMORY: Duration = Duration::from_secs(120);
/// How many requests are remembered.
const MOST: usize = 200_000;

/// Namespace, caller, idempotency key.
pub(crate) type Name = (String, String, String);

type Answer = Result<Vec<Granted>, Problem>;

/// A request on its way.
#[derive(Debug)]
struct Running {
    request: u64,
    /// What it is told of the wait.
    told: watch::Receiver<Option<Waiting>>,
    answer: watch::Receiver<Option<Answer>>,
    task: AbortHandle,
    /// How many connections wait for the answer.
    listeners: AtomicUsize,
}

#[derive(Debug)]
enum Entry {
    Running(Arc<Running>),
    Granted {
        request: u64,
        leases: Vec<Granted>,
        until: Instant,
    },
    /// It was given up; whatever comes under its name is refused.
    Over {
        until: Instant,
    },
}

/// The requests that have a name.
#[derive(Debug, Default)]
pub(crate) struct Attempts(Mutex<HashMap<Name, Entry>>);

/// What a request finds under its name.
pub(crate) enum Joined {
    /// It is on its way, perhaps since now.
    Running(Listener),
    /// It was granted before.
    Granted(Vec<Granted>),
}

/// One connection that waits for an answer. When the last one goes, the request goes too.
#[derive(Debug)]
pub(crate) struct Listener {
    attempts: Arc<Attempts>,
    name: Name,
    running: Arc<Running>,
}

impl Listener {
    pub(crate) fn told(&self) -> watch::Receiver<Option<Waiting>> {
        self.running.told.clone()
    }

    pub(crate) async fn answer(self) -> Answer {
        answer_of(self.running.answer.clone()).await
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let mut all = self.attempts.lock();
        if self.running.listeners.fetch_sub(1, Ordering::AcqRel) > 1 {
            return;
        }
        let here = matches!(all.get(&self.name), Some(Entry::Running(r)) if Arc::ptr_eq(r, &self.running));
        if here {
            all.remove(&self.name);
            self.running.task.abort();
        }
    }
}

async fn answer_of(mut answer: watch::Receiver<Option<Answer>>) -> Answer {
    match answer.wait_for(Option::is_some).await {
        Ok(answer) => answer.clone().unwrap_or_else(|| Err(Problem::closing())),
        Err(_) => Err(given_up()),
    }
}

/// What is left to do when a request is given up.
#[expect(clippy::large_enum_variant, reason = "one at a time, taken apart at once")]
pub(crate) enum Left {
    /// Nothing.
    Nothing,
    /// It had been granted these.
    Granted(Vec<Granted>),
    /// It waits there.
    Waiting(Option<Waiting>),
}

fn given_up() -> Problem {
    Problem::new(
        StatusCode::GONE,
        "not_held",
        "The lease is over",
        "this request was given up, by a release with its idempotency key",
    )
}

impl Attempts {
    fn lock(&self) -> MutexGuard<'_, HashMap<Name, Entry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts the request of this name, or joins it.
    pub(crate) fn join<F>(
        self: &Arc<Self>,
        name: &Name,
        request: u64,
        start: impl FnOnce() -> Result<(watch::Receiver<Option<Waiting>>, F), Problem>,
    ) -> Result<Joined, Problem>
    where
        F: Future<Output = Answer> + Send + 'static,
    {
        let mut all = self.lock();
        match all.get(name) {
            Some(Entry::Over { .. }) => return Err(given_up()),
            Some(Entry::Granted { request: first, .. }) if *first != request => return Err(another()),
            Some(Entry::Granted { leases, .. }) => return Ok(Joined::Granted(leases.clone())),
            Some(Entry::Running(running)) if running.request != request => return Err(another()),
            Some(Entry::Running(running)) => {
                running.listeners.fetch_add(1, Ordering::AcqRel);
                return Ok(Joined::Running(self.listener(name, running.clone())));
            }
            None => {}
        }
        if all.len() >= MOST {
            let why = format!("{MOST} idempotency keys are remembered");
            return Err(Problem::limited(why, 10));
        }
        let (told, taking) = start()?;
        let (sender, answer) = watch::channel(None);
        let (attempts, own) = (self.clone(), name.clone());
        let task = tokio::spawn(async move {
            let answer = taking.await;
            let mut all = attempts.lock();
            match &answer {
                Ok(leases) => {
                    let ttl = leases.iter().map(|lease| lease.ttl).max().unwrap_or_default();
                    let entry = Entry::Granted {
                        request,
                        leases: leases.clone(),
                        until: Instant::now() + MEMORY.max(ttl.min(MEMORY * 30)),
                    };
                    all.insert(own, entry);
                }
                // Asked again, it tries again.
                Err(_) => drop(all.remove(&own)),
            }
            drop(all);
            sender.send_replace(Some(answer));
        });
        let running = Arc::new(Running {
            request,
            told,
            answer,
            task: task.abort_handle(),
            listeners: AtomicUsize::new(1),
        });
        all.insert(name.clone(), Entry::Running(running.clone()));
        drop(all);
        Ok(Joined::Running(self.listener(name, running)))
    }

    fn listener(self: &Arc<Self>, name: &Name, running: Arc<Running>) -> Listener {
        Listener {
            attempts: self.clone(),
            name: name.clone(),
            running,
        }
    }

    /// Gives up the request of this name, now and for some time to come: what it got, or where it waits.
    pub(crate) async fn give_up(&self, name: &Name) -> Left {
        let running = match self.lock().get(name) {
            Some(Entry::Running(running)) => Some(running.clone()),
            _ => None,
        };
        if let Some(running) = running {
            // Not before it is known whether it waits or holds.
            let mut told = running.told.clone();
            tokio::select! {
                _ = answer_of(running.answer.clone()) => {}
                Ok(_) = told.wait_for(Option::is_some) => {}
            }
        }
        let over = Entry::Over {
            until: Instant::now() + MEMORY,
        };
        match self.lock().insert(name.clone(), over) {
            Some(Entry::Granted { leases, .. }) => Left::Granted(leases),
            Some(Entry::Running(running)) => {
                running.task.abort();
                Left::Waiting(running.told.borrow().clone())
            }
            Some(Entry::Over { .. }) | None => Left::Nothing,
        }
    }

    /// Forgets what was granted under this name, since it was released.
    pub(crate) fn forget(&self, name: &Name) {
        let mut all = self.lock();
        if matches!(all.get(name), Some(Entry::Granted { .. })) {
            all.remove(name);
        }
    }

    /// Forgets what was remembered for long enough.
    pub(crate) fn sweep(&self) {
        let now = Instant::now();
        self.lock().retain(|_, entry| match entry {
            Entry::Running(_) => true,
            Entry::Granted { until, .. } | Entry::Over { until } => now < *until,
        });
    }
}

fn another() -> Problem {
    Problem::new(
        StatusCode::UNPROCESSABLE_ENTITY,
        "invalid_config",
        "A value is not allowed",
        "the idempotency key was used for another request",
    )
}
