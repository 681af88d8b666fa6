//! Histories made by hand.

use std::time::Duration;

use distlock_core::driver::Mode;
use distlock_testkit::check::{self, Bounds};
use distlock_testkit::history::{Event, History, HoldId, HowReleased, What};

pub(crate) const TTL: u64 = 100;

pub(crate) fn bounds() -> Bounds {
    Bounds {
        takeover: Duration::from_millis(50),
        death_at_once: true,
        dead_waiter: Duration::ZERO,
        handoff: Duration::from_millis(50),
        told: Duration::from_millis(50),
    }
}

/// A history in the making. `p` is the process; each process has its holds numbered by the caller.
#[derive(Default, Clone)]
pub(crate) struct Made(pub(crate) Vec<Event>);

impl Made {
    pub(crate) fn at(mut self, ms: u64, process: u32, what: What) -> Self {
        let at = ms * 1_000_000;
        self.0.push(Event { at, process, what });
        self
    }
    pub(crate) fn ask_as(self, ms: u64, p: u32, hold: u64, mode: Mode, fifo: bool) -> Self {
        let (key, ttl) = ("k".into(), TTL * 1_000_000);
        self.at(
            ms,
            p,
            What::Asked {
                hold,
                task: 0,
                key,
                mode,
                fifo,
                ttl,
            },
        )
    }
    pub(crate) fn ask(self, ms: u64, p: u32, hold: u64) -> Self {
        self.ask_as(ms, p, hold, Mode::Mutex, false)
    }
    pub(crate) fn line(self, ms: u64, p: u32, hold: u64, place: Option<u64>) -> Self {
        self.ask_as(ms, p, hold, Mode::Mutex, true)
            .at(ms, p, What::Queued { hold, place })
    }
    pub(crate) fn grant(self, ms: u64, p: u32, hold: u64, token: u64) -> Self {
        let until = (ms + TTL) * 1_000_000;
        self.at(
            ms,
            p,
            What::Granted {
                hold,
                token: Some(token),
                until,
            },
        )
    }
    pub(crate) fn valid(self, ms: u64, p: u32, hold: u64, until: u64) -> Self {
        let until = until * 1_000_000;
        self.at(ms, p, What::Looks { hold })
            .at(ms, p, What::Valid { hold, until })
    }
    pub(crate) fn held(self, ms: u64, p: u32, hold: u64, held: bool) -> Self {
        self.at(ms, p, What::Looks { hold })
            .at(ms, p, What::Held { hold, held })
    }
    pub(crate) fn lost(self, ms: u64, p: u32, hold: u64, why: &str) -> Self {
        self.at(
            ms,
            p,
            What::Lost {
                hold,
                why: why.into(),
            },
        )
    }
    pub(crate) fn release(self, ms: u64, p: u32, hold: u64, how: HowReleased) -> Self {
        self.at(ms, p, What::Releases { hold })
            .at(ms + 1, p, What::Released { hold, how })
    }
    pub(crate) fn free(self, ms: u64, p: u32, hold: u64) -> Self {
        self.release(ms, p, hold, HowReleased::Freed)
    }
    /// Asks, holds for 10 ms and releases.
    pub(crate) fn section(self, ms: u64, p: u32, hold: u64, token: u64) -> Self {
        self.ask(ms, p, hold)
            .grant(ms, p, hold, token)
            .free(ms + 10, p, hold)
    }
    pub(crate) fn harness(self, ms: u64, what: What) -> Self {
        self.at(ms, 0, what)
    }
    pub(crate) fn write(
        self,
        ms: u64,
        p: u32,
        hold: u64,
        token: Option<u64>,
        value: u64,
        accepted: bool,
    ) -> Self {
        let by = HoldId { process: p, hold };
        self.at(
            ms,
            0,
            What::Wrote {
                by,
                key: "k".into(),
                token,
                fenced: true,
                value,
                accepted,
            },
        )
    }
    pub(crate) fn stored(self, ms: u64, values: &[u64]) -> Self {
        self.at(
            ms,
            0,
            What::Stored {
                key: "k".into(),
                fenced: true,
                values: values.to_vec(),
            },
        )
    }
    /// Lets time pass to this moment.
    pub(crate) fn until(self, ms: u64) -> Self {
        self.harness(
            ms,
            What::Healed {
                class: "none".into(),
                target: String::new(),
            },
        )
    }
    pub(crate) fn history(self) -> History {
        History::new(self.0)
    }
}

pub(crate) fn made() -> Made {
    Made::default()
}

#[track_caller]
pub(crate) fn good(made: Made) {
    let found = check::all(&made.history(), &bounds());
    assert!(found.is_empty(), "a good history was rejected: {found:#?}");
}

#[track_caller]
pub(crate) fn bad(invariant: &str, made: Made) {
    let found = check::all(&made.history(), &bounds());
    assert!(
        found.iter().any(|v| v.invariant.starts_with(invariant)),
        "{invariant} was not found broken, only {found:#?}"
    );
}

pub(crate) const KILL_1: What = What::Killed { victim: 1 };
pub(crate) const STOP_1: What = What::Stopped { victim: 1 };
pub(crate) const CONT_1: What = What::Continued { victim: 1 };
