//! A fencing gate: writes to etcd itself that happen only while the lock is held.
//!
//! The store deletes the lock's key in the same serial history in which it applies the writes. A transaction that is
//! conditional on the key's create revision therefore cannot be applied after the lock has passed on, whatever the
//! holder believes and however long its request was on its way.

use std::sync::Arc;

use distlock_core::by_client::ByClient;
use distlock_core::{Error, ErrorKind, Guard, Held, OwnerId};

use crate::driver::Shared;
use crate::wire::{Compare, CompareResult, CompareTarget, TxnRequest};
use crate::writes::Writes;

/// The clients whose holds [`Txn::of`] finds.
pub(crate) static CLIENTS: ByClient<Shared> = ByClient::new();

/// `guard.txn()`: writes to etcd under a hold.
pub trait GuardTxn {
    /// Begins writes that are applied only while the lock is held; see [`Txn`].
    ///
    /// # Errors
    /// [`ErrorKind::NotHeld`] if the hold is over, or another engine's.
    fn txn(&self) -> Result<Txn, Error>;
}

impl GuardTxn for Guard {
    fn txn(&self) -> Result<Txn, Error> {
        Txn::of(self.owner())
    }
}

impl GuardTxn for Held {
    fn txn(&self) -> Result<Txn, Error> {
        Txn::of(self.owner())
    }
}

/// Writes that are applied together, and only while the lock is held.
///
/// ```no_run
/// use distlock_etcd::GuardTxn;
///
/// # async fn example(guard: distlock_core::Guard) -> Result<(), distlock_core::Error> {
/// let applied = guard
///     .txn()?
///     .put("accounts/42/balance", "100")
///     .delete("accounts/42/pending")
///     .commit()
///     .await?;
/// assert!(applied.revision > 0);
/// # Ok(()) }
/// ```
#[derive(Debug)]
#[must_use = "nothing is written until `commit` is called"]
pub struct Txn {
    shared: Arc<Shared>,
    held: Ownership,
    writes: Writes,
}

/// What to compare in a transaction of one's own, made with any etcd client: the lock is held while the create
/// revision of `key` is `create_revision`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ownership {
    /// The lock's key of this hold.
    pub key: Vec<u8>,
    /// Its create revision.
    pub create_revision: i64,
}

/// The writes were applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Applied {
    /// The store's revision that they made.
    pub revision: i64,
}

impl Txn {
    /// Writes under the hold of this owner (`guard.owner()`), which an etcd client of this process took.
    ///
    /// # Errors
    /// [`ErrorKind::NotHeld`] if there is no such hold.
    pub fn of(owner: OwnerId) -> Result<Self, Error> {
        let shared = CLIENTS.of(owner);
        let place = shared.as_ref().and_then(|shared| shared.holds.get(owner.n));
        let (Some(shared), Some(place)) = (shared, place) else {
            return Err(not_held(
                "this process holds no lock of this owner at an etcd engine",
            ));
        };
        let create_revision = place
            .revision()
            .ok_or_else(|| not_held("the lock is no longer held"))?;
        let held = Ownership {
            key: place.key.clone().into_bytes(),
            create_revision,
        };
        Ok(Self {
            shared,
            held,
            writes: Writes::new(),
        })
    }

    /// What the transaction compares, for use with another client.
    pub fn ownership(&self) -> &Ownership {
        &self.held
    }

    /// Writes a key.
    pub fn put(mut self, key: impl Into<Vec<u8>>, value: impl Into<Vec<u8>>) -> Self {
        self.writes = self.writes.put(key, value);
        self
    }

    /// Deletes a key.
    pub fn delete(mut self, key: impl Into<Vec<u8>>) -> Self {
        self.writes = self.writes.delete(key);
        self
    }

    /// Applies the writes, if the lock is still held at that moment; else none of them.
    ///
    /// # Errors
    /// [`ErrorKind::NotHeld`]: nothing was written. [`ErrorKind::OutcomeUnknown`]: all or nothing was, and nothing
    /// will be after the lock has passed on. [`ErrorKind::Unavailable`]: nothing was written.
    ///
    /// # Cancel safety
    /// The outcome of a dropped future is unknown.
    pub async fn commit(self) -> Result<Applied, Error> {
        let condition = CompareTarget::Create(self.held.create_revision);
        let request = TxnRequest {
            compare: vec![Compare::key(self.held.key, CompareResult::Equal, condition)],
            success: self.writes.0,
            failure: Vec::new(),
        };
        match self.shared.client.call(request).await {
            Ok(reply) if reply.succeeded => Ok(Applied {
                revision: reply.revision(),
            }),
            Ok(_) => Err(not_held("the lock had passed on: nothing was written")),
            Err(failure) => Err(Error::from_driver(failure.into()).with_engine("etcd")),
        }
    }
}

fn not_held(why: &str) -> Error {
    Error::new(ErrorKind::NotHeld, why).with_engine("etcd")
}
