//! Runs inside runs.

use crate::stage::{Running, Stage, until};

/// The command itself, for scripts.
const ME: &str = env!("CARGO_BIN_EXE_distlock");

#[test]
fn a_nested_run_re_enters_with_the_same_token() {
    let stage = Stage::new();
    let script = format!("echo $DISTLOCK_TOKEN; {ME} run --wait 5s k -- sh -c 'echo $DISTLOCK_TOKEN'");
    let done = stage.run(&["run", "k", "--", "sh", "-c", &script]);
    let lines: Vec<&str> = done.out.lines().collect();
    assert_eq!(done.code, Some(0), "{done:?}");
    assert!(lines.len() == 2 && lines[0] == lines[1], "{done:?}");
    assert!(stage.is_free("k"));
}

#[test]
fn it_finds_a_key_of_an_outer_run_through_an_inner_one() {
    let stage = Stage::new();
    let script = format!("{ME} run b -- {ME} try a -- {ME} try a b c -- sh -c 'echo \"$DISTLOCK_KEY\"'");
    let done = stage.run(&["run", "a", "--", "sh", "-c", &script]);
    assert_eq!((done.code, done.out.as_str()), (Some(0), "a\nb\nc\n"), "{done:?}");
}

#[test]
fn siblings_go_in_one_at_a_time() {
    let stage = Stage::new();
    let one = format!("{ME} run -q k -- sh -c 'mkdir busy || echo overlap; sleep 0.1; rmdir busy' &");
    let script = format!("{one} {one} {one} wait");
    let done = stage.run(&["run", "k", "--", "sh", "-c", &script]);
    assert_eq!((done.code, done.out.as_str()), (Some(0), ""), "{done:?}");
    // And one that does not want to wait is told.
    let script = format!(
        "{ME} run k -- sh -c 'echo > in; sleep 600' & while [ ! -e in ]; do sleep 0.01; done; {ME} try k -- true; echo $?; kill $!"
    );
    let done = stage.run(&["run", "k", "--", "sh", "-c", &script]);
    assert_eq!(done.out, "75\n", "{done:?}");
}

#[test]
fn a_nested_run_is_told_of_the_loss() {
    let stage = Stage::new();
    // The outer command survives its own stop for a moment by ignoring TERM; the nested wrapper reports.
    let script =
        format!("trap '' TERM; {ME} run k -- sh -c 'echo > in; exec sleep 600'; echo $? > inner; sleep 600");
    let args = ["run", "--on-lost", "ignore", "k", "--", "sh", "-c", &script];
    let outer = stage.start(&args);
    stage.wait_for("in");
    stage.run(&["break", "k", "--reason", "test", "--now"]);
    assert_eq!(stage.wait_for("inner"), "79");
    drop(outer);
}

#[test]
fn another_kind_or_an_upgrade_is_refused() {
    let stage = Stage::new();
    for (outer, inner, code) in [
        (&[][..], "--shared", 125),
        (&["--shared"], "--exclusive", 125),
        (&["--exclusive"], "--shared", 0),
    ] {
        let script = format!("{ME} run --wait 5s {inner} k -- true; echo $?");
        let done = stage.run(&[&["run"], outer, &["k", "--", "sh", "-c", &script]].concat());
        assert_eq!(done.out, format!("{code}\n"), "{done:?}");
    }
}

#[test]
fn f79_a_daemon_that_kept_the_variable_cannot_re_enter_later() {
    let stage = Stage::new();
    let daemon = format!(
        "setsid sh -c 'while [ ! -e go ]; do sleep 0.01; done; {ME} try k -- true; echo $? > code' </dev/null >/dev/null 2>&1 &"
    );
    assert_eq!(stage.run(&["run", "k", "--", "sh", "-c", &daemon]).code, Some(0));
    let _next = stage.hold("k");
    std::fs::write(stage.path("go"), "").unwrap();
    assert_eq!(stage.wait_for("code"), "75");
}

#[test]
fn a_stranger_who_knows_the_name_cannot_enter() {
    let stage = Stage::new();
    let _outer = stage.start(&[
        "run",
        "k",
        "--",
        "sh",
        "-c",
        "echo $DISTLOCK_CTL > name; exec sleep 600",
    ]);
    let name = stage.wait_for("name");
    let mut command = stage.distlock(&["try", "k", "--", "true"]);
    let mut stranger = Running::start({
        command.env("DISTLOCK_CTL", name);
        command
    });
    assert_eq!(stranger.code(), Some(75));
}

#[test]
fn a_holder_that_does_not_answer_holds_nothing() {
    let stage = Stage::new();
    let mut command = stage.distlock(&["try", "k", "--", "true"]);
    let mut nested = Running::start({
        command.env("DISTLOCK_CTL", "distlock-gone");
        command
    });
    assert_eq!(nested.code(), Some(0));
    until("the lock", || stage.is_free("k").then_some(()));
}
