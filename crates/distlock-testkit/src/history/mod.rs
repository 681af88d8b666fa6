//! What happened in a run: events of many processes on one clock, and the holds that they tell of.
//!
//! Every process stamps its events with the host's boot-time clock ([`now`]), the clock of the guards' own
//! deadlines, which all processes of a machine share: intervals of different processes compare exactly. An
//! *invoked* event is stamped before the call, its outcome after it. Events are written one JSON line at a time,
//! unbuffered, so that a killed process leaves all that it had seen.

mod file;
mod holds;

use std::collections::BTreeMap;

use distlock_core::driver::Mode;
use serde::{Deserialize, Serialize};

pub use self::file::Recorder;
pub use self::holds::{Hold, HoldId, KeyHistory, Write};

/// One event.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// When, in nanoseconds of the boot-time clock.
    pub at: u64,
    /// Which process; a number that the harness never gives twice. 0 is the harness itself.
    pub process: u32,
    /// What.
    #[serde(flatten)]
    pub what: What,
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "snake_case")]
pub enum What {
    /// A contender starts to acquire.
    Asked {
        /// The number of the contender in its process.
        hold: u64,
        /// The task that acts.
        task: u32,
        /// The lock's name.
        key: String,
        /// How it wants to hold it.
        #[serde(with = "ModeDef")]
        mode: Mode,
        /// Whether it insists on its turn.
        fifo: bool,
        /// The lease, in nanoseconds.
        ttl: u64,
    },
    /// The contender is known to have a place in line.
    Queued {
        /// The contender.
        hold: u64,
        /// Its place as the engine numbers them, where it does.
        place: Option<u64>,
    },
    /// It was granted.
    Granted {
        /// The contender.
        hold: u64,
        /// The fencing token.
        token: Option<u64>,
        /// Until when the guard is valid.
        until: u64,
    },
    /// It was not granted.
    Refused {
        /// The contender.
        hold: u64,
        /// Whether the engine may have granted it all the same.
        maybe: bool,
        /// The error's word.
        why: String,
    },
    /// The holder is about to look at its guard, or to renew by hand.
    Looks {
        /// The contender.
        hold: u64,
    },
    /// The guard says that it is valid until then. A later time than before means that a renewal succeeded.
    Valid {
        /// The contender.
        hold: u64,
        /// Until when.
        until: u64,
    },
    /// The guard answered whether it holds.
    Held {
        /// The contender.
        hold: u64,
        /// The answer.
        held: bool,
    },
    /// The holder was told that the hold is lost.
    Lost {
        /// The contender.
        hold: u64,
        /// The reason's word.
        why: String,
    },
    /// The holder acquired again, within its hold.
    Reentered {
        /// The contender.
        hold: u64,
        /// The token of the inner hold.
        token: Option<u64>,
    },
    /// The holder is about to release.
    Releases {
        /// The contender.
        hold: u64,
    },
    /// The release was answered.
    Released {
        /// The contender.
        hold: u64,
        /// The answer.
        how: HowReleased,
    },
    /// A store decided about a write. Stamped and written by the store, in its own order.
    Wrote {
        /// Whose write; process and contender.
        by: HoldId,
        /// The lock under which it was made.
        key: String,
        /// The token that came with it.
        token: Option<u64>,
        /// Whether this is the store that checks tokens.
        fenced: bool,
        /// The value, unique in the run.
        value: u64,
        /// The store's decision.
        accepted: bool,
    },
    /// The store's content at the end.
    Stored {
        /// The lock under which it was written.
        key: String,
        /// Whether this is the store that checks tokens.
        fenced: bool,
        /// All values, in order.
        values: Vec<u64>,
    },
    /// A process was sent SIGKILL.
    Killed {
        /// The victim.
        victim: u32,
    },
    /// A process was sent SIGSTOP.
    Stopped {
        /// The victim.
        victim: u32,
    },
    /// A process was sent SIGCONT.
    Continued {
        /// The victim.
        victim: u32,
    },
    /// A fault of another kind begins; locks may be lost for no reason that the histories show.
    Fault {
        /// Its kind.
        class: String,
        /// What it hits.
        target: String,
    },
    /// The fault is over.
    Healed {
        /// Its kind.
        class: String,
        /// What it hit.
        target: String,
    },
    /// Found after the run, when nothing should be left.
    Left {
        /// What and where.
        thing: String,
    },
}

/// How a release was answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HowReleased {
    /// It was held until now.
    Freed,
    /// It was not held any more.
    NotHeld,
    /// Nobody knows.
    Unsure,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "Mode", rename_all = "snake_case")]
pub(crate) enum ModeDef {
    Mutex,
    Write,
    Read,
    Slot { of: u32 },
}

/// Now, on the clock of all histories.
pub fn now() -> u64 {
    distlock_core::clock::Clock::boot().now().as_nanos()
}

/// All events of a run, in order of time.
#[derive(Debug, Clone, Default)]
pub struct History {
    events: Vec<Event>,
    lives: BTreeMap<u32, Life>,
}

/// What was done to a process.
#[derive(Debug, Clone, Default)]
struct Life {
    killed: Option<u64>,
    stops: Vec<(u64, u64)>,
}

impl History {
    /// Orders the events by time. Events of one moment keep their order, and each process' events must come in
    /// its own order.
    pub fn new(mut events: Vec<Event>) -> Self {
        events.sort_by_key(|e| e.at);
        let mut lives: BTreeMap<u32, Life> = BTreeMap::new();
        for Event { at, what, .. } in &events {
            match what {
                What::Killed { victim } => {
                    let life = lives.entry(*victim).or_default();
                    life.killed = life.killed.or(Some(*at));
                }
                What::Stopped { victim } => lives.entry(*victim).or_default().stops.push((*at, u64::MAX)),
                What::Continued { victim } => {
                    let life = lives.entry(*victim).or_default();
                    if let Some(last) = life.stops.last_mut().filter(|s| s.1 == u64::MAX) {
                        last.1 = *at;
                    }
                }
                _ => {}
            }
        }
        Self { events, lives }
    }

    /// The events, in order of time.
    pub fn events(&self) -> &[Event] {
        &self.events
    }

    /// The time of the last event; 0 if there is none.
    pub fn end(&self) -> u64 {
        self.events.last().map_or(0, |e| e.at)
    }

    /// When this process was killed, if it was.
    pub fn killed(&self, process: u32) -> Option<u64> {
        self.lives.get(&process)?.killed
    }

    /// The times during which this process was stopped.
    pub fn stops(&self, process: u32) -> &[(u64, u64)] {
        self.lives.get(&process).map_or(&[], |life| &life.stops)
    }
}
