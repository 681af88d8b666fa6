//! `distlock hold`.

use std::process::Stdio;

use crate::stage::{Running, Stage, TERM, until};

#[test]
fn it_holds_until_the_end_of_input() {
    let stage = Stage::new();
    let mut command = stage.distlock(&["hold", "k"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut holder = Running::start(command);
    let line = holder.first_line();
    assert!(
        line.contains("\"token\":") && line.contains("\"key\":\"k\""),
        "{line}"
    );
    assert!(!stage.is_free("k"));
    drop(holder.stdin());
    assert_eq!(holder.code(), Some(0));
    assert!(stage.is_free("k"));
}

#[test]
fn it_holds_until_a_signal() {
    let stage = Stage::new();
    let mut holder = stage.hold("k");
    assert!(!stage.is_free("k"));
    holder.signal(TERM);
    assert_eq!(holder.code(), Some(0));
    assert!(stage.is_free("k"));
}

#[test]
fn it_says_when_the_lock_is_broken() {
    let stage = Stage::new();
    let mut holder = stage.hold("k");
    assert_eq!(
        stage.run(&["break", "k", "--reason", "test", "--now"]).code,
        Some(0)
    );
    assert_eq!(holder.code(), Some(79));
}

#[test]
fn min_hold_keeps_the_lock_after_the_work() {
    let stage = Stage::new();
    let args = ["run", "--min-hold", "700ms", "k", "--", "true"];
    assert_eq!(stage.run(&args).code, Some(0));
    assert!(!stage.is_free("k"));
    until("the lock", || stage.is_free("k").then_some(()));
}

#[test]
fn permits_and_readers_share() {
    let stage = Stage::new();
    for (flag, key) in [(&["--permits", "2"][..], "p"), (&["--shared"], "r")] {
        let hold = || {
            let mut command = stage.distlock(&[&["hold", "--no-stdin"], flag, &[key]].concat());
            let mut holder = Running::start({
                command.stdout(Stdio::piped());
                command
            });
            holder.first_line();
            holder
        };
        let (_a, _b) = (hold(), hold());
        let third: &[&str] = if key == "p" {
            &["--permits", "2"]
        } else {
            &["--exclusive"]
        };
        let done = stage.run(&[&["try"], third, &[key, "--", "true"]].concat());
        assert_eq!(done.code, Some(75), "{done:?}");
    }
}
