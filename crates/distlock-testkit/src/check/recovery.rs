//! I6: the lock of a holder that died or stood still is taken over in time, and never early.

use std::time::Duration;

use super::{Bounds, Violation, millis, nanos};
use crate::history::{History, Hold};

/// A lock that passed from a holder that did not release to the next one.
#[derive(Debug, Clone)]
pub struct Takeover {
    /// The lock's name.
    pub key: String,
    /// Whether the earlier holder was killed; else it was stopped or lost its lease.
    pub killed: bool,
    /// From when the takeover was possible: the kill, or the end of the earlier holder's validity.
    pub from: u64,
    /// The grant to the next holder.
    pub at: u64,
}

impl Takeover {
    /// How long it took, in nanoseconds; 0 if it came before `from` (the validity has a margin taken off).
    pub fn took(&self) -> u64 {
        self.at.saturating_sub(self.from)
    }
}

/// When the lock of a holder that does not release is free at the latest.
fn free(history: &History, bounds: &Bounds, dead: &Hold) -> u64 {
    match dead.killed.filter(|at| *at < dead.until()) {
        Some(at) if bounds.death_at_once => at,
        // It may have been renewed once more, unseen, at the last moment before it died or stood still.
        Some(at) => dead.until().max(at.saturating_add(dead.ttl)),
        None => history
            .stops(dead.id.process)
            .iter()
            .filter(|(stopped, going)| *stopped <= dead.until() && *going > dead.until())
            .map(|(stopped, _)| stopped.saturating_add(dead.ttl))
            .fold(dead.until(), u64::max),
    }
}

/// All takeovers for which somebody was waiting, and the ones that did not come in time.
fn scan(history: &History, bounds: &Bounds) -> (Vec<Takeover>, Vec<Violation>) {
    let (mut done, mut found) = (Vec::new(), Vec::new());
    for (key, all) in history.by_key() {
        let (granted, shared): (Vec<&Hold>, Vec<&Hold>) = all.granted().partition(|h| h.mode.is_exclusive());
        for (n, dead) in granted.iter().enumerate() {
            // Released in time, or a release under way when the process died: nothing to recover from.
            if dead.releases.is_some_and(|at| at < dead.until()) {
                continue;
            }
            let killed = dead.killed.filter(|at| *at < dead.until());
            let next = granted.get(n + 1).and_then(|next| Some((next.granted?, next)));
            if let Some((at, next)) = next {
                // What is known, not what is allowed for.
                let known = killed.filter(|_| bounds.death_at_once).unwrap_or(dead.until());
                done.push(Takeover {
                    key: key.clone(),
                    killed: killed.is_some(),
                    from: known.max(next.asked),
                    at,
                });
            }
            let at = next.map_or(u64::MAX, |(at, _)| at);
            // Readers and permits that came first have to go as well, dead or alive.
            let before = shared
                .iter()
                .filter(|h| h.granted.is_some_and(|granted| granted < at));
            let from = before
                .map(|h| h.releases.unwrap_or(u64::MAX).min(free(history, bounds, h)))
                .fold(free(history, bounds, dead), u64::max);
            if let Some((waiter, late)) =
                waited_in_vain(history, all.holds(), from, at, bounds.takeover, bounds)
            {
                found.push(Violation {
                    invariant: "I6 recovery",
                    key: key.clone(),
                    at: late,
                    what: format!(
                        "{} was {}, and {} waited longer than {} for it",
                        dead.id,
                        if killed.is_some() {
                            "killed"
                        } else {
                            "past its lease"
                        },
                        waiter.id,
                        millis(nanos(bounds.takeover))
                    ),
                });
            }
        }
    }
    (done, found)
}

/// Somebody whose process ran and waited for all of `bound` since the lock was free at `from`, nobody having been
/// granted before `next`; and when that bound had passed.
pub(super) fn waited_in_vain<'a>(
    history: &History,
    holds: &'a [Hold],
    from: u64,
    next: u64,
    bound: Duration,
    bounds: &Bounds,
) -> Option<(&'a Hold, u64)> {
    let bound = nanos(bound);
    if next <= from.saturating_add(bound) || history.end() <= from.saturating_add(bound) {
        return None;
    }
    // Contenders that died or stood still meanwhile may have been granted without a trace; each may keep the others
    // waiting for its lease.
    let dead_waiter = nanos(bounds.dead_waiter);
    let died = |h: &Hold| {
        let memory = if bounds.death_at_once {
            0
        } else {
            h.ttl.max(dead_waiter)
        };
        let (_, to) = h.wait(u64::MAX);
        h.killed
            .is_some_and(|at| at.saturating_add(memory) >= from && at <= next && to == at)
    };
    let stood = |h: &Hold| {
        let (asked, to) = h.wait(u64::MAX);
        let stood = |&(stopped, going): &(u64, u64)| stopped <= next && going.saturating_add(bound) >= from;
        asked <= next && to >= from && history.stops(h.id.process).iter().any(stood)
    };
    let silent = holds.iter().filter(|h| died(h) || stood(h));
    let mut silent: u64 = silent.map(|h| h.ttl.saturating_add(bound)).sum();
    if holds.iter().any(died) {
        silent = silent.saturating_add(dead_waiter);
    }
    holds.iter().find_map(|h| {
        let (asked, to) = h.wait(history.end());
        let late = from.max(asked).saturating_add(bound).saturating_add(silent);
        let stood = |&(stopped, going): &(u64, u64)| stopped < late && going.saturating_add(bound) > from;
        let ran = !history.stops(h.id.process).iter().any(stood);
        (to.min(next) > late && ran).then_some((h, late))
    })
}

/// A waiter gets the lock of a dead or stopped holder within the bound. (That it never gets it too early is
/// [`exclusion`](super::exclusion()).)
pub fn recovery(history: &History, bounds: &Bounds) -> Vec<Violation> {
    scan(history, bounds).1
}

/// All takeovers of a run, for a histogram.
pub fn takeovers(history: &History, bounds: &Bounds) -> Vec<Takeover> {
    scan(history, bounds).0
}
