//! I3: the store that checks tokens stays exact, whatever happens to the locks.

use std::collections::{HashMap, HashSet};

use super::Violation;
use crate::history::{History, What};

/// The fenced store never accepts a token smaller than one it has accepted before, never a write without a token,
/// and holds at the end exactly the accepted values, once each and in order.
pub fn fence(history: &History) -> Vec<Violation> {
    let mut found = Vec::new();
    let stored: HashMap<&String, (u64, &Vec<u64>)> = history
        .events()
        .iter()
        .filter_map(|e| match &e.what {
            What::Stored {
                key,
                fenced: true,
                values,
            } => Some((key, (e.at, values))),
            _ => None,
        })
        .collect();
    for (key, writes) in history.writes(true) {
        let mut violation = |at, what| {
            found.push(Violation {
                invariant: "I3 fenced store",
                key: key.clone(),
                at,
                what,
            });
        };
        let mut largest = None;
        for write in writes.iter().filter(|w| w.accepted) {
            match (write.token, largest) {
                (None, _) => violation(
                    write.at,
                    format!("a write of {} without a token was accepted", write.by),
                ),
                (Some(token), Some(most)) if token < most => {
                    violation(
                        write.at,
                        format!(
                            "a write of {} with token {token} was accepted after {most}",
                            write.by
                        ),
                    );
                }
                (token, _) => largest = token,
            }
        }
        let accepted: Vec<u64> = writes.iter().filter(|w| w.accepted).map(|w| w.value).collect();
        if let Some((at, values)) = stored.get(&key)
            && **values != accepted
        {
            let missing = accepted.iter().collect::<HashSet<_>>();
            let missing = missing.difference(&values.iter().collect()).count();
            violation(
                *at,
                format!(
                    "{} writes were accepted, {} values are stored, {missing} of the accepted are missing",
                    accepted.len(),
                    values.len()
                ),
            );
        }
    }
    found
}

/// How many accepted writes the unfenced store has lost: what happens without tokens.
pub fn lost_updates(history: &History) -> usize {
    let stored: HashMap<&String, HashSet<u64>> = history
        .events()
        .iter()
        .filter_map(|e| match &e.what {
            What::Stored {
                key,
                fenced: false,
                values,
            } => Some((key, values.iter().copied().collect())),
            _ => None,
        })
        .collect();
    history
        .writes(false)
        .iter()
        .filter_map(|(key, writes)| Some((stored.get(key)?, writes)))
        .map(|(values, writes)| {
            writes
                .iter()
                .filter(|w| w.accepted && !values.contains(&w.value))
                .count()
        })
        .sum()
}
