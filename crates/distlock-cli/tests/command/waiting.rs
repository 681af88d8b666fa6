//! What is said while a lock is waited for, to logs and machines.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use distlock_testkit::servers::{FakeClock, or_skip};

use crate::stage::{Done, Running, Stage, TERM, until};

#[test]
fn f97_a_wait_is_told_with_its_holder_and_its_end() {
    let stage = Stage::new();
    let holder = {
        let args = [
            "hold",
            "--no-stdin",
            "--label",
            "deployer",
            "--reason",
            "release 7\n\x1b[31m",
            "k",
        ];
        let mut command = stage.distlock(&args);
        let mut holder = Running::start({
            command.stdout(Stdio::piped());
            command
        });
        holder.first_line();
        holder
    };
    let mut waiter = stage
        .distlock(&["run", "k", "--", "true"])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut first = String::new();
    let mut lines = std::io::BufReader::new(waiter.stderr.take().unwrap());
    std::io::BufRead::read_line(&mut lines, &mut first).unwrap();
    assert!(
        first.contains("waiting for \"k\"") && first.contains("deployer"),
        "{first}"
    );
    // What others wrote stays on one line and cannot move the cursor.
    assert!(
        first.contains("release 7") && !first.trim_end().contains(['\n', '\x1b']),
        "{first:?}"
    );
    holder.signal(TERM);
    let mut rest = String::new();
    std::io::Read::read_to_string(&mut lines, &mut rest).unwrap();
    assert!(rest.contains("obtained after"), "{rest}");
    assert!(waiter.wait().unwrap().success());
}

#[test]
fn f96_a_refusal_is_one_clear_line_with_advice() {
    let stage = Stage::new();
    let _holder = stage.hold("k");
    let done = stage.run(&["try", "k", "--", "true"]);
    let first = done.err.lines().next().unwrap();
    for word in ["\"k\"", "held by", "pid", "for ", "lease ends in "] {
        assert!(first.contains(word), "{word}: {}", done.err);
    }
    assert!(done.err.contains("distlock inspect"), "{}", done.err);
    assert_eq!(stage.run(&["try", "-q", "k", "--", "true"]).err, "");
}

/// Every night anew, and in the answer to a time-out too.
#[test]
fn f96_each_refusal_is_told() {
    let stage = Stage::new();
    let _holder = stage.hold("k");
    for args in [&["try"][..], &["try"], &["run", "--wait", "100ms"]] {
        let done = stage.run(&[args, &["k", "--", "true"]].concat());
        let first = done.err.lines().next().unwrap();
        let all = ["\"k\"", "held by", "pid", "for ", "lease ends in "];
        assert!(
            done.code == Some(75) && all.iter().all(|word| first.contains(word)),
            "{done:?}"
        );
    }
}

#[test]
fn machines_get_each_event_as_a_line_of_json() {
    let stage = Stage::new();
    let script = "exec \"$0\" run --status-fd 5 k -- sh -c 'exit 3' 5>events";
    let mut command = std::process::Command::new("sh");
    command
        .args(["-c", script, env!("CARGO_BIN_EXE_distlock")])
        .env("DISTLOCK_URL", stage.url());
    let done = Done::of(command.current_dir(stage.path("")).output().unwrap());
    assert_eq!(done.code, Some(3), "{done:?}");
    let events: Vec<serde_json::Value> = stage
        .read("events")
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let names: Vec<&str> = events
        .iter()
        .map(|event| event["event"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["acquired", "started", "ended", "released"]);
    assert!(events[0]["locks"][0]["token"].is_u64());
    assert_eq!(events[2]["code"], 3);
    let done = stage.run(&["--json", "run", "", "--", "true"]);
    let error: serde_json::Value = serde_json::from_str(&done.err).unwrap();
    assert_eq!(
        (&error["kind"], &error["exit"]),
        (&"invalid_key".into(), &64.into())
    );
}

#[test]
fn break_gives_the_victim_its_grace_and_the_next_one_waits_for_it() {
    let stage = Stage::new();
    let mut holder = stage.start(&["run", "k", "--", "sh", "-c", "echo $$ > pid; exec sleep 600"]);
    let pid: i32 = stage.wait_for("pid").parse().unwrap();
    let mut next = stage.start(&["run", "-q", "k", "--", "touch", "next"]);
    until("the waiter", || {
        stage.run(&["inspect", "k"]).out.contains("waiter:").then_some(())
    });
    let broken = stage.run(&["break", "k", "--reason", "maintenance"]);
    assert_eq!(broken.code, Some(0), "{broken:?}");
    assert_eq!(holder.code(), Some(79));
    assert!(!crate::stage::lives(pid));
    // The victim is gone, and the grace keeps everybody out still.
    assert!(!stage.path("next").exists());
    assert_eq!(next.code(), Some(0));
}

/// A day on or back, of the holder's wall clock and the waiter's: the wait ends when it would have, and the holder
/// renews when it would have.
#[test]
fn f67_a_jump_of_the_wall_clock_moves_neither_a_wait_nor_a_renewal() {
    const DAY: i64 = 86_400;
    const WAIT: Duration = Duration::from_secs(3);
    for jump in [DAY, -DAY] {
        let Some(clock) = or_skip(FakeClock::new()) else {
            return;
        };
        let stage = Stage::new();
        // A third of the wait: without renewal the waiter would get it.
        let mut holder = stage.distlock(&["hold", "--no-stdin", "--ttl", "1s", "k"]);
        let mut holder = Running::start({
            holder.stdout(Stdio::piped()).envs(clock.env());
            holder
        });
        holder.first_line();
        let mut waiter = stage.distlock(&["run", "-q", "--wait", "3s", "k", "--", "true"]);
        let begun = Instant::now();
        let mut waiter = Running::start({
            waiter.envs(clock.env());
            waiter
        });
        until("the waiter", || {
            stage.run(&["inspect", "k"]).out.contains("waiter:").then_some(())
        });
        clock.set(jump).unwrap();
        let date = Command::new("date")
            .arg("+%s")
            .envs(clock.env())
            .output()
            .unwrap();
        let seen: i64 = String::from_utf8(date.stdout).unwrap().trim().parse().unwrap();
        let real = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs();
        let off = seen - i64::try_from(real).unwrap();
        assert!((off - jump).abs() < 60, "the wall clock is {off} s off");
        assert_eq!(waiter.wait_closely().code(), Some(75));
        let waited = begun.elapsed();
        assert!(waited > WAIT && waited < WAIT * 3, "waited {waited:?}");
        assert!(!stage.is_free("k") && !holder.has_ended());
    }
}

/// With grace and without: told at once (TERM comes to the command), and nobody else holds before its time.
#[test]
fn the_victim_of_a_break_is_told_within_a_second() {
    for now in [false, true] {
        let stage = Stage::new();
        let script = "trap 'date +%s%N > told; exit 0' TERM; echo > up; while :; do sleep 0.01; done";
        let mut holder = stage.start(&["run", "--on-lost", "signal:TERM", "k", "--", "sh", "-c", script]);
        stage.wait_for("up");
        let mut next = stage.start(&["run", "-q", "k", "--", "sh", "-c", "date +%s%N > next"]);
        until("the waiter", || {
            stage.run(&["inspect", "k"]).out.contains("waiter:").then_some(())
        });
        let before = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap();
        let flags: &[&str] = if now { &["--now"] } else { &[] };
        let broken = stage.run(&[&["break", "k", "--reason", "test"], flags].concat());
        assert_eq!(broken.code, Some(0), "{broken:?}");
        let at = |name: &str| Duration::from_nanos(stage.wait_for(name).parse().unwrap());
        let told = at("told") - before;
        assert!(told < Duration::from_secs(1), "told after {told:?}");
        let next_after = at("next") - before;
        assert!(now || next_after > Duration::from_secs(5), "{next_after:?}");
        assert_eq!((holder.code(), next.code()), (Some(0), Some(0)));
    }
}

#[test]
fn break_with_another_token_breaks_nothing() {
    let stage = Stage::new();
    let mut holder = stage.hold("k");
    let done = stage.run(&["break", "k", "--reason", "x", "--expect-token", "1"]);
    assert_eq!(done.code, Some(79), "{done:?}");
    assert!(!stage.is_free("k") && !holder.has_ended());
    let seen = stage.run(&["--json", "inspect", "k"]);
    let lock: serde_json::Value = serde_json::from_str(&seen.out).unwrap();
    let token = lock["holders"][0]["token"].to_string();
    let done = stage.run(&["break", "k", "--reason", "x", "--expect-token", &token, "--now"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    assert_eq!(holder.code(), Some(79));
}
