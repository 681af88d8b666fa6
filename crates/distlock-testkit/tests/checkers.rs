//! The checkers have teeth: hand-made bad histories are rejected, good ones accepted.
//!
//! Times are in milliseconds, leases last 100 ms unless renewed, the bounds are 50 ms.

use std::time::Duration;

use distlock_core::driver::Mode;
use distlock_testkit::check::{self, Bounds, Minimum, amount};
use distlock_testkit::history::{Event, History, HoldId, HowReleased, What};

const TTL: u64 = 100;

fn bounds() -> Bounds {
    Bounds {
        takeover: Duration::from_millis(50),
        death_at_once: true,
        handoff: Duration::from_millis(50),
        told: Duration::from_millis(50),
    }
}

/// A history in the making. `p` is the process; each process has its holds numbered by the caller.
#[derive(Default, Clone)]
struct Made(Vec<Event>);

impl Made {
    fn at(mut self, ms: u64, process: u32, what: What) -> Self {
        let at = ms * 1_000_000;
        self.0.push(Event { at, process, what });
        self
    }
    fn ask_as(self, ms: u64, p: u32, hold: u64, mode: Mode, fifo: bool) -> Self {
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
    fn ask(self, ms: u64, p: u32, hold: u64) -> Self {
        self.ask_as(ms, p, hold, Mode::Mutex, false)
    }
    fn line(self, ms: u64, p: u32, hold: u64, place: Option<u64>) -> Self {
        self.ask_as(ms, p, hold, Mode::Mutex, true)
            .at(ms, p, What::Queued { hold, place })
    }
    fn grant(self, ms: u64, p: u32, hold: u64, token: u64) -> Self {
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
    fn valid(self, ms: u64, p: u32, hold: u64, until: u64) -> Self {
        let until = until * 1_000_000;
        self.at(ms, p, What::Looks { hold })
            .at(ms, p, What::Valid { hold, until })
    }
    fn held(self, ms: u64, p: u32, hold: u64, held: bool) -> Self {
        self.at(ms, p, What::Looks { hold })
            .at(ms, p, What::Held { hold, held })
    }
    fn lost(self, ms: u64, p: u32, hold: u64, why: &str) -> Self {
        self.at(
            ms,
            p,
            What::Lost {
                hold,
                why: why.into(),
            },
        )
    }
    fn release(self, ms: u64, p: u32, hold: u64, how: HowReleased) -> Self {
        self.at(ms, p, What::Releases { hold })
            .at(ms + 1, p, What::Released { hold, how })
    }
    fn free(self, ms: u64, p: u32, hold: u64) -> Self {
        self.release(ms, p, hold, HowReleased::Freed)
    }
    /// Asks, holds for 10 ms and releases.
    fn section(self, ms: u64, p: u32, hold: u64, token: u64) -> Self {
        self.ask(ms, p, hold)
            .grant(ms, p, hold, token)
            .free(ms + 10, p, hold)
    }
    fn harness(self, ms: u64, what: What) -> Self {
        self.at(ms, 0, what)
    }
    fn write(self, ms: u64, p: u32, hold: u64, token: Option<u64>, value: u64, accepted: bool) -> Self {
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
    fn stored(self, ms: u64, values: &[u64]) -> Self {
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
    fn until(self, ms: u64) -> Self {
        self.harness(
            ms,
            What::Healed {
                class: "none".into(),
                target: String::new(),
            },
        )
    }
    fn history(self) -> History {
        History::new(self.0)
    }
}

fn made() -> Made {
    Made::default()
}

#[track_caller]
fn good(made: Made) {
    let found = check::all(&made.history(), &bounds());
    assert!(found.is_empty(), "a good history was rejected: {found:#?}");
}

#[track_caller]
fn bad(invariant: &str, made: Made) {
    let found = check::all(&made.history(), &bounds());
    assert!(
        found.iter().any(|v| v.invariant.starts_with(invariant)),
        "{invariant} was not found broken, only {found:#?}"
    );
}

const KILL_1: What = What::Killed { victim: 1 };
const STOP_1: What = What::Stopped { victim: 1 };
const CONT_1: What = What::Continued { victim: 1 };

#[test]
fn exclusion() {
    good(made().section(0, 1, 1, 1).section(20, 2, 1, 2));
    // A stopped holder's validity ends by itself, however late it learns of it.
    good(
        made()
            .ask(0, 1, 1)
            .grant(0, 1, 1, 1)
            .ask(1, 2, 1)
            .harness(10, STOP_1)
            .grant(110, 2, 1, 2)
            .free(120, 2, 1)
            .harness(300, CONT_1)
            .held(301, 1, 1, false)
            .release(302, 1, 1, HowReleased::NotHeld),
    );
    // Two writers.
    bad(
        "I1",
        made()
            .ask(0, 1, 1)
            .grant(0, 1, 1, 1)
            .section(5, 2, 1, 2)
            .free(20, 1, 1),
    );
    // The second was granted before the stopped holder's validity had ended.
    bad(
        "I1",
        made()
            .ask(0, 1, 1)
            .grant(0, 1, 1, 1)
            .ask(1, 2, 1)
            .harness(10, STOP_1)
            .grant(90, 2, 1, 2)
            .harness(300, CONT_1)
            .lost(301, 1, 1, "expired")
            .free(302, 2, 1),
    );
    // A renewed holder.
    bad(
        "I1",
        made()
            .ask(0, 1, 1)
            .grant(0, 1, 1, 1)
            .valid(50, 1, 1, 150)
            .section(120, 2, 1, 2)
            .free(140, 1, 1),
    );
}

fn shared(made: Made, from: u64, to: u64, p: u32, mode: Mode) -> Made {
    let until = (from + TTL) * 1_000_000;
    made.ask_as(from, p, 1, mode, false)
        .at(
            from,
            p,
            What::Granted {
                hold: 1,
                token: None,
                until,
            },
        )
        .free(to, p, 1)
}

#[test]
fn exclusion_of_readers_writers_and_slots() {
    let slot = Mode::Slot { of: 2 };
    good(shared(
        shared(made(), 0, 50, 1, Mode::Read),
        10,
        60,
        2,
        Mode::Read,
    ));
    good(shared(
        shared(shared(made(), 0, 50, 1, slot), 10, 60, 2, slot),
        52,
        70,
        3,
        slot,
    ));
    bad(
        "I1",
        shared(shared(made(), 0, 50, 1, Mode::Read), 10, 60, 2, Mode::Write),
    );
    bad(
        "I1",
        shared(shared(made(), 0, 50, 1, Mode::Write), 10, 60, 2, Mode::Read),
    );
    bad(
        "I1",
        shared(
            shared(shared(made(), 0, 50, 1, slot), 10, 60, 2, slot),
            20,
            70,
            3,
            slot,
        ),
    );
    bad(
        "I1",
        shared(shared(made(), 0, 50, 1, slot), 10, 60, 2, Mode::Mutex),
    );
}

#[test]
fn tokens() {
    good(made().section(0, 1, 1, 5).section(20, 2, 1, 9));
    let inner = |token| What::Reentered {
        hold: 1,
        token: Some(token),
    };
    good(
        made()
            .ask(0, 1, 1)
            .grant(0, 1, 1, 5)
            .at(1, 1, inner(5))
            .free(2, 1, 1),
    );
    bad("I2", made().section(0, 1, 1, 5).section(20, 2, 1, 5));
    bad("I2", made().section(0, 1, 1, 5).section(20, 2, 1, 4));
    // Back behind the last but one.
    bad(
        "I2",
        made()
            .section(0, 1, 1, 5)
            .section(20, 2, 1, 7)
            .section(40, 3, 1, 6),
    );
    bad(
        "I2",
        made()
            .ask(0, 1, 1)
            .grant(0, 1, 1, 5)
            .at(1, 1, inner(6))
            .free(2, 1, 1),
    );
}

#[test]
fn fenced_store() {
    let base = || made().section(0, 1, 1, 1).section(20, 2, 1, 2);
    good(
        base()
            .write(5, 1, 1, Some(1), 100, true)
            .write(25, 2, 1, Some(2), 101, true)
            .stored(50, &[100, 101]),
    );
    // The stale write is refused; the same token may write twice.
    good(
        base()
            .write(25, 2, 1, Some(2), 101, true)
            .write(26, 2, 1, Some(2), 102, true)
            .write(27, 1, 1, Some(1), 103, false)
            .stored(50, &[101, 102]),
    );
    bad(
        "I3",
        base()
            .write(25, 2, 1, Some(2), 101, true)
            .write(26, 1, 1, Some(1), 102, true),
    );
    bad("I3", base().write(5, 1, 1, Some(1), 100, true).stored(50, &[]));
    bad(
        "I3",
        base().write(5, 1, 1, Some(1), 100, true).stored(50, &[100, 100]),
    );
    bad("I3", base().write(5, 1, 1, None, 100, true));
}

#[test]
fn release() {
    let stale = |how| {
        made()
            .ask(0, 1, 1)
            .grant(0, 1, 1, 1)
            .lost(99, 1, 1, "expired")
            .ask(1, 2, 1)
            .grant(110, 2, 1, 2)
            .release(120, 1, 1, how)
    };
    good(stale(HowReleased::NotHeld).free(140, 2, 1));
    // Somebody else's loss of its lease much later is not the stale release's doing.
    good(stale(HowReleased::NotHeld).lost(209, 2, 1, "expired"));
    bad("I4", stale(HowReleased::Freed).free(140, 2, 1));
    bad("I4", stale(HowReleased::NotHeld).lost(130, 2, 1, "taken"));
}

#[test]
fn no_resurrection() {
    let held = || made().ask(0, 1, 1).grant(0, 1, 1, 1);
    good(
        held()
            .valid(60, 1, 1, 160)
            .valid(120, 1, 1, 220)
            .held(121, 1, 1, true)
            .free(130, 1, 1),
    );
    good(
        held()
            .lost(99, 1, 1, "expired")
            .held(100, 1, 1, false)
            .section(110, 2, 1, 2),
    );
    // Renewed after its loss was told.
    bad("I5", held().lost(99, 1, 1, "expired").valid(120, 1, 1, 220));
    // Renewed from a moment at which somebody else had been granted.
    bad(
        "I5",
        held().section(110, 2, 1, 2).valid(130, 1, 1, 230).free(140, 1, 1),
    );
    // Renewed after its release.
    bad("I5", held().free(20, 1, 1).valid(60, 1, 1, 160));
    // Not held, then held again.
    bad(
        "I5",
        held().held(50, 1, 1, false).held(60, 1, 1, true).free(70, 1, 1),
    );
}

#[test]
fn recovery() {
    let waiting = || made().ask(0, 1, 1).grant(0, 1, 1, 1).ask(5, 2, 1);
    good(waiting().harness(50, KILL_1).grant(52, 2, 1, 2).free(60, 2, 1));
    good(waiting().harness(50, STOP_1).grant(152, 2, 1, 2).free(160, 2, 1));
    // The dead holder's lock is free at once, but nobody is granted.
    bad(
        "I6",
        waiting().harness(50, KILL_1).grant(140, 2, 1, 2).free(160, 2, 1),
    );
    // Nobody is granted at all.
    bad("I6", waiting().harness(50, KILL_1).until(400));
    // A stopped holder keeps the lock long past its lease.
    bad(
        "I6",
        waiting().harness(50, STOP_1).grant(300, 2, 1, 2).free(310, 2, 1),
    );
    // A waiter that was itself stopped all the time has nothing to complain of.
    good(
        waiting()
            .harness(40, What::Stopped { victim: 2 })
            .harness(50, KILL_1)
            .harness(300, What::Continued { victim: 2 })
            .grant(302, 2, 1, 2)
            .free(310, 2, 1),
    );

    let run = waiting()
        .harness(50, KILL_1)
        .grant(52, 2, 1, 2)
        .free(60, 2, 1)
        .history();
    let takeovers = check::takeovers(&run, &bounds());
    assert_eq!(takeovers.len(), 1);
    assert!(takeovers[0].killed);
    assert_eq!(takeovers[0].took(), 2_000_000);
}

#[test]
fn wakeup() {
    let waiting = || made().ask(0, 1, 1).grant(0, 1, 1, 1).ask(5, 2, 1).free(20, 1, 1);
    good(waiting().grant(25, 2, 1, 2).free(30, 2, 1));
    good(
        waiting()
            .at(
                30,
                2,
                What::Refused {
                    hold: 1,
                    maybe: false,
                    why: "timeout".into(),
                },
            )
            .until(500),
    );
    bad("I7", waiting().until(500));
    bad("I7", waiting().grant(120, 2, 1, 2).free(130, 2, 1));
    // Of two waiters one was granted and left; the other was forgotten.
    bad(
        "I7",
        waiting()
            .ask(6, 3, 1)
            .grant(25, 2, 1, 2)
            .free(30, 2, 1)
            .until(500),
    );
}

#[test]
fn fifo() {
    let line = |a, b| {
        made()
            .ask(0, 9, 1)
            .grant(0, 9, 1, 1)
            .line(5, 1, 1, a)
            .line(10, 2, 1, b)
            .free(20, 9, 1)
    };
    good(
        line(None, None)
            .grant(22, 1, 1, 2)
            .free(30, 1, 1)
            .grant(32, 2, 1, 3)
            .free(40, 2, 1),
    );
    // The first one left in time.
    good(
        line(None, None)
            .at(
                15,
                1,
                What::Refused {
                    hold: 1,
                    maybe: false,
                    why: "timeout".into(),
                },
            )
            .grant(22, 2, 1, 2)
            .free(30, 2, 1),
    );
    bad(
        "I8",
        line(None, None)
            .grant(22, 2, 1, 2)
            .free(30, 2, 1)
            .grant(32, 1, 1, 3)
            .free(40, 1, 1),
    );
    bad(
        "I8",
        line(Some(3), Some(2))
            .grant(22, 1, 1, 2)
            .free(30, 1, 1)
            .grant(32, 2, 1, 3)
            .free(40, 2, 1),
    );
}

#[test]
fn loss_is_told() {
    let held = || made().ask(0, 1, 1).grant(0, 1, 1, 1);
    good(held().lost(101, 1, 1, "expired").until(500));
    good(
        held()
            .harness(50, STOP_1)
            .harness(400, CONT_1)
            .held(401, 1, 1, false)
            .until(900),
    );
    good(
        held()
            .held(90, 1, 1, true)
            .valid(91, 1, 1, 180)
            .held(170, 1, 1, true)
            .free(171, 1, 1),
    );
    // Never told.
    bad("I11", held().until(500));
    // Told much too late.
    bad("I11", held().lost(300, 1, 1, "expired"));
    // Believes after a stop that it still holds.
    bad(
        "I11",
        held()
            .harness(50, STOP_1)
            .harness(400, CONT_1)
            .held(401, 1, 1, true)
            .lost(402, 1, 1, "expired"),
    );
    // Told late after a stop.
    bad(
        "I11",
        held()
            .harness(50, STOP_1)
            .harness(400, CONT_1)
            .lost(500, 1, 1, "expired")
            .until(501),
    );
}

#[test]
fn leaks() {
    good(made().section(0, 1, 1, 1));
    bad(
        "I12",
        made().section(0, 1, 1, 1).harness(
            100,
            What::Left {
                thing: "record of k".into(),
            },
        ),
    );
    bad(
        "I12",
        made().harness(
            100,
            What::Left {
                thing: "file bell-1".into(),
            },
        ),
    );
}

#[test]
fn a_run_that_did_too_little_is_vacuous() {
    let run = made()
        .ask(0, 1, 1)
        .grant(0, 1, 1, 1)
        .ask(5, 2, 1)
        .harness(50, KILL_1)
        .grant(52, 2, 1, 2)
        .free(60, 2, 1)
        .history();
    let done = amount(&run, &bounds());
    let all = Minimum {
        grants: 2,
        contended: 1,
        kills: 1,
        stops: 0,
        faults: 0,
        takeovers: 1,
    };
    assert_eq!(done, all);
    assert!(all.missed(&done).is_empty());
    for more in [
        Minimum { grants: 3, ..all },
        Minimum { contended: 2, ..all },
        Minimum { kills: 2, ..all },
        Minimum { stops: 1, ..all },
        Minimum { faults: 1, ..all },
        Minimum { takeovers: 2, ..all },
    ] {
        assert_eq!(more.missed(&done).len(), 1, "{more:?}");
    }
}

#[test]
fn a_history_reads_back_as_written() {
    let dir = tempfile::tempdir().unwrap();
    let run = made()
        .line(0, 1, 1, Some(7))
        .grant(1, 1, 1, 5)
        .write(2, 1, 1, Some(5), 9, true)
        .free(3, 1, 1);
    let run = run.history();
    run.write(&dir.path().join("a.jsonl")).unwrap();
    // The last line of a killed process may be cut short.
    std::fs::write(dir.path().join("b.jsonl"), "{\"at\":5,\"pro").unwrap();
    assert_eq!(History::read(dir.path()).unwrap().events(), run.events());
    std::fs::write(dir.path().join("b.jsonl"), "rubbish\n").unwrap();
    History::read(dir.path()).unwrap_err();
}
