//! Signals, while waiting and while running.

use std::time::{Duration, Instant};

use crate::stage::{HUP, INT, Running, Stage, TERM, USR1, until};

#[test]
fn f77_a_signal_ends_the_wait_and_leaves_nothing() {
    let stage = Stage::new();
    let _holder = stage.hold("k");
    for (signal, code) in [(INT, 130), (TERM, 143), (HUP, 129)] {
        let mut waiter = stage.start(&["run", "-q", "k", "--", "touch", "ran"]);
        until("the waiter", || {
            stage.run(&["inspect", "k"]).out.contains("waiter:").then_some(())
        });
        let sent = Instant::now();
        waiter.signal(signal);
        assert_eq!(waiter.code(), Some(code));
        assert!(sent.elapsed() < Duration::from_secs(5));
        assert!(!stage.path("ran").exists());
        let seen = stage.run(&["inspect", "k"]).out;
        assert!(!seen.contains("waiter:"), "{seen}");
    }
}

#[test]
fn f76_term_reaches_the_command_and_the_lock_is_kept_until_it_is_gone() {
    let stage = Stage::new();
    let script = "trap 'sleep 1; echo bye > bye; exit 143' TERM; echo > up; while :; do sleep 0.02; done";
    let mut holder = stage.start(&["run", "k", "--", "sh", "-c", script]);
    stage.wait_for("up");
    let mut next = stage.start(&["run", "-q", "k", "--", "cat", "bye"]);
    holder.signal(TERM);
    assert_eq!(holder.code(), Some(143));
    // It ran only when the first had said goodbye.
    assert_eq!(next.code(), Some(0));
}

#[test]
fn f76_with_kill_after_a_command_that_ignores_term_is_killed() {
    let stage = Stage::new();
    let script = "trap '' TERM; echo $$ > up; while :; do sleep 0.02; done";
    let mut holder = stage.start(&["run", "--kill-after", "300ms", "k", "--", "sh", "-c", script]);
    let pid: i32 = stage.wait_for("up").parse().unwrap();
    holder.signal(TERM);
    assert_eq!(holder.code(), Some(137));
    assert!(!crate::stage::lives(pid));
}

#[test]
fn other_signals_reach_the_whole_group() {
    let stage = Stage::new();
    let script = "trap 'echo outer >> said' USR1; \
                  sh -c 'trap \"echo inner >> said; exit\" USR1; echo > up; while :; do sleep 0.01; done'; \
                  exit 9";
    let mut holder = stage.start(&["run", "k", "--", "sh", "-c", script]);
    stage.wait_for("up");
    holder.signal(USR1);
    assert_eq!(holder.code(), Some(9));
    let said = stage.read("said");
    assert!(said.contains("outer") && said.contains("inner"), "{said:?}");
}

#[test]
fn f90_after_term_the_next_one_does_not_wait_for_the_lease() {
    let stage = Stage::new();
    let mut holder = stage.start(&[
        "run",
        "--ttl",
        "60s",
        "k",
        "--",
        "sh",
        "-c",
        "echo > up; exec sleep 600",
    ]);
    stage.wait_for("up");
    holder.signal(TERM);
    assert_eq!(holder.code(), Some(143));
    assert!(stage.is_free("k"));
}

/// Ten times from the signal to the end of all, on an idle machine a few milliseconds each. A machine that is busy makes
/// some of them late, never all.
fn soon(what: &str, mut once: impl FnMut() -> Duration) {
    let mut took: Vec<Duration> = (0..10).map(|_| once()).collect();
    took.sort_unstable();
    eprintln!(
        "{what}: fastest {:?}, median {:?}, slowest {:?}",
        took[0], took[5], took[9]
    );
    assert!(took[0] < Duration::from_millis(100), "{what}: {took:?}");
    assert!(took[9] < Duration::from_secs(5), "{what}: {took:?}");
}

#[test]
fn a_signal_is_passed_on_within_100_ms() {
    let stage = Stage::new();
    soon("TERM to a running command", || {
        let mut holder = stage.start(&["run", "k", "--", "sh", "-c", "echo > up; exec sleep 600"]);
        stage.wait_for("up");
        std::fs::remove_file(stage.path("up")).unwrap();
        ended(&mut holder)
    });
}

#[test]
fn f77_a_signal_is_heard_within_100_ms_also_while_waiting() {
    let stage = Stage::new();
    let _holder = stage.hold("k");
    soon("TERM to one who waits", || {
        let mut waiter = stage.start(&["run", "-q", "k", "--", "touch", "ran"]);
        until("the waiter", || {
            stage.run(&["inspect", "k"]).out.contains("waiter:").then_some(())
        });
        ended(&mut waiter)
    });
    assert!(!stage.path("ran").exists());
}

/// How long it lives after a TERM.
fn ended(running: &mut Running) -> Duration {
    let sent = Instant::now();
    running.signal(TERM);
    let code = running.wait_closely().code();
    assert_eq!(code, Some(143));
    sent.elapsed()
}
