//! I5: no resurrection.

use super::Violation;
use crate::history::History;

/// Validities are told as lengths of time and added to a stamp; they differ by as much without a renewal.
const JITTER: u64 = 1_000_000;

/// A guard's validity never grows once somebody else was granted, and never after its holder was told of the loss
/// or called release; a guard that answered "not held" never answers "held" again.
pub fn renew(history: &History) -> Vec<Violation> {
    let mut found = Vec::new();
    for (key, all) in history.by_key() {
        for hold in all.holds() {
            let mut violation = |at, what| {
                found.push(Violation {
                    invariant: "I5 no resurrection",
                    key: key.clone(),
                    at,
                    what,
                });
            };
            for pair in hold.valid.windows(2) {
                let (_, _, before) = pair[0];
                let (looked, told, until) = pair[1];
                if until <= before.saturating_add(JITTER) || until <= looked {
                    continue;
                }
                if let Some((lost, _)) = &hold.lost
                    && looked > *lost
                {
                    violation(
                        told,
                        format!("{} was renewed after it had been told that it was lost", hold.id),
                    );
                }
                if hold.released.is_some_and(|(at, _)| looked > at) {
                    violation(told, format!("{} was renewed after its release", hold.id));
                }
                // The renewal was asked for no earlier than this, since it granted no more than the whole lease.
                let asked = until.saturating_sub(hold.ttl);
                let granted = hold.granted.unwrap_or(u64::MAX);
                let mut taken = all.granted_between(granted, asked);
                if let Some(other) = taken.find(|other| other.excludes(hold)) {
                    violation(
                        told,
                        format!("{} was renewed after {} had been granted", hold.id, other.id),
                    );
                }
            }
            let mut over = hold.lost.as_ref().map(|(at, _)| *at);
            for (asked, at, held) in &hold.answers {
                match over {
                    Some(since) if *held && *asked > since => {
                        violation(*at, format!("{} answers \"held\" after its end", hold.id));
                    }
                    None if !*held => over = Some(*at),
                    _ => {}
                }
            }
        }
    }
    found
}
