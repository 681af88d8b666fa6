//! A lock that was taken for a body: `run`, in its two halves.

use std::future::Future;

use tracing::{Instrument, debug_span, warn};

use crate::commit::{decided, undecided};
use crate::driver::LostReason;
use crate::error::RunError;
use crate::guard::{Guard, Held, until_lost};
use crate::holds::Holds;
use crate::key::Key;
use crate::reentrant;
use crate::release::Release;

/// What `run` has between obtaining the lock and running the body.
///
/// The attribute `#[locked]` needs the two halves apart, because the function's arguments belong to the body only
/// once the lock was obtained.
#[doc(hidden)]
#[derive(Debug)]
#[must_use = "the lock is released as soon as this is dropped"]
pub struct Entered {
    /// Held by an enclosing scope, which drops the body at a loss, and releases.
    nested: Holds,
    taken: Option<Guard>,
}

impl Entered {
    pub(crate) fn new(nested: Holds, taken: Option<Guard>) -> Self {
        Self { nested, taken }
    }

    /// The key; of several, the first in their order.
    pub fn key(&self) -> Key {
        self.held().key().clone()
    }

    fn held(&self) -> Held {
        let Some(taken) = &self.taken else {
            return Held::of(self.nested.clone().sorted());
        };
        let taken = taken.holds().iter();
        let holds: Holds = self.nested.iter().chain(taken).cloned().collect();
        Held::of(holds.sorted())
    }

    /// Runs `body`, and releases what was taken for it. The second half of [`Lock::run`](crate::Lock::run).
    ///
    /// # Errors
    /// As [`Lock::run`](crate::Lock::run), except [`RunError::Lock`].
    ///
    /// # Cancel safety
    /// As [`Lock::run`](crate::Lock::run).
    pub async fn run<T, E, F, Fut>(self, body: F) -> Result<T, RunError<E>>
    where
        F: FnOnce(Held) -> Fut,
        Fut: Future<Output = Result<T, E>>,
    {
        let held = self.held();
        let out = match self.taken {
            None => body(held).await.map_err(RunError::Body),
            Some(guard) => run_held(guard, body(held)).await,
        };
        match (self.nested.iter().find_map(|hold| hold.lost()), out) {
            (Some(reason), Ok(_)) => Err(RunError::Lost { reason, value: None }),
            (_, out) => out,
        }
    }

    /// Runs `body`, commits what it returned, and releases after that. The second half of
    /// [`Lock::run_then_commit`](crate::Lock::run_then_commit).
    ///
    /// # Errors
    /// As [`Lock::run_then_commit`](crate::Lock::run_then_commit), except [`RunError::Lock`].
    ///
    /// # Cancel safety
    /// As [`Lock::run_then_commit`](crate::Lock::run_then_commit).
    pub async fn run_then_commit<T, X, E, F, Fut, C, Done>(
        self,
        body: F,
        commit: C,
    ) -> Result<T, RunError<E, T>>
    where
        F: FnOnce(Held) -> Fut,
        Fut: Future<Output = Result<(T, X), E>>,
        C: FnOnce(X) -> Done,
        Done: Future<Output = Result<(), E>>,
    {
        let held = self.held();
        let before = |reason| RunError::Lost { reason, value: None };
        let out = match &self.taken {
            None => body(held.clone()).await,
            Some(guard) => {
                let body = reentrant::within(guard.holds().clone(), body(held.clone()));
                until_lost(guard.held(), body).await.map_err(before)?
            }
        };
        let (value, transaction) = match out {
            Ok(done) => done,
            Err(e) => {
                if let Some(guard) = self.taken {
                    released(guard, false).await;
                }
                return Err(RunError::Body(e));
            }
        };
        if let Some((_, reason)) = held.lost_reason() {
            return Err(before(reason));
        }
        // Never dropped at a loss: that would not take back what is on its way.
        undecided(held.holds());
        commit(transaction).await.map_err(RunError::Body)?;
        decided(held.holds());
        let mut lost = held.lost_reason().map(|(_, reason)| reason);
        if let Some(guard) = self.taken {
            lost = released(guard, true).await.or(lost);
        }
        told(lost, Ok(value))
    }

    /// As [`run`](Self::run), on this thread.
    ///
    /// # Errors
    /// As [`blocking::Lock::run`](crate::blocking::Lock::run), except [`RunError::Lock`].
    pub fn run_blocking<T, E>(self, body: impl FnOnce(Held) -> Result<T, E>) -> Result<T, RunError<E, T>> {
        let held = self.held();
        let taken = self.taken.as_ref().map(|guard| guard.holds().clone());
        let out = reentrant::within_sync(taken.unwrap_or_default(), || body(held.clone()));
        let mut lost = held.lost_reason().map(|(_, reason)| reason);
        if let Some(guard) = self.taken
            && let Ok(Release::Lost(reason)) = crate::blocking::release(guard)
        {
            lost.get_or_insert(reason);
        }
        told(lost, out)
    }
}

fn told<T, E>(lost: Option<LostReason>, out: Result<T, E>) -> Result<T, RunError<E, T>> {
    match (lost, out) {
        (Some(reason), Ok(value)) => Err(RunError::Lost {
            reason,
            value: Some(value),
        }),
        (_, Err(e)) => Err(RunError::Body(e)),
        (None, Ok(value)) => Ok(value),
    }
}

/// Runs `body` under the guard's holds, then releases them.
async fn run_held<T, E>(guard: Guard, body: impl Future<Output = Result<T, E>>) -> Result<T, RunError<E>> {
    let held = guard.held();
    let span = debug_span!(target: "distlock", "run", key = %held.key(), token = held.token().map(u64::from));
    let until_lost = until_lost(held, reentrant::within(guard.holds().clone(), body));
    let out = if span.is_disabled() {
        until_lost.await
    } else {
        until_lost.instrument(span).await
    };
    let out = out.map_err(|reason| RunError::Lost { reason, value: None })?;
    match (released(guard, out.is_ok()).await, out) {
        (Some(reason), Ok(_)) => Err(RunError::Lost { reason, value: None }),
        (_, out) => out.map_err(RunError::Body),
    }
}

/// Releases, and gives the reason if the lock was found lost and the caller is free to tell it. What else goes wrong is
/// only logged: it replaces nothing that the body has said.
async fn released(guard: Guard, tells: bool) -> Option<LostReason> {
    let key = guard.key().clone();
    match guard.release().await {
        Ok(Release::Clean) => return None,
        Ok(Release::Lost(reason)) if tells => return Some(reason),
        Ok(other) => {
            warn!(target: "distlock", %key, ?other, "a lock was not held any more at its release");
        }
        Err(e) => warn!(target: "distlock", %key, error = %e, "a release was not confirmed"),
    }
    None
}
