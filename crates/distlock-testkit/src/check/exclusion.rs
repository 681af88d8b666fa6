//! I1: mutual exclusion, by a sweep over the times at which holders may believe that they hold.

use distlock_core::driver::Mode;

use super::{Violation, millis};
use crate::history::{History, Hold};

/// No two holders that exclude each other believe so at the same time: an exclusive holder is alone, readers exclude
/// a writer, and a semaphore has at most its number of holders.
pub fn exclusion(history: &History) -> Vec<Violation> {
    let mut found = Vec::new();
    for (key, all) in history.by_key() {
        let mut intervals: Vec<((u64, u64), &Hold)> = all
            .holds()
            .iter()
            .filter_map(|h| Some((h.interval()?, h)))
            .collect();
        intervals.sort_by_key(|((from, _), hold)| (*from, hold.id));
        let mut live: Vec<((u64, u64), &Hold)> = Vec::new();
        for (interval, hold) in intervals {
            live.retain(|((_, to), _)| *to > interval.0);
            if let Some((other, why)) = conflict(&live, hold) {
                let overlap = interval.1.min(other.0.1) - interval.0;
                found.push(Violation {
                    invariant: "I1 exclusion",
                    key: key.clone(),
                    at: interval.0,
                    what: format!(
                        "{} ({:?}) was granted while {} ({:?}) held; {why}, for {}",
                        hold.id,
                        hold.mode,
                        other.1.id,
                        other.1.mode,
                        millis(overlap)
                    ),
                });
            }
            live.push((interval, hold));
        }
    }
    found
}

type Live<'a> = ((u64, u64), &'a Hold);

fn conflict<'a>(live: &[Live<'a>], hold: &Hold) -> Option<(Live<'a>, String)> {
    let last = *live.iter().max_by_key(|((_, to), _)| *to)?;
    if let Mode::Slot { of } = hold.mode {
        if let Some(other) = live.iter().find(|(_, h)| h.mode != hold.mode) {
            return Some((*other, "a slot beside another kind of hold".into()));
        }
        return (live.len() >= of as usize)
            .then(|| (last, format!("{} holders of {of} slots", live.len() + 1)));
    }
    if hold.mode == Mode::Read {
        let writer = live.iter().find(|(_, h)| h.mode != Mode::Read)?;
        return Some((*writer, "a reader beside a writer".into()));
    }
    Some((last, "both exclude all others".into()))
}
