//! I11: a loss is told in time.

use super::{Bounds, Violation, millis, nanos};
use crate::history::History;

/// A guard never answers "held" past its validity, and a holder that runs is told of the end of its validity within
/// the bound, or within the bound after it was continued.
pub fn loss(history: &History, bounds: &Bounds) -> Vec<Violation> {
    let slack = nanos(bounds.told);
    let mut found = Vec::new();
    for hold in history.holds() {
        if hold.granted.is_none() {
            continue;
        }
        let mut violation = |at, what| {
            found.push(Violation {
                invariant: "I11 loss told",
                key: hold.key.clone(),
                at,
                what,
            });
        };
        let until_at = |at: u64| {
            let told = hold.valid.iter().filter(|(looked, ..)| *looked <= at);
            told.map(|v| v.2).max().unwrap_or(0)
        };
        for (asked, at, held) in &hold.answers {
            // A renewal that the holder looked at only later may have been good for one more lease.
            let renewed = hold.valid.iter().any(|(_, _, until)| until > asked);
            if *held && *asked > until_at(*asked) && !renewed {
                violation(
                    *at,
                    format!(
                        "{} answers \"held\" {} past its validity",
                        hold.id,
                        millis(asked - until_at(*asked))
                    ),
                );
            }
        }
        // Must be told by then: the end of its validity, or later if it could not run.
        let mut due = hold.until();
        for &(stopped, going) in history.stops(hold.id.process) {
            if stopped <= due.saturating_add(slack) && going > due {
                due = going;
            }
        }
        let due = due.saturating_add(slack);
        let over = [
            hold.lost.as_ref().map(|l| l.0),
            hold.releases,
            hold.killed,
            hold.answers.iter().find(|(.., held)| !held).map(|(_, at, _)| *at),
        ];
        let over = over.into_iter().flatten().min().unwrap_or(u64::MAX);
        if over > due && history.end() > due {
            violation(due, format!("{} ran past its validity and was not told", hold.id));
        }
    }
    found
}
