//! Clients and contenders, as the cases use them; and futures that are dropped early.

use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::time::{Duration, Instant};

use distlock_core::Key;
use distlock_core::bell::Bell;
use distlock_core::clock::Moment;
use distlock_core::driver::{
    Claim, Driver, Grant, Hold, Inspect, Life, Line, Mode, Order, Released, Renewal, Standing, Want,
};
use distlock_core::engine::Engine;
use rand::RngExt;

use super::trial::{Failure, Proof, ensure, lock};

/// One client.
pub(super) struct Peer {
    pub(super) driver: Arc<dyn Driver>,
    pub(super) engine: Engine,
    /// A lease that outlives the case.
    pub(super) ttl: Duration,
    pub(super) patience: Duration,
}

impl Peer {
    pub(super) fn now(&self) -> Moment {
        self.engine.clock().now()
    }

    /// What a contender wants by default: `Any`, in line, for long.
    pub(super) fn want(&self, key: &Key, mode: Mode) -> Want {
        Want {
            key: key.clone(),
            owner: self.engine.owners().next(),
            mode,
            order: Order::Any,
            line: Line::Join,
            life: Life::Process,
            ttl: self.ttl,
            label: self.engine.label().cloned(),
            reason: None,
            bell: Bell::new(),
        }
    }

    pub(super) fn contender(&self, key: &Key, mode: Mode) -> Proof<Contender> {
        self.claim(self.want(key, mode))
    }

    pub(super) fn mutex(&self, key: &Key) -> Proof<Contender> {
        self.contender(key, Mode::Mutex)
    }

    pub(super) fn fifo(&self, key: &Key, mode: Mode) -> Proof<Contender> {
        let order = Order::Fifo;
        self.claim(Want {
            order,
            ..self.want(key, mode)
        })
    }

    /// A hold that lives by this TTL alone.
    pub(super) fn lease(&self, key: &Key, ttl: Duration) -> Proof<Contender> {
        let life = Life::Lease;
        self.claim(Want {
            life,
            ttl,
            ..self.want(key, Mode::Mutex)
        })
    }

    pub(super) fn claim(&self, want: Want) -> Proof<Contender> {
        let want = Arc::new(want);
        let claim = self.driver.claim(want.clone())?;
        Ok(Contender {
            want,
            claim,
            mark: 0,
            patience: self.patience,
        })
    }

    /// Renews one hold.
    pub(super) async fn renew(&self, contender: &Contender) -> Proof<Renewal> {
        let hold = contender.hold();
        let mut answers = self.renew_all(&[hold]).await?;
        answers
            .pop()
            .flatten()
            .ok_or_else(|| Failure::new("no answer to a renewal"))
    }

    /// Renews these holds: the answer to each, `None` without one.
    pub(super) async fn renew_all(&self, holds: &[Hold]) -> Proof<Vec<Option<Renewal>>> {
        let answers = Mutex::new((0..holds.len()).map(|_| None).collect::<Vec<_>>());
        let twice = AtomicU32::new(0);
        let answer = |at: usize, renewal| {
            if lock(&answers)[at].replace(renewal).is_some() {
                twice.fetch_add(1, Ordering::Relaxed);
            }
        };
        let renewed = tokio::time::timeout(self.patience, self.driver.renew(holds, &answer)).await;
        ensure!(renewed.is_ok(), "a renewal did not end");
        ensure!(twice.into_inner() == 0, "a hold was answered twice");
        Ok(answers.into_inner().unwrap_or_else(PoisonError::into_inner))
    }

    /// The engine's eyes, where it has them.
    pub(super) fn eyes(&self) -> Option<&dyn Inspect> {
        self.driver.inspect()
    }

    /// The same, for the cases that need them.
    pub(super) fn sight(&self) -> Proof<&dyn Inspect> {
        self.eyes()
            .ok_or_else(|| Failure::new("the engine can no longer be looked into"))
    }
}

/// One contender: its claim, and what it wants.
pub(super) struct Contender {
    pub(super) want: Arc<Want>,
    pub(super) claim: Box<dyn Claim>,
    mark: u64,
    patience: Duration,
}

impl Contender {
    pub(super) fn hold(&self) -> Hold {
        Hold {
            want: self.want.clone(),
            mark: self.mark,
            ttl: self.want.ttl,
            floor: None,
        }
    }

    /// One look; errors that may pass are tried again.
    pub(super) async fn look(&mut self) -> Proof<Standing> {
        let start = Instant::now();
        loop {
            match self.claim.try_acquire().await {
                Ok(standing) => {
                    if let Standing::Held(grant) = &standing {
                        self.mark = grant.mark;
                    }
                    return Ok(standing);
                }
                Err(e) if e.retry && start.elapsed() < self.patience => pause().await,
                Err(e) => return Err(e.into()),
            }
        }
    }

    /// One look that must find the lock free.
    pub(super) async fn take(&mut self) -> Proof<Grant> {
        match self.look().await? {
            Standing::Held(grant) => Ok(grant),
            Standing::Waiting { holder, ahead, .. } => Err(Failure::new(format!(
                "{:?} is not free: held by {holder:?}, {ahead:?} ahead",
                self.want.key
            ))),
        }
    }

    /// One look that must find the lock taken.
    pub(super) async fn wait(&mut self) -> Proof {
        match self.look().await? {
            Standing::Waiting { recheck, .. } => {
                ensure!(!recheck.is_zero(), "recheck is zero: the core would spin");
                Ok(())
            }
            Standing::Held(_) => Err(Failure::new(format!("{:?} was granted twice", self.want.key))),
        }
    }

    /// Waits as the core does, by bell and recheck; within the deployment's patience.
    pub(super) async fn acquire(&mut self) -> Proof<Grant> {
        self.acquire_within(self.patience).await
    }

    pub(super) async fn acquire_within(&mut self, limit: Duration) -> Proof<Grant> {
        let start = Instant::now();
        loop {
            let recheck = match self.look().await? {
                Standing::Held(grant) => return Ok(grant),
                Standing::Waiting { recheck, .. } => recheck,
            };
            let left = limit.saturating_sub(start.elapsed());
            let rung = tokio::time::timeout(recheck.min(left), self.want.bell.rung()).await;
            // A last look without a reason to look would hide a ring that never came.
            ensure!(
                rung.is_ok() || recheck < left,
                "{:?} was not granted within {limit:?}",
                self.want.key
            );
        }
    }

    /// Releases; errors that may pass are tried again.
    pub(super) async fn release(&mut self) -> Proof<Released> {
        self.release_keeping(None).await
    }

    pub(super) async fn release_keeping(&mut self, keep: Option<Duration>) -> Proof<Released> {
        let start = Instant::now();
        loop {
            match self.claim.release(keep).await {
                Ok(released) => return Ok(released),
                Err(e) if e.retry && start.elapsed() < self.patience => pause().await,
                Err(e) => return Err(e.into()),
            }
        }
    }

    /// Releases what it must have held.
    pub(super) async fn free(&mut self) -> Proof {
        let released = self.release().await?;
        ensure!(
            released == Released::Freed,
            "a hold of {:?} was gone",
            self.want.key
        );
        Ok(())
    }
}

/// Between two attempts that poll.
pub(super) async fn pause() {
    tokio::time::sleep(Duration::from_millis(10)).await;
}

/// Polls `future` this often and then drops it, unless it ends before.
pub(super) async fn polled<F: Future>(future: F, times: u32) -> Option<F::Output> {
    let mut future = pin!(future);
    let mut left = times;
    std::future::poll_fn(|cx| {
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        match future.as_mut().poll(cx) {
            Poll::Ready(out) => Poll::Ready(Some(out)),
            Poll::Pending if left == 0 => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

/// Drops `future` at a random moment: after a number of polls or after some microseconds.
pub(super) async fn dropped_at_random<F: Future>(future: F) -> Option<F::Output> {
    let (by_polls, polls, micros) = {
        let mut rng = rand::rng();
        (
            rng.random::<bool>(),
            rng.random_range(0..6),
            rng.random_range(0..3_000),
        )
    };
    if by_polls {
        polled(future, polls).await
    } else {
        tokio::time::timeout(Duration::from_micros(micros), future)
            .await
            .ok()
    }
}
