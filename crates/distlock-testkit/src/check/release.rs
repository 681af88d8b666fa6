//! I4: a release frees only one's own.

use super::Violation;
use crate::history::{History, Hold, HowReleased, What};

/// A release that was called after somebody else had been granted the key exclusively is not answered *freed*, and
/// no holder loses its hold between a stale release's call and its answer, unless something else took it.
pub fn release(history: &History) -> Vec<Violation> {
    let faults = history
        .events()
        .iter()
        .any(|e| matches!(e.what, What::Fault { .. }));
    let mut found = Vec::new();
    for (key, all) in history.by_key() {
        for stale in all.holds() {
            let (Some(granted), Some(called), Some((answered, how))) =
                (stale.granted, stale.releases, stale.released)
            else {
                continue;
            };
            let mut later = all.granted_between(granted, called).rev();
            let Some(other) = later.find(|other| other.excludes(stale)) else {
                continue;
            };
            if how == HowReleased::Freed {
                found.push(Violation {
                    invariant: "I4 release",
                    key: key.clone(),
                    at: answered,
                    what: format!(
                        "the release of {} was answered \"freed\", but {} had been granted",
                        stale.id, other.id
                    ),
                });
            }
            // A hold whose lease ran out on its own is not the release's doing.
            if let Some((at, why)) = &other.lost
                && !faults
                && why == "taken"
                && *at >= called
                && *at <= answered.saturating_add(other.ttl)
            {
                found.push(Violation {
                    invariant: "I4 release",
                    key: key.clone(),
                    at: *at,
                    what: format!("{} lost its hold to the stale release of {}", other.id, stale.id),
                });
            }
        }
    }
    found
}

impl Hold {
    /// Whether the two can never hold at once.
    pub(super) fn excludes(&self, other: &Hold) -> bool {
        self.mode.is_exclusive() || other.mode.is_exclusive()
    }
}
