//! I8: first come, first served.

use super::Violation;
use crate::history::{History, Hold};

/// Of two waiters that insist on their turn, the one that was known to be in line before the other asked, or has
/// the earlier place, is granted first, unless it left.
pub fn fifo(history: &History) -> Vec<Violation> {
    let mut found = Vec::new();
    for (key, all) in history.by_key() {
        let mut line: Vec<(&Hold, u64, Option<u64>)> = all
            .holds()
            .iter()
            .filter(|h| h.fifo)
            .filter_map(|h| Some((h, h.queued?.0, h.queued?.1)))
            .collect();
        line.sort_by_key(|(h, at, _)| (*at, h.id));
        for (n, (first, queued, place)) in line.iter().enumerate() {
            let (_, left) = first.wait(u64::MAX);
            // Those that joined after it had left cannot have passed it.
            for (second, _, other) in line[n + 1..].iter().take_while(|(_, joined, _)| *joined <= left) {
                let earlier = match (place, other) {
                    (Some(a), Some(b)) => a < b,
                    _ => *queued < second.asked,
                };
                let (first, second) = if earlier {
                    (first, second)
                } else if matches!((place, other), (Some(a), Some(b)) if b < a) {
                    (second, first)
                } else {
                    continue;
                };
                let Some(passed) = second.granted else { continue };
                let (_, waited) = first.wait(u64::MAX);
                // Readers that enter together have no order among themselves.
                if waited > passed
                    && (first.excludes(second) || first.mode == second.mode && first.mode.is_slot())
                {
                    found.push(Violation {
                        invariant: "I8 fifo",
                        key: key.clone(),
                        at: passed,
                        what: format!(
                            "{} was granted before {}, which had come first",
                            second.id, first.id
                        ),
                    });
                }
            }
        }
    }
    found
}

trait IsSlot {
    fn is_slot(&self) -> bool;
}

impl IsSlot for distlock_core::driver::Mode {
    fn is_slot(&self) -> bool {
        matches!(self, Self::Slot { .. })
    }
}
