//! What this client holds, by the number of its owner.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crate::place::Place;

/// The places of this client that hold.
#[derive(Debug, Default)]
pub(crate) struct Holds {
    places: Mutex<HashMap<u64, Arc<Place>>>,
    /// Holds so young that their keys are not watched yet, with the values of their keys.
    young: Mutex<Vec<(Weak<Place>, Vec<u8>)>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Holds {
    pub(crate) fn add(&self, n: u64, place: &Arc<Place>) {
        lock(&self.places).insert(n, place.clone());
    }

    pub(crate) fn remove(&self, n: u64) {
        lock(&self.places).remove(&n);
    }

    pub(crate) fn get(&self, n: u64) -> Option<Arc<Place>> {
        lock(&self.places).get(&n).cloned()
    }

    /// Notes a young hold; whether it is the first since [`grown`](Self::grown).
    pub(crate) fn young(&self, place: &Arc<Place>, value: &[u8]) -> bool {
        let mut young = lock(&self.young);
        young.push((Arc::downgrade(place), value.to_vec()));
        young.len() == 1
    }

    /// Takes those of the young holds that are still held.
    pub(crate) fn grown(&self) -> Vec<(Arc<Place>, Vec<u8>)> {
        let young = std::mem::take(&mut *lock(&self.young));
        let held = young
            .into_iter()
            .filter_map(|(place, value)| Some((place.upgrade()?, value)));
        held.filter(|(place, _)| !place.has_left()).collect()
    }
}
