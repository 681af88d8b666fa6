//! Looking at locks, breaking them, examining a deployment.

use std::fmt;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use futures_util::stream::BoxStream;

use super::{DriverError, Holder, Kind, Mode};
use crate::clock::Clock;
use crate::doctor::Finding;
use crate::key::Key;
use crate::token::FencingToken;

/// Looking at locks, and breaking them.
#[async_trait]
pub trait Inspect: fmt::Debug + Send + Sync {
    /// Locks whose keys start with `prefix`, in key order, strictly after `after`, at most `limit`. Locks that
    /// nobody holds or waits for may be left out.
    ///
    /// # Errors
    /// Any [`DriverError`].
    async fn list(
        &self,
        prefix: &str,
        after: Option<&Key>,
        limit: usize,
    ) -> Result<Vec<LockInfo>, DriverError>;

    /// One lock: who holds it, who waits, in order. A free lock has no holders.
    ///
    /// # Errors
    /// Any [`DriverError`].
    async fn inspect(&self, key: &Key) -> Result<LockInfo, DriverError>;

    /// Takes the lock away from its holders; returns those. With a grace, an ownerless record stays that long.
    ///
    /// # Errors
    /// [`Refusal::TokenMismatch`](super::Refusal::TokenMismatch) when [`Break::expect`] is not the present holder's token.
    async fn break_lock(&self, key: &Key, how: &Break) -> Result<Vec<Holder>, DriverError>;

    /// The states of one lock from now on, one at each change. The default looks four times a second.
    fn watch<'a>(&'a self, key: &'a Key, clock: &'a Clock) -> BoxStream<'a, Result<LockInfo, DriverError>> {
        Box::pin(futures_util::stream::unfold(
            None::<LockInfo>,
            move |last| async move {
                loop {
                    if last.is_some() {
                        clock.sleep(Duration::from_millis(250)).await;
                    }
                    match self.inspect(key).await {
                        Ok(now) if last.as_ref().is_some_and(|last| last.same_people(&now)) => {}
                        Ok(now) => return Some((Ok(now.clone()), Some(now))),
                        Err(e) => {
                            clock.sleep(Duration::from_millis(250)).await;
                            return Some((Err(e), last));
                        }
                    }
                }
            },
        ))
    }

    /// Examines the deployment for settings that endanger locks.
    ///
    /// # Errors
    /// Any [`DriverError`] when the engine cannot be asked.
    async fn doctor(&self) -> Result<Vec<Finding>, DriverError> {
        Ok(Vec::new())
    }

    /// The wall clock of the server, where there is one that can be asked: for people, never for a lease.
    ///
    /// # Errors
    /// Any [`DriverError`].
    async fn time(&self) -> Result<Option<SystemTime>, DriverError> {
        Ok(None)
    }
}

/// The state of one lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockInfo {
    /// The lock's name.
    pub key: Key,
    /// What the key is used as, where that is known.
    pub kind: Option<Kind>,
    /// The largest token that was granted, where the engine keeps it.
    pub token: Option<FencingToken>,
    /// Who holds it.
    pub holders: Vec<Holder>,
    /// Who waits, in line order where there is one.
    pub waiters: Vec<Holder>,
}

impl LockInfo {
    /// A lock that nobody holds or waits for.
    pub fn free(key: Key) -> Self {
        Self {
            key,
            kind: None,
            token: None,
            holders: Vec::new(),
            waiters: Vec::new(),
        }
    }

    /// Whether the same owners hold and wait, whatever time they have left.
    pub fn same_people(&self, other: &Self) -> bool {
        fn owners(list: &[Holder]) -> impl Iterator<Item = (&str, Mode)> {
            list.iter().map(|h| (h.owner.as_str(), h.mode))
        }
        owners(&self.holders).eq(owners(&other.holders)) && owners(&self.waiters).eq(owners(&other.waiters))
    }
}

/// How to break a lock.
#[derive(Debug, Clone, Default)]
pub struct Break {
    /// Break only if the present holder's token is this.
    pub expect: Option<FencingToken>,
    /// How long nobody may be granted after the holder was told.
    pub grace: Duration,
    /// Why; told to the holder where the engine can.
    pub reason: Option<String>,
}
