//! `elect`: one leads, and who lost its term stands again.

use crate::stage::{KILL, Running, Stage, TERM, lives, until};

/// Says that it leads, with its token, and goes on until it is stopped.
const LEAD: &str = "echo $DISTLOCK_TOKEN $1 $$ >> terms; exec sleep 600";

fn candidate(stage: &Stage, name: &str) -> Running {
    stage.start(&[
        "elect", "--ttl", "2s", "office", "--", "sh", "-c", LEAD, "sh", name,
    ])
}

/// The terms so far: token, candidate, the command's process.
fn terms(stage: &Stage) -> Vec<(u64, String, i32)> {
    let text = stage.read("terms");
    let lines = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
    lines
        .map(|line| {
            let mut words = line.split_whitespace();
            let mut next = || words.next().unwrap().to_owned();
            (next().parse().unwrap(), next(), next().parse().unwrap())
        })
        .collect()
}

fn term(stage: &Stage, n: usize) -> (u64, String, i32) {
    until("a term", || terms(stage).get(n).cloned())
}

#[test]
fn a_killed_leader_is_followed_by_the_other_candidate() {
    let stage = Stage::new();
    let mut a = candidate(&stage, "a");
    let (first, who, led) = term(&stage, 0);
    assert_eq!(who, "a");
    let mut b = candidate(&stage, "b");
    a.signal(KILL);
    a.wait();
    let (second, who, _) = term(&stage, 1);
    assert_eq!(who, "b");
    assert!(
        second > first && !lives(led),
        "the former leader's command is gone"
    );
    b.signal(TERM);
    assert_eq!(b.code(), Some(143));
    assert!(stage.is_free("office"));
}

#[test]
fn who_lost_its_term_stands_again() {
    let stage = Stage::new();
    let mut only = candidate(&stage, "a");
    let (first, _, led) = term(&stage, 0);
    assert_eq!(
        stage.run(&["break", "office", "--reason", "test", "--now"]).code,
        Some(0)
    );
    let (second, _, leads) = term(&stage, 1);
    assert!(second > first && !lives(led) && lives(leads));
    only.signal(TERM);
    assert_eq!(only.code(), Some(143));
    until("the command's end", || (!lives(leads)).then_some(()));
}

#[test]
fn a_command_that_ends_by_itself_ends_the_candidacy_with_its_code() {
    let stage = Stage::new();
    for code in [0, 3, 79, 125] {
        let done = stage.run(&["elect", "office", "--", "sh", "-c", &format!("exit {code}")]);
        assert_eq!(done.code, Some(code), "{done:?}");
    }
    assert_eq!(
        stage.run(&["elect", "office", "--", "no-such-command"]).code,
        Some(127)
    );
    assert!(stage.is_free("office"));
}

#[test]
fn a_candidate_that_waits_can_be_stopped() {
    let stage = Stage::new();
    let _leader = stage.hold("office");
    let mut waits = stage.start(&["elect", "office", "--", "true"]);
    until("a candidate", || {
        stage
            .run(&["inspect", "office"])
            .out
            .contains("wait")
            .then_some(())
    });
    waits.signal(TERM);
    assert_eq!(waits.code(), Some(143));
    assert_eq!(stage.read("terms"), "");
}
