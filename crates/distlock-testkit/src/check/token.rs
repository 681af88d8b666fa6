//! I2: tokens are unique and grow.

use std::collections::HashMap;

use super::Violation;
use crate::history::{History, Hold};

/// Every exclusive grant has a token of its own; a grant that was asked for after another one had been answered has
/// the larger one; a re-entry has the token of its hold.
pub fn token(history: &History) -> Vec<Violation> {
    let mut found = Vec::new();
    for (key, all) in history.by_key() {
        let mut violation = |at, what| {
            found.push(Violation {
                invariant: "I2 token",
                key: key.clone(),
                at,
                what,
            });
        };
        let granted: Vec<(u64, u64, &Hold)> = all
            .holds()
            .iter()
            .filter(|h| h.mode.is_exclusive())
            .filter_map(|h| Some((h.granted?, h.token?, h)))
            .collect();
        let mut seen: HashMap<u64, &Hold> = HashMap::new();
        for (at, token, hold) in &granted {
            if let Some(other) = seen.insert(*token, hold) {
                violation(
                    *at,
                    format!("{} and {} both have token {token}", other.id, hold.id),
                );
            }
        }
        // `granted` is in order of asking; walk the answers beside it and keep the largest token answered so far.
        let mut answers = granted.clone();
        answers.sort_by_key(|(at, ..)| *at);
        let mut answered = answers.iter().peekable();
        let mut largest: Option<(u64, &Hold)> = None;
        for (at, token, hold) in &granted {
            while let Some((_, earlier, by)) = answered.next_if(|(at, ..)| *at <= hold.asked) {
                if largest.is_none_or(|(most, _)| most < *earlier) {
                    largest = Some((*earlier, by));
                }
            }
            if let Some((most, by)) = largest
                && *token <= most
                && by.id != hold.id
            {
                violation(
                    *at,
                    format!(
                        "{} was granted token {token} after {} had been granted {most}",
                        hold.id, by.id
                    ),
                );
            }
        }
        for hold in all.holds() {
            for (at, inner) in &hold.reentered {
                if *inner != hold.token {
                    violation(
                        *at,
                        format!(
                            "{} holds with token {:?} and re-entered with {inner:?}",
                            hold.id, hold.token
                        ),
                    );
                }
            }
        }
    }
    found
}
