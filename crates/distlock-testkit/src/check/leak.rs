//! I12: nothing is left behind.

use super::Violation;
use crate::history::{History, What};

/// Whatever the scan after the run has found is a leak.
pub fn leak(history: &History) -> Vec<Violation> {
    history
        .events()
        .iter()
        .filter_map(|e| match &e.what {
            What::Left { thing } => Some(Violation {
                invariant: "I12 nothing leaks",
                key: String::new(),
                at: e.at,
                what: format!("left behind: {thing}"),
            }),
            _ => None,
        })
        .collect()
}
