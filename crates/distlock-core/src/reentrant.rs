//! Reentrancy: by owner, never by thread.
//!
//! `run` opens an ambient owner scope, a chain of enclosing holds in a task-local. A nested `run` re-enters when an
//! *enclosing* scope holds the same key through the same client: no round trip, same token. Siblings under `join!`
//! have the same parent but not each other, so they exclude each other. Scopes do not cross `spawn`. An explicit
//! [`Owner`] does the same for guards.

use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use crate::client::ClientInner;
use crate::driver::Mode;
use crate::error::{Error, ErrorKind};
use crate::hold::HoldState;
use crate::holds::Holds;
use crate::key::Key;

tokio::task_local! {
    static SCOPE: Arc<Scope>;
}

/// One link of the chain of enclosing holds.
struct Scope {
    parent: Option<Arc<Scope>>,
    holds: Holds,
}

/// Runs `body` inside the present scope plus these holds.
pub(crate) async fn within<F: Future>(holds: Holds, body: F) -> F::Output {
    let parent = SCOPE.try_with(Arc::clone).ok();
    SCOPE.scope(Arc::new(Scope { parent, holds }), body).await
}

/// As [`within`], for a body that blocks.
pub(crate) fn within_sync<T>(holds: Holds, body: impl FnOnce() -> T) -> T {
    let parent = SCOPE.try_with(Arc::clone).ok();
    SCOPE.sync_scope(Arc::new(Scope { parent, holds }), body)
}

/// The hold of `key` through this client in an enclosing scope.
pub(crate) fn enclosing(client: &Arc<ClientInner>, key: &Key) -> Option<Arc<HoldState>> {
    SCOPE
        .try_with(|innermost| {
            let mut scope = Some(innermost);
            while let Some(s) = scope {
                let found = s
                    .holds
                    .iter()
                    .find(|h| Arc::ptr_eq(&h.client, client) && h.want.key == *key);
                if let Some(hold) = found {
                    return Some(hold.clone());
                }
                scope = s.parent.as_ref();
            }
            None
        })
        .ok()
        .flatten()
}

/// Whether the present task is inside a `run` body that holds a lock of this name (through any client).
pub fn holds_key(key: &Key) -> bool {
    SCOPE
        .try_with(|innermost| {
            let mut scope = Some(innermost);
            while let Some(s) = scope {
                if s.holds.iter().any(|h| h.want.key == *key && h.is_held()) {
                    return true;
                }
                scope = s.parent.as_ref();
            }
            false
        })
        .unwrap_or(false)
}

/// Whether a hold may be re-entered in this mode.
///
/// The same mode re-enters, and so does a reader inside its writer. A writer inside its reader would wait for
/// itself; another kind is a mistake.
pub(crate) fn check(hold: &HoldState, mode: Mode) -> Result<(), Error> {
    if let Some(reason) = hold.lost() {
        return Err(Error::lost(reason));
    }
    match (hold.want.mode, mode) {
        (have, want) if have == want => Ok(()),
        (Mode::Write, Mode::Read) => Ok(()),
        (Mode::Read, Mode::Write) => Err(Error::new(
            ErrorKind::WouldDeadlock,
            "a reader cannot become the writer while it reads",
        )),
        (have, want) => {
            let why = format!(
                "the key is held by an enclosing scope as {}, not as {}",
                have.kind(),
                want.kind()
            );
            Err(Error::new(ErrorKind::KindMismatch, why))
        }
    }
}

/// The refusal of a guard on a key that an enclosing scope holds: it would wait for itself.
pub(crate) fn would_deadlock() -> Error {
    let why = "an enclosing `run` holds it; nest another `run`, which re-enters, instead of taking a guard";
    Error::new(ErrorKind::WouldDeadlock, why)
}

/// An explicit identity for guards that belong together: a lock that the owner holds is re-entered by the owner.
///
/// Guards without an owner are strangers to each other. Clones are the same owner.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// # use distlock_core::{Client, Owner, memory::Memory};
/// # let locks = Client::builder().memory(&Memory::new())?;
/// let me = Owner::new();
/// let outer = locks.mutex("a").owner(&me).acquire().await?;
/// let inner = locks.mutex("a").owner(&me).acquire().await?;
/// assert_eq!(outer.token(), inner.token());
/// inner.release().await?;
/// assert!(outer.is_held());
/// # outer.release().await?; Ok::<(), distlock_core::Error>(()) }).unwrap();
/// ```
#[derive(Clone, Debug, Default)]
pub struct Owner(Arc<Mutex<Vec<Weak<HoldState>>>>);

impl Owner {
    /// A new identity.
    pub fn new() -> Self {
        Self::default()
    }

    /// The hold of `key` through this client, if this owner has one that can still be entered.
    pub(crate) fn find(&self, client: &Arc<ClientInner>, key: &Key) -> Option<Arc<HoldState>> {
        let holds = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut live = holds.iter().filter_map(Weak::upgrade);
        live.find(|h| h.want.key == *key && Arc::ptr_eq(&h.client, client) && h.is_claimed())
    }

    /// Notes a new hold of this owner, and forgets those that ended.
    pub(crate) fn note(&self, hold: &Arc<HoldState>) {
        let mut holds = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        holds.retain(|h| h.upgrade().is_some_and(|h| h.is_claimed()));
        holds.push(Arc::downgrade(hold));
    }
}
