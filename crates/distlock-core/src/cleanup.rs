//! Clean-up after callers that went away: dropped guards, dropped futures, time-outs, lost replies.
//!
//! A claim that is handed over is released, owner-checked, until the engine has answered or its lease has passed.
//! If an attempt of it was never answered, it may still arrive: the claim is then chased, released again at
//! intervals until its lease has passed.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tracing::warn;

use crate::clock::{Clock, Moment};
use crate::driver::{Claim, Want};
use crate::engine::Engine;
use crate::pace::Backoff;
use crate::queue::Permit;
use crate::release::send;

/// How long one release may take before it is sent again.
const ANSWER: Duration = Duration::from_secs(5);

/// The clean-up of one client; its work runs on the engine thread.
#[derive(Debug)]
pub(crate) struct Cleanup {
    engine: Engine,
    pending: Arc<PendingJobs>,
}

#[derive(Debug, Default)]
struct PendingJobs {
    count: AtomicUsize,
    changed: Notify,
    blocking: Mutex<()>,
    blocking_changed: Condvar,
}

/// A claim that its caller no longer wants.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) claim: Box<dyn Claim>,
    pub(crate) want: Arc<Want>,
    pub(crate) permit: Option<Permit>,
    pub(crate) keep: Option<Duration>,
    /// Not released earlier: something that was done under the lock may still arrive.
    pub(crate) not_before: Option<Moment>,
    /// Whether an attempt was never answered and may still arrive.
    pub(crate) unresolved: bool,
}

impl Cleanup {
    pub(crate) fn new(engine: Engine) -> Self {
        Self {
            engine,
            pending: Arc::default(),
        }
    }

    /// Takes over a claim. Never blocks; works on any thread, with or without a runtime.
    pub(crate) fn take(&self, job: Job) {
        // Nobody shall wait for a lock that is kept on purpose.
        let pending = job.not_before.is_none().then(|| Pending::new(&self.pending));
        let clock = self.engine.clock().clone();
        self.engine.spawn(job.run(clock, pending));
    }

    /// How many claims have not had their first answer yet.
    pub(crate) fn pending(&self) -> usize {
        self.pending.count.load(Ordering::Acquire)
    }

    /// Resolves when none are pending.
    pub(crate) async fn drained(&self) {
        loop {
            let changed = self.pending.changed.notified();
            if self.pending() == 0 {
                return;
            }
            changed.await;
        }
    }

    /// As [`drained`](Self::drained), for a thread that may block, and at most for `limit`.
    pub(crate) fn drained_blocking(&self, limit: Duration) {
        let until = Instant::now() + limit;
        let mut guard = self
            .pending
            .blocking
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        while self.pending() > 0 {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            let waited = self.pending.blocking_changed.wait_timeout(guard, left);
            guard = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// Counts a job until its first answer, or its end.
#[derive(Debug)]
struct Pending(Arc<PendingJobs>);

impl Pending {
    fn new(jobs: &Arc<PendingJobs>) -> Self {
        jobs.count.fetch_add(1, Ordering::AcqRel);
        Self(jobs.clone())
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if self.0.count.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.changed.notify_waiters();
            let _held = self.0.blocking.lock().unwrap_or_else(PoisonError::into_inner);
            self.0.blocking_changed.notify_all();
        }
    }
}

impl Job {
    async fn run(mut self, clock: Clock, pending: Option<Pending>) {
        if let Some(due) = self.not_before {
            clock.sleep_until(due).await;
        }
        let until = clock.now() + self.want.ttl;
        let mut pace = Backoff::within(self.want.ttl);
        while !self.try_release(&clock, until).await {
            if clock.now() >= until {
                return;
            }
            clock.sleep(pace.pause(clock.unit())).await;
        }
        drop(pending);
        drop(self.permit.take());
        let interval = (self.want.ttl / 10).clamp(Duration::from_millis(20), Duration::from_secs(1));
        let chases = self.unresolved && !crate::mutant::is("no_chase");
        while chases && clock.now() < until {
            clock.sleep(interval).await;
            self.try_release(&clock, until).await;
        }
    }

    /// One release; whether it was answered.
    async fn try_release(&mut self, clock: &Clock, until: Moment) -> bool {
        let due = clock.now() + ANSWER.min(self.want.ttl);
        match send(&mut *self.claim, self.keep, &mut self.permit, clock, due).await {
            Some(Ok(_)) => true,
            Some(Err(e)) if !e.retry => {
                let key = &self.want.key;
                warn!(target: "distlock", %key, error = %e, "a release was refused; the lease will end the lock");
                true
            }
            Some(Err(e)) => {
                if clock.now() >= until {
                    let key = &self.want.key;
                    warn!(target: "distlock", %key, error = %e, "a release was not confirmed within the lease");
                }
                false
            }
            None => false,
        }
    }
}
