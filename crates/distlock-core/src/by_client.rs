//! What belongs to a client, found by the owner of one of its holds.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use uuid::Uuid;

use crate::OwnerId;

/// The clients of one engine in this process, by their identity: a guard knows its owner, but not its engine. For
/// engines that check a hold and write in one step. It keeps no client alive.
///
/// ```
/// use std::sync::Arc;
/// use distlock_core::by_client::ByClient;
/// use distlock_core::Owners;
///
/// static CLIENTS: ByClient<String> = ByClient::new();
/// let (owners, shared) = (Owners::new(), Arc::new(String::from("connection")));
/// CLIENTS.add(owners.client(), &shared);
/// assert_eq!(CLIENTS.of(owners.next()), Some(shared));
/// ```
#[derive(Debug)]
pub struct ByClient<T>(Mutex<BTreeMap<Uuid, Weak<T>>>);

impl<T> ByClient<T> {
    /// No clients.
    pub const fn new() -> Self {
        Self(Mutex::new(BTreeMap::new()))
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Uuid, Weak<T>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a client known, for as long as it lives.
    pub fn add(&self, client: Uuid, shared: &Arc<T>) {
        let mut clients = self.lock();
        clients.retain(|_, client| client.strong_count() > 0);
        clients.insert(client, Arc::downgrade(shared));
    }

    /// The client that took a lock for this owner, if it is one of these and lives.
    pub fn of(&self, owner: OwnerId) -> Option<Arc<T>> {
        self.lock().get(&owner.client).and_then(Weak::upgrade)
    }
}

impl<T> Default for ByClient<T> {
    fn default() -> Self {
        Self::new()
    }
}
