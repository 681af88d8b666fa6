//! Wrapper and guardian under KILL and STOP, and children that do not behave.

use std::time::{Duration, Instant};

use distlock_testkit::servers::{Redis, or_skip};

use crate::stage::{CONT, KILL, Running, STOP, Stage, TERM, children, kill, lives, until};

/// A tree that writes its token into a log again and again: a shell, a child in the background, and a grandchild
/// in a session of its own.
const WRITERS: &str = r#"
write() { while :; do echo "$DISTLOCK_TOKEN" >> log; sleep 0.005; done; }
write & setsid sh -c 'while :; do echo "$DISTLOCK_TOKEN" >> log; sleep 0.005; done' & echo $$ $! > pids; wait
"#;

/// Nobody of the earlier tokens wrote after a later one's first line.
fn no_late_write(log: &str) {
    let mut largest = 0u64;
    for (n, line) in log.lines().enumerate() {
        let token: u64 = line.parse().unwrap();
        assert!(token >= largest, "line {n}: {token} wrote after {largest}");
        largest = token;
    }
}

/// Starts the writers, does something to them, and has the next holder write too.
fn next_holder_after(stage: &Stage, ttl: &str, break_it: impl FnOnce(&Running)) -> Duration {
    let holder = stage.start(&["run", "--ttl", ttl, "k", "--", "sh", "-c", WRITERS]);
    stage.wait_for("pids");
    until("writes", || (stage.read("log").lines().count() > 5).then_some(()));
    let mut next = stage.start(&[
        "run",
        "-q",
        "k",
        "--",
        "sh",
        "-c",
        "echo $DISTLOCK_TOKEN >> log; sleep 0.1",
    ]);
    let started = Instant::now();
    break_it(&holder);
    assert_eq!(next.code(), Some(0));
    let took = started.elapsed();
    no_late_write(&stage.read("log"));
    let tokens: std::collections::BTreeSet<String> = stage.read("log").lines().map(str::to_owned).collect();
    assert_eq!(tokens.len(), 2);
    for pid in stage.read("pids").split_whitespace() {
        assert!(!lives(pid.parse().unwrap()));
    }
    took
}

/// How often the tests with races are repeated; more in the long form.
fn rounds() -> usize {
    std::env::var("DISTLOCK_ROUNDS")
        .ok()
        .and_then(|n| n.parse().ok())
        .unwrap_or(5)
}

#[test]
fn f85_a_killed_wrapper_frees_the_lock_after_the_last_of_its_command_is_gone() {
    for _ in 0..rounds() {
        let took = next_holder_after(&Stage::new(), "60s", |holder| holder.signal(KILL));
        // Not by the lease.
        assert!(took < Duration::from_secs(30), "{took:?}");
    }
}

#[test]
fn f78_a_stopped_wrapper_loses_its_command_before_the_lock() {
    for _ in 0..rounds() {
        next_holder_after(&Stage::new(), "1s", |holder| holder.signal(STOP));
    }
}

#[test]
fn a_stopped_wrapper_says_so_when_it_goes_on() {
    let stage = Stage::new();
    let mut holder = stage.start(&[
        "run",
        "--ttl",
        "600ms",
        "k",
        "--",
        "sh",
        "-c",
        "echo $$ > pid; exec sleep 600",
    ]);
    let pid: i32 = stage.wait_for("pid").parse().unwrap();
    holder.signal(STOP);
    until("the command's end", || (!lives(pid)).then_some(()));
    holder.signal(CONT);
    assert_eq!(holder.code(), Some(79));
}

#[test]
fn a_killed_guardian_takes_the_command_along() {
    for _ in 0..rounds() {
        let stage = Stage::new();
        next_holder_after(&stage, "60s", |holder| kill(holder.guardian(), KILL));
    }
}

#[test]
fn a_killed_guardian_is_reported() {
    let stage = Stage::new();
    let mut command = stage.distlock(&["run", "k", "--", "sh", "-c", "echo $$ > pid; exec sleep 600"]);
    let mut holder = Running::start({
        command.stderr(std::process::Stdio::piped());
        command
    });
    stage.wait_for("pid");
    kill(holder.guardian(), KILL);
    assert_eq!(holder.code(), Some(137));
    assert!(holder.errors().contains("guardian"));
}

#[test]
fn a_stopped_guardian_is_woken_when_the_lock_is_lost() {
    let stage = Stage::new();
    let mut holder = stage.start(&["run", "k", "--", "sh", "-c", "echo $$ > pid; exec sleep 600"]);
    let pid: i32 = stage.wait_for("pid").parse().unwrap();
    kill(holder.guardian(), STOP);
    stage.run(&["break", "k", "--reason", "test", "--now"]);
    assert_eq!(holder.code(), Some(79));
    assert!(!lives(pid));
}

/// The direct child writes until it dies; what it had started might live on.
#[test]
fn wrapper_and_guardian_killed_at_once_take_the_direct_child_along() {
    for _ in 0..rounds() {
        let stage = Stage::new();
        let script = "echo $$ > pid; while :; do echo $DISTLOCK_TOKEN >> log; sleep 0.005; done";
        let holder = stage.start(&["run", "k", "--", "sh", "-c", script]);
        let pid: i32 = stage.wait_for("pid").parse().unwrap();
        let mut next = stage.start(&["run", "-q", "k", "--", "sh", "-c", "echo $DISTLOCK_TOKEN >> log"]);
        let guardian = holder.guardian();
        // The guardian cannot act between the two.
        kill(guardian, STOP);
        holder.signal(KILL);
        kill(guardian, KILL);
        until("the command's end", || (!lives(pid)).then_some(()));
        assert_eq!(next.code(), Some(0));
        let log = stage.read("log");
        no_late_write(&log[log.find('\n').map_or(0, |end| end + 1)..]);
    }
}

/// The server does not answer the wrapper's renewals. When it answers again, somebody else holds the lock at once.
#[test]
fn f78_a_wrapper_that_is_cut_off_stops_its_command_before_the_lease_ends() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let Some(redis) = or_skip(runtime.block_on(Redis::start())) else {
        return;
    };
    let stage = Stage::new();
    let url = redis.url();
    let mut holder = stage.start(&[
        "run", "--url", &url, "--ttl", "3s", "k", "--", "sh", "-c", WRITERS,
    ]);
    stage.wait_for("pids");
    until("writes", || (stage.read("log").lines().count() > 5).then_some(()));
    redis.pause().unwrap();
    let pids = stage.read("pids");
    for pid in pids.split_whitespace() {
        until("the end of the writers", || {
            (!lives(pid.parse().unwrap())).then_some(())
        });
    }
    let written = stage.read("log");
    redis.resume().unwrap();
    let script = "echo $DISTLOCK_TOKEN >> log";
    let next = stage.run(&["run", "-q", "--url", &url, "k", "--", "sh", "-c", script]);
    assert_eq!((next.code, holder.code()), (Some(0), Some(79)), "{next:?}");
    let log = stage.read("log");
    no_late_write(&log);
    assert_eq!(log.lines().count(), written.lines().count() + 1);
}

#[test]
fn f79_a_daemon_that_outlives_the_command_does_not_keep_the_lock() {
    let stage = Stage::new();
    let script = "sleep 600 & (setsid sleep 600 & echo $! > daemon) & echo $! > pid; wait $!; exit 0";
    let done = {
        let mut command = stage.distlock(&["run", "k", "--", "sh", "-c", script]);
        // The daemons keep these open.
        command
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null());
        Running::start(command).code()
    };
    assert_eq!(done, Some(0));
    let daemon: i32 = stage.wait_for("daemon").parse().unwrap();
    assert!(lives(daemon), "it was not ours to kill");
    assert!(stage.is_free("k"));
    kill(daemon, KILL);
}

#[test]
fn a_daemon_is_killed_with_a_command_that_has_to_be_stopped() {
    let stage = Stage::new();
    let script = "setsid sh -c 'trap \"\" TERM; (sleep 600 & echo $! > daemon) & sleep 600' & sleep 600";
    let args = [
        "run",
        "--max-hold",
        "500ms",
        "--kill-after",
        "100ms",
        "k",
        "--",
        "sh",
        "-c",
        script,
    ];
    assert_eq!(stage.start(&args).code(), Some(124));
    let daemon: i32 = stage.wait_for("daemon").parse().unwrap();
    assert!(!lives(daemon));
}

#[test]
fn term_comes_before_the_end_of_the_lease_and_leaves_time() {
    let stage = Stage::new();
    // The keeper is stopped with the wrapper, so that no renewal is made; the trap shows that TERM came.
    let script = "trap 'echo told > said; exit 0' TERM; echo $$ > pid; while :; do sleep 0.01; done";
    let args = [
        "run",
        "--ttl",
        "2s",
        "--kill-after",
        "1s",
        "k",
        "--",
        "sh",
        "-c",
        script,
    ];
    let mut holder = stage.start(&args);
    stage.wait_for("pid");
    holder.signal(STOP);
    stage.wait_for("said");
    assert!(!stage.is_free("k"), "it was told only when the lock was free");
    holder.signal(CONT);
    // Also when a renewal succeeds after all.
    assert_eq!(holder.code(), Some(79));
}

#[test]
fn a_killed_waiter_leaves_no_guardian_and_no_place_in_line() {
    let stage = Stage::new();
    let holder = stage.hold("k");
    let waiter = stage.start(&["run", "-q", "k", "--", "true"]);
    let guardian = waiter.guardian();
    until("the waiter", || {
        stage.run(&["inspect", "k"]).out.contains("waiter:").then_some(())
    });
    waiter.signal(KILL);
    until("the guardian's end", || (!lives(guardian)).then_some(()));
    holder.signal(TERM);
    until("the lock", || stage.is_free("k").then_some(()));
}

#[test]
fn children_from_before_are_left_alone() {
    let stage = Stage::new();
    let mut command = std::process::Command::new("sh");
    // The shell becomes distlock; `sleep` is its child all along.
    let script = "sleep 600 & echo $! > stranger; exec \"$0\" run k -- sh -c 'echo $$ > pid; exec sleep 600'";
    command
        .args(["-c", script, env!("CARGO_BIN_EXE_distlock")])
        .env("DISTLOCK_URL", stage.url());
    command.current_dir(stage.path(""));
    let mut holder = Running::start(command);
    stage.wait_for("pid");
    let stranger: i32 = stage.wait_for("stranger").parse().unwrap();
    let guardian = children(holder.pid())
        .into_iter()
        .find(|pid| *pid != stranger)
        .unwrap();
    kill(guardian, KILL);
    assert_eq!(holder.code(), Some(137));
    assert!(lives(stranger));
    kill(stranger, KILL);
}
