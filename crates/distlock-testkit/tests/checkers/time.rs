//! When: renewal, recovery, wake-ups, order, loss.

use distlock_core::driver::Mode;
use distlock_testkit::check;
use distlock_testkit::history::What;

use crate::made::*;

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
    // A reader came first, and goes on for long.
    let shared = What::Granted {
        hold: 1,
        token: None,
        until: 152_000_000,
    };
    let reader = || waiting().harness(50, KILL_1).ask_as(51, 3, 1, Mode::Read, false);
    good(
        reader()
            .at(52, 3, shared.clone())
            .valid(120, 3, 1, 220)
            .free(200, 3, 1)
            .grant(202, 2, 1, 2)
            .free(210, 2, 1),
    );
    bad(
        "I6",
        reader()
            .at(52, 3, shared)
            .free(60, 3, 1)
            .grant(202, 2, 1, 2)
            .free(210, 2, 1),
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
