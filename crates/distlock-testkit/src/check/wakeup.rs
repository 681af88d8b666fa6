//! I7: no lost wake-up.

use super::recovery::waited_in_vain;
use super::{Bounds, Violation, millis};
use crate::history::{History, Hold};

/// After a clean release, somebody who waits is granted within the hand-off bound.
pub fn wakeup(history: &History, bounds: &Bounds) -> Vec<Violation> {
    let mut found = Vec::new();
    for (key, all) in history.by_key() {
        for hold in all.granted() {
            let Some((free, _)) = hold.released else {
                continue;
            };
            let next = all.granted_between(free, u64::MAX).next();
            let next = next.and_then(|h| h.granted).unwrap_or(u64::MAX);
            let late = waited_in_vain(history, all.holds(), free, next, bounds.handoff, bounds);
            let Some((waiter, at)) = late.filter(|(waiter, _)| waiter.asked <= free) else {
                continue;
            };
            // Other readers or slots, or one that took over, may still hold; the last to leave is looked at.
            let held = |h: &&Hold| h.granted.is_some_and(|at| at <= free) && h.gone(history.end()) > free;
            if all.holds().iter().filter(held).any(|h| h.id != hold.id) {
                continue;
            }
            found.push(Violation {
                invariant: "I7 wake-up",
                key: key.clone(),
                at,
                what: format!(
                    "{} released and {} still waited {} later, nobody having been granted",
                    hold.id,
                    waiter.id,
                    millis(at - free)
                ),
            });
        }
    }
    found
}

impl Hold {
    /// When its record is certainly gone: the answer to its release, or the end of its lease.
    fn gone(&self, end: u64) -> u64 {
        match self.released {
            Some((at, _)) => at,
            None => self
                .until()
                .saturating_add(self.ttl)
                .max(self.releases.map_or(0, |_| end)),
        }
    }
}
