//! What the cases work with: clients, contenders, and failures that name their place.

use std::error::Error as StdError;
use std::fmt;
use std::future::Future;
use std::panic::Location;
use std::pin::pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::time::{Duration, Instant};

use distlock_core::Key;
use distlock_core::bell::Bell;
use distlock_core::clock::Moment;
use distlock_core::driver::{
    Claim, Driver, DriverError, Grant, Hold, Inspect, Life, Line, Mode, Order, Promises, Released, Renewal,
    Standing, Want,
};
use distlock_core::engine::{Engine, EngineThread};
use rand::RngExt;

use super::case::Needs;
use super::{Client, Deployment};

/// What a case returns.
pub(super) type Proof<T = ()> = Result<T, Failure>;

/// Why a case failed, and where in the suite.
#[derive(Debug)]
pub struct Failure {
    why: String,
    at: &'static Location<'static>,
}

impl Failure {
    #[track_caller]
    pub(super) fn new(why: impl Into<String>) -> Self {
        Self {
            why: why.into(),
            at: Location::caller(),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} [{}:{}]", self.why, self.at.file(), self.at.line())
    }
}

impl<E: StdError> From<E> for Failure {
    #[track_caller]
    fn from(e: E) -> Self {
        Self::new(e.to_string())
    }
}

/// Fails the case unless the condition holds.
macro_rules! ensure {
    ($condition:expr, $($why:tt)+) => {
        if !$condition {
            return Err($crate::conformance::trial::Failure::new(format!($($why)+)));
        }
    };
}
pub(super) use ensure;

/// One run of one case against a deployment.
pub(super) struct Trial {
    deployment: Arc<dyn Deployment>,
    pub(super) promises: Promises,
    /// Keys start with it, so that no two cases meet, also not on a server that is used again.
    prefix: String,
    first: Mutex<Option<Arc<Peer>>>,
    peers: Mutex<Vec<(Arc<Peer>, EngineThread)>>,
}

impl Trial {
    pub(super) async fn start(deployment: Arc<dyn Deployment>) -> Proof<Self> {
        let mut trial = Self {
            deployment,
            promises: Promises::new("unknown"),
            prefix: format!("conformance:{:016x}:", rand::rng().random::<u64>()),
            first: Mutex::new(None),
            peers: Mutex::new(Vec::new()),
        };
        let first = trial.connect().await?;
        trial.promises = first.driver.promises();
        *lock(&trial.first) = Some(first);
        Ok(trial)
    }

    /// What the engine lacks of this.
    pub(super) fn lacks(&self, needs: &[Needs]) -> Option<&'static str> {
        let peers = lock(&self.peers);
        let driver = &*peers.first()?.0.driver;
        needs.iter().find_map(|need| need(driver).err())
    }

    /// A client with its own identity.
    pub(super) async fn client(&self) -> Proof<Arc<Peer>> {
        let first = lock(&self.first).take();
        match first {
            Some(first) => Ok(first),
            None => self.connect().await,
        }
    }

    /// Two of them.
    pub(super) async fn two_clients(&self) -> Proof<(Arc<Peer>, Arc<Peer>)> {
        Ok((self.client().await?, self.client().await?))
    }

    async fn connect(&self) -> Proof<Arc<Peer>> {
        let connected = self.deployment.client().await;
        let Client {
            driver,
            engine,
            thread,
        } = connected.map_err(|e| Failure::new(e.to_string()))?;
        let promised = driver.promises();
        let peer = Arc::new(Peer {
            ttl: Duration::from_secs(60).clamp(*promised.ttl.start(), *promised.ttl.end()),
            patience: self.deployment.patience(),
            driver,
            engine,
        });
        lock(&self.peers).push((peer.clone(), thread));
        Ok(peer)
    }

    /// A key of this case's own.
    pub(super) fn key(&self, name: &str) -> Proof<Key> {
        Ok(Key::new(format!("{}{name}", self.prefix))?)
    }

    pub(super) fn prefix(&self) -> &str {
        &self.prefix
    }

    /// The short lease.
    pub(super) fn ttl(&self) -> Duration {
        let range = &self.promises.ttl;
        self.deployment.ttl().clamp(*range.start(), *range.end())
    }

    pub(super) fn slack(&self) -> Duration {
        self.deployment.slack()
    }

    pub(super) fn patience(&self) -> Duration {
        self.deployment.patience()
    }

    /// Ends a client as a crash would: what ran on its engine thread stops, nothing is said to the engine.
    pub(super) fn kill(&self, peer: Arc<Peer>) {
        let mut peers = lock(&self.peers);
        if let Some(at) = peers.iter().position(|(p, _)| Arc::ptr_eq(p, &peer)) {
            let (listed, thread) = peers.swap_remove(at);
            drop(peers);
            thread.join();
            drop(listed);
        }
    }

    /// Closes all clients.
    pub(super) async fn end(self) {
        let peers = std::mem::take(&mut *lock(&self.peers));
        for (peer, thread) in peers {
            // An engine that hangs here was found out by the case about closing.
            let _ = tokio::time::timeout(self.patience(), peer.driver.close()).await;
            drop(peer);
            let _ = tokio::task::spawn_blocking(move || thread.join()).await;
        }
    }
}

/// One client.
pub(super) struct Peer {
    pub(super) driver: Arc<dyn Driver>,
    pub(super) engine: Engine,
    /// A lease that outlives the case.
    pub(super) ttl: Duration,
    patience: Duration,
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

/// Whether a renewal says that the hold is over.
pub(super) fn is_lost(renewal: &Renewal) -> bool {
    matches!(renewal, Renewal::Lost(_))
}

/// The error of a request that must fail.
pub(super) fn refused<T>(result: Result<T, DriverError>) -> Proof<DriverError> {
    match result {
        Ok(_) => Err(Failure::new("what should be refused was done")),
        Err(e) => Ok(e),
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
