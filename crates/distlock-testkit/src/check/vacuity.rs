//! A run that did too little proves nothing, and fails.

use super::{Bounds, Violation, takeovers};
use crate::history::{History, What};

/// How much a run did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Amount {
    /// Grants.
    pub grants: usize,
    /// Grants that somebody else had to wait for or that waited for somebody else.
    pub contended: usize,
    /// Kills of a holder.
    pub kills: usize,
    /// Stops of a holder past its validity.
    pub stops: usize,
    /// Faults of other kinds.
    pub faults: usize,
    /// Takeovers from holders that did not release.
    pub takeovers: usize,
}

/// Counts what a run did.
pub fn amount(history: &History, bounds: &Bounds) -> Amount {
    let mut amount = Amount::default();
    for all in history.by_key().values() {
        // A grant was contended if an earlier grant of the key still held when it was asked for.
        let mut busy_until = 0;
        for hold in all.granted() {
            amount.grants += 1;
            amount.contended += usize::from(hold.asked < busy_until);
            let over = hold.interval().map_or(0, |(_, to)| to);
            busy_until = busy_until.max(over);
            let during = |at: u64| hold.granted.is_some_and(|from| from <= at) && at <= hold.until();
            if hold.releases.is_none() {
                amount.kills += usize::from(hold.killed.is_some_and(during));
            }
            let stopped = history.stops(hold.id.process).iter().any(|(from, to)| {
                during(*from) && *to > hold.until() && hold.releases.is_none_or(|at| at > *to)
            });
            amount.stops += usize::from(stopped);
        }
    }
    let faults = history.events().iter();
    amount.faults = faults.filter(|e| matches!(e.what, What::Fault { .. })).count();
    amount.takeovers = takeovers(history, bounds).len();
    amount
}

/// What a run must have done at least.
pub type Minimum = Amount;

impl Minimum {
    /// What fell short.
    pub fn missed(&self, done: &Amount) -> Vec<Violation> {
        let pairs = [
            ("grants", self.grants, done.grants),
            ("contended grants", self.contended, done.contended),
            ("kills of holders", self.kills, done.kills),
            ("holders stopped past their lease", self.stops, done.stops),
            ("faults", self.faults, done.faults),
            ("takeovers", self.takeovers, done.takeovers),
        ];
        pairs
            .into_iter()
            .filter(|(_, want, have)| have < want)
            .map(|(name, want, have)| Violation {
                invariant: "vacuous run",
                key: String::new(),
                at: 0,
                what: format!("{have} {name}, at least {want} wanted"),
            })
            .collect()
    }
}
