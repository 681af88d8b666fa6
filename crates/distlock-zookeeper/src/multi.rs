//! A fencing gate: writes to ZooKeeper itself that happen only while the lock is held.
//!
//! The servers delete the lock's node in the same serial history in which they apply the writes, and its name is never
//! used again. A multi that checks the node therefore cannot be applied after the lock has passed on, whatever the
//! holder believes and however long its request was on its way. The check is for the node's existence and not its
//! version: Curator's `Revoker` writes into a holder's node.

use std::sync::Arc;

use distlock_core::by_client::ByClient;
use distlock_core::driver::{DriverError, Reached};
use distlock_core::{Error, ErrorKind, Guard, OwnerId};
use zookeeper_client::MultiWriteError;

use crate::call::{fault, is_answer};
use crate::driver::Shared;
use crate::registry::Held;
use crate::writes::Writes;

/// Whatever its version is.
const ANY: i32 = -1;

/// The clients whose holds [`Multi::of`] finds.
pub(crate) static CLIENTS: ByClient<Shared> = ByClient::new();

/// `guard.multi()`: writes to ZooKeeper under a hold.
pub trait GuardMulti {
    /// Begins writes that are applied only while the lock is held; see [`Multi`].
    ///
    /// # Errors
    /// [`ErrorKind::NotHeld`] if the hold is over, or another engine's.
    fn multi(&self) -> Result<Multi, Error>;
}

impl GuardMulti for Guard {
    fn multi(&self) -> Result<Multi, Error> {
        Multi::of(self.owner())
    }
}

impl GuardMulti for distlock_core::Held {
    fn multi(&self) -> Result<Multi, Error> {
        Multi::of(self.owner())
    }
}

/// Writes that are applied together, and only while the lock is held.
///
/// Paths are those below the client's chroot.
///
/// ```no_run
/// use distlock_zookeeper::GuardMulti;
///
/// # async fn example(guard: distlock_core::Guard) -> Result<(), Box<dyn std::error::Error>> {
/// guard
///     .multi()?
///     .set("/accounts/42/balance", "100", None)
///     .delete("/accounts/42/pending", None)
///     .commit()
///     .await?;
/// # Ok(()) }
/// ```
#[derive(Debug)]
#[must_use = "nothing is written until `commit` is called"]
pub struct Multi {
    chroot: String,
    held: Arc<Held>,
    writes: Writes,
}

/// Why nothing was written, or nobody knows.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MultiError {
    /// [`ErrorKind::NotHeld`]: nothing was written. [`ErrorKind::OutcomeUnknown`]: all or nothing was, and nothing
    /// will be after the lock has passed on. [`ErrorKind::Unavailable`]: nothing was written.
    #[error(transparent)]
    Lock(#[from] Error),
    /// The servers refused one of the writes, and applied none: no such node, one that exists, another version.
    #[error("nothing was written, because of write {index}: {why}")]
    Refused {
        /// Which one, from 0 on.
        index: usize,
        /// What the servers say.
        why: String,
    },
}

impl Multi {
    /// Writes under the hold of this owner (`guard.owner()`), which a ZooKeeper client of this process took.
    ///
    /// # Errors
    /// [`ErrorKind::NotHeld`] if there is no such hold.
    pub fn of(owner: OwnerId) -> Result<Self, Error> {
        let shared = CLIENTS.of(owner);
        let held = shared.as_ref().and_then(|shared| shared.registry.held(&owner));
        let (Some(shared), Some(held)) = (shared, held) else {
            return Err(not_held(
                "this process holds no lock of this owner at a ZooKeeper engine",
            ));
        };
        Ok(Self {
            chroot: shared.config.chroot.clone(),
            held,
            writes: Writes::new(),
        })
    }

    /// The lock's node, to check in a multi of one's own, made with any ZooKeeper client: the lock is held while it
    /// exists. With [`Bridge::Kazoo`](crate::Bridge) there are two, and both must exist.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        self.held.nodes.iter().map(|node| &*node.path)
    }

    /// Makes a persistent node that everybody may use.
    pub fn create(mut self, path: &str, data: impl Into<Vec<u8>>) -> Self {
        self.writes = self.writes.create(path, data);
        self
    }

    /// Writes a node's data; with a version only if it still has that one.
    pub fn set(mut self, path: &str, data: impl Into<Vec<u8>>, version: Option<i32>) -> Self {
        self.writes = self.writes.set(path, data, version);
        self
    }

    /// Deletes a node; with a version only if it still has that one.
    pub fn delete(mut self, path: &str, version: Option<i32>) -> Self {
        self.writes = self.writes.delete(path, version);
        self
    }

    /// Applies the writes, if the lock is still held at that moment; else none of them.
    ///
    /// # Errors
    /// [`MultiError`].
    ///
    /// # Cancel safety
    /// The outcome of a dropped future is unknown.
    pub async fn commit(self) -> Result<(), MultiError> {
        let session = &self.held.session;
        if self.held.is_gone() || session.has_ended() {
            return Err(passed_on());
        }
        let call = session.call().map_err(told)?;
        let mut multi = call.client.new_multi_writer();
        for path in self.paths() {
            multi.add_check_version(path, ANY).map_err(|e| told(fault(e)))?;
        }
        let checks = self.held.nodes.len();
        self.writes
            .add_to(&mut multi, &self.chroot)
            .map_err(|(index, e)| MultiError::Refused {
                index,
                why: e.to_string(),
            })?;
        let sent = call.sent;
        match session.clock().timeout(session.patience(), multi.commit()).await {
            Some(Ok(_)) => {
                session.alive(sent);
                Ok(())
            }
            Some(Err(MultiWriteError::OperationFailed { index, .. })) if index < checks => Err(passed_on()),
            Some(Err(MultiWriteError::OperationFailed { index, source })) if is_answer(&source) => {
                Err(MultiError::Refused {
                    index: index - checks,
                    why: source.to_string(),
                })
            }
            Some(Err(e)) => Err(told(fault(e.into()))),
            None => Err(told(DriverError::unavailable(
                Reached::Maybe,
                "ZooKeeper does not answer",
            ))),
        }
    }
}

fn not_held(why: &str) -> Error {
    Error::new(ErrorKind::NotHeld, why).with_engine("zookeeper")
}

fn passed_on() -> MultiError {
    not_held("the lock had passed on: nothing was written").into()
}

fn told(e: DriverError) -> MultiError {
    Error::from_driver(e).with_engine("zookeeper").into()
}
