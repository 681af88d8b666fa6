//! The numbers by which a session's claims on one lock are told apart in their keys.
//!
//! They are used again: etcd remembers every name of a deleted key until it is compacted, and reads of the line walk
//! over all of them. A number is given back only by a claim of which nothing can arrive at the store any more that
//! would touch a later claim's key of the same name.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The numbers in use, by lock.
#[derive(Debug, Default)]
pub(crate) struct Numbers(Mutex<HashMap<String, Used>>);

#[derive(Debug, Default)]
struct Used {
    /// Below `next`, and not in use.
    free: BTreeSet<u32>,
    next: u32,
}

impl Numbers {
    fn locks(&self) -> MutexGuard<'_, HashMap<String, Used>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The smallest number that no claim on this lock has.
    pub(crate) fn take(&self, lock: &str) -> u32 {
        let mut locks = self.locks();
        if let Some(used) = locks.get_mut(lock) {
            return used.free.pop_first().unwrap_or_else(|| {
                used.next += 1;
                used.next - 1
            });
        }
        locks.insert(
            lock.to_owned(),
            Used {
                free: BTreeSet::new(),
                next: 1,
            },
        );
        0
    }

    /// The number may be used again.
    pub(crate) fn give_back(&self, lock: &str, number: u32) {
        let mut locks = self.locks();
        let Some(used) = locks.get_mut(lock) else { return };
        used.free.insert(number);
        if used.free.len() == used.next as usize {
            locks.remove(lock);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_free_number_is_taken() {
        let numbers = Numbers::default();
        assert_eq!([0; 3].map(|_| numbers.take("a")), [0, 1, 2]);
        assert_eq!(numbers.take("b"), 0);
        numbers.give_back("a", 1);
        assert_eq!((numbers.take("a"), numbers.take("a")), (1, 3));
    }

    #[test]
    fn a_lock_that_nobody_uses_is_forgotten() {
        let numbers = Numbers::default();
        for _ in 0..3 {
            let (a, b) = (numbers.take("a"), numbers.take("a"));
            numbers.give_back("a", a);
            numbers.give_back("a", b);
        }
        assert!(numbers.locks().is_empty());
        // One that was never given back is never used again.
        let kept = numbers.take("a");
        let other = numbers.take("a");
        numbers.give_back("a", other);
        assert_ne!(numbers.take("a"), kept);
    }
}
