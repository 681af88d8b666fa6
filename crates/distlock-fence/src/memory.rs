//! Fencing for what one process owns.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use distlock_core::FencingToken;
use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard};

use crate::error::FenceError;
use crate::gate::FenceGate;

/// The largest token seen of one resource. The lock is what makes check and write one step.
type Newest = Arc<AsyncMutex<Option<FencingToken>>>;

/// Fencing for what one process owns: a cache, a device, a connection to something that cannot check tokens itself.
///
/// Cloning is cheap; clones are the same gate.
///
/// # Limits
/// It remembers until the process ends and no longer. If the data outlive the process, keep the token with the data
/// ([`FencedFile`](crate::FencedFile), or your database), or [`raise`](Self::raise) the gate from there at start.
/// It keeps about 100 bytes per resource until [`forget`](Self::forget).
#[derive(Clone, Default)]
pub struct MemoryGate {
    resources: Arc<Mutex<HashMap<Box<str>, Newest>>>,
}

impl MemoryGate {
    /// A gate that has seen no token yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Waits for its turn, checks and remembers the token. No other check of the resource passes, and so no other
    /// write is done, until the entry is dropped.
    ///
    /// # Errors
    /// [`FenceError::Stale`].
    ///
    /// # Cancel safety
    /// Safe: a dropped future leaves nothing behind.
    pub async fn enter(&self, resource: &str, token: FencingToken) -> Result<Entry, FenceError> {
        admit(self.newest(resource).lock_owned().await, resource, token)
    }

    /// [`enter`](Self::enter) for code that is not async.
    ///
    /// # Errors
    /// [`FenceError::Stale`].
    ///
    /// # Panics
    /// Inside a runtime's async task, which it would block.
    pub fn blocking_enter(&self, resource: &str, token: FencingToken) -> Result<Entry, FenceError> {
        admit(self.newest(resource).blocking_lock_owned(), resource, token)
    }

    /// The largest token seen, if any. `None` also while a write is in progress for the first time.
    pub async fn newest_token(&self, resource: &str) -> Option<FencingToken> {
        let newest = self.lock().get(resource).cloned()?;
        let newest = newest.lock().await;
        *newest
    }

    /// Makes the gate remember at least this token: what a store kept across a restart.
    pub async fn raise(&self, resource: &str, token: FencingToken) {
        let mut newest = self.newest(resource).lock_owned().await;
        *newest = (*newest).max(Some(token));
    }

    /// Forgets a resource, for instance after its row was deleted. A stale writer of it can pass again.
    pub fn forget(&self, resource: &str) {
        self.lock().remove(resource);
    }

    fn newest(&self, resource: &str) -> Newest {
        let mut resources = self.lock();
        match resources.get(resource) {
            Some(newest) => newest.clone(),
            None => resources.entry(resource.into()).or_default().clone(),
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<Box<str>, Newest>> {
        // Nothing inside the critical sections can leave the map half changed.
        self.resources.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The rule itself.
fn admit(
    mut newest: OwnedMutexGuard<Option<FencingToken>>,
    resource: &str,
    token: FencingToken,
) -> Result<Entry, FenceError> {
    if let Some(newest) = *newest
        && token < newest
    {
        return Err(FenceError::Stale {
            resource: resource.to_owned(),
            token,
            newest,
        });
    }
    *newest = Some(token);
    Ok(Entry { newest })
}

impl fmt::Debug for MemoryGate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryGate")
            .field("resources", &self.lock().len())
            .finish()
    }
}

/// The right to write to one resource of a [`MemoryGate`], until it is dropped.
#[must_use = "the write is only fenced while the entry is open"]
pub struct Entry {
    newest: OwnedMutexGuard<Option<FencingToken>>,
}

impl Entry {
    /// The token that was admitted.
    pub fn token(&self) -> Option<FencingToken> {
        *self.newest
    }
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entry").field("token", &self.token()).finish()
    }
}

impl<F, T> FenceGate<F> for MemoryGate
where
    F: FnOnce() -> T + Send,
    T: Send,
{
    type Output = T;

    async fn pass(&self, resource: &str, token: FencingToken, write: F) -> Result<T, FenceError> {
        let _entry = self.enter(resource, token).await?;
        Ok(write())
    }
}
