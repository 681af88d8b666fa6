//! Who holds: exclusion, tokens, the fenced store, release.

use distlock_core::driver::Mode;
use distlock_testkit::history::{HowReleased, What};

use crate::made::*;

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
