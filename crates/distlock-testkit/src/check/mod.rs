//! Checkers: pure functions from a [`History`] to what is wrong with it.
//!
//! | id | invariant |
//! |---|---|
//! | I1 | mutual exclusion of the times at which holders may believe that they hold |
//! | I2 | tokens are unique and grow |
//! | I3 | the fenced store is exact |
//! | I4 | a release frees only one's own |
//! | I5 | no resurrection: a hold that is over stays over |
//! | I6 | a dead or stopped holder's lock is taken over in time |
//! | I7 | no lost wake-up after a clean release |
//! | I8 | first come, first served, where asked for |
//! | I11 | a loss is told in time |
//! | I12 | nothing is left behind |
//!
//! The numbers that are missing need no history: reentrancy (I9) and ambiguity (I10) are conformance cases, and the
//! clients' independence of the wall clock (I13) is a way of running a worker.

mod exclusion;
mod fence;
mod fifo;
mod leak;
mod loss;
mod recovery;
mod release;
mod renew;
mod token;
mod vacuity;
mod wakeup;

use std::fmt;
use std::time::Duration;

pub use self::exclusion::exclusion;
pub use self::fence::{fence, lost_updates};
pub use self::fifo::fifo;
pub use self::leak::leak;
pub use self::loss::loss;
pub use self::recovery::{Takeover, recovery, takeovers};
pub use self::release::release;
pub use self::renew::renew;
pub use self::token::token;
pub use self::vacuity::{Amount, Minimum, amount};
pub use self::wakeup::wakeup;
use crate::history::History;

/// Something that must not have happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// The invariant, such as `I1 exclusion`.
    pub invariant: &'static str,
    /// The lock's name.
    pub key: String,
    /// When it shows, in nanoseconds of the histories' clock.
    pub at: u64,
    /// What happened.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: {:?} at {:.6} s: {}",
            self.invariant,
            self.key,
            self.at as f64 / 1e9,
            self.what
        )
    }
}

/// The times within which an engine must do things, each with the slack for a busy machine included.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// From the death of a holder to the next grant; counted from the kill if `death_at_once`, else from the end
    /// of the dead holder's validity.
    pub takeover: Duration,
    /// Whether the engine frees the lock of a dead process before its lease has run out.
    pub death_at_once: bool,
    /// How long a waiter that died in line may keep the others waiting, however many died with it.
    pub dead_waiter: Duration,
    /// From a clean release to the next grant when somebody waits.
    pub handoff: Duration,
    /// How late a holder may be told that its validity has ended, and how late after SIGCONT.
    pub told: Duration,
}

/// All checkers that hold for every engine and every fault that only hits clients.
pub fn all(history: &History, bounds: &Bounds) -> Vec<Violation> {
    let mut found = exclusion(history);
    found.extend(token(history));
    found.extend(fence(history));
    found.extend(release(history));
    found.extend(renew(history));
    found.extend(recovery(history, bounds));
    found.extend(wakeup(history, bounds));
    found.extend(fifo(history));
    found.extend(loss(history, bounds));
    found.extend(leak(history));
    found
}

fn nanos(d: Duration) -> u64 {
    u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)
}

fn millis(nanos: u64) -> String {
    format!("{:.3} ms", nanos as f64 / 1e6)
}
