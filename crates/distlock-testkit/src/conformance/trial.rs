//! One run of one case: its clients, its keys, and failures that name their place.

use std::error::Error as StdError;
use std::fmt;
use std::panic::Location;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use distlock_core::Key;
use distlock_core::driver::{DriverError, Promises, Renewal};
use distlock_core::engine::EngineThread;
use rand::RngExt;

use super::case::Needs;
use super::peer::Peer;
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
