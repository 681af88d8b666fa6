//! Whole runs: leaks, too little done, files.

use distlock_testkit::check::{Minimum, amount};
use distlock_testkit::history::{History, What};

use crate::made::*;

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
