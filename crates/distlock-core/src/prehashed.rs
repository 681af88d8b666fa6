//! Map keys that are hashed once for all their uses.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hash, Hasher};

/// A key with its hash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Hashed<K> {
    pub(crate) hash: u64,
    pub(crate) key: K,
}

impl<K> Hash for Hashed<K> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

impl<K> Hashed<K> {
    /// One of `n` shards. A map uses the lowest and the highest bits, so these are others.
    pub(crate) fn shard(&self, n: usize) -> usize {
        (self.hash >> 32) as usize % n
    }
}

/// A map of such keys.
pub(crate) type HashedMap<K, V> = HashMap<Hashed<K>, V, BuildHasherDefault<Passed>>;

/// Passes on the hash of a [`Hashed`].
#[derive(Default)]
pub(crate) struct Passed(u64);

impl Hasher for Passed {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes
            .iter()
            .for_each(|b| self.0 = self.0.rotate_left(8) ^ u64::from(*b));
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}
