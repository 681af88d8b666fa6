//! Every row of the table of exit codes.

use std::os::unix::fs::PermissionsExt;

use crate::stage::{Stage, until};

#[test]
fn f75_the_commands_own_code_comes_back() {
    let stage = Stage::new();
    for code in [0, 1, 2, 64, 75, 79, 100, 124, 125, 126, 127, 128, 255] {
        let done = stage.run(&["run", "k", "--", "sh", "-c", &format!("exit {code}")]);
        assert_eq!(done.code, Some(code), "{done:?}");
    }
}

#[test]
fn f75_death_by_a_signal_gives_128_and_its_number() {
    let stage = Stage::new();
    for (name, number) in [("TERM", 15), ("KILL", 9), ("SEGV", 11), ("ABRT", 6)] {
        let done = stage.run(&["run", "k", "--", "sh", "-c", &format!("kill -{name} $$")]);
        assert_eq!(done.code, Some(128 + number), "{done:?}");
    }
}

#[test]
fn f83_busy_has_its_own_code_and_can_be_given_another() {
    let stage = Stage::new();
    let _holder = stage.hold("k");
    let mark = stage.path("ran").display().to_string();
    for (args, code) in [
        (&["try"][..], 75),
        (&["run", "--wait", "0"], 75),
        (&["run", "-n"], 75),
        (&["run", "--wait", "50ms"], 75),
        (&["try", "-E", "3"], 3),
        (&["run", "--wait", "50ms", "-E", "200"], 200),
        (&["try", "--skip-ok"], 0),
        (&["run", "--wait=50ms", "--skip-ok"], 0),
    ] {
        let done = stage.run(&[args, &["k", "--", "touch", &mark]].concat());
        assert_eq!(done.code, Some(code), "{args:?} {done:?}");
        assert!(!stage.path("ran").exists());
        assert!(done.out.is_empty(), "{done:?}");
    }
}

#[test]
fn a_bad_flag_key_duration_or_url_is_64_and_contacts_nothing() {
    let stage = Stage::new();
    let long = "k".repeat(513);
    for args in [
        &["run", "k", "--nonsense", "--", "true"][..],
        &["run", "k", "true"],
        &["run", "--", "true"],
        &["run", "", "--", "true"],
        &["run", &long, "--", "true"],
        &["run", "a\nb", "--", "true"],
        &["run", "--ttl", "10", "k", "--", "true"],
        &["run", "--ttl", "0", "k", "--", "true"],
        &["run", "--ttl", "-1s", "k", "--", "true"],
        &["run", "--ttl", "1us", "k", "--", "true"],
        &["run", "--ttl", "1000000000000000000s", "k", "--", "true"],
        &["run", "--wait", "soon", "k", "--", "true"],
        &["run", "--wait", "99999999999999999999s", "k", "--", "true"],
        &["run", "--permits", "0", "k", "--", "true"],
        &["run", "--permits", "2", "--shared", "k", "--", "true"],
        &["run", "--ttl", "4s", "--kill-after", "3s", "k", "--", "true"],
        &["run", "-E", "600", "k", "--", "true"],
        &["run", "--status-fd", "99", "k", "--", "true"],
        &["run", "--on-lost", "hope", "k", "--", "true"],
        &["try", "--wait", "5s", "k", "--", "true"],
        &["run", "--url", "gopher://h/", "k", "--", "true"],
        &["run", "--url", "file:///tmp?colour=red", "k", "--", "true"],
        &["run", "--url", "nobody", "k", "--", "true"],
        &["inspect", ""],
        &["acquire", "a", "b"],
        &["renew", "nonsense"],
        &["nonsense"],
        &[],
    ] {
        let done = stage.run(args);
        assert_eq!(done.code, Some(64), "{args:?} {done:?}");
        assert!(!done.err.is_empty());
        assert!(!stage.path("locks").exists(), "{args:?}");
    }
}

#[test]
fn f99_a_key_that_is_not_utf8_is_refused_everywhere() {
    use std::os::unix::ffi::OsStrExt;
    let stage = Stage::new();
    let key = std::ffi::OsStr::from_bytes(b"a\xffb");
    for args in [
        &["run"][..],
        &["try"],
        &["hold"],
        &["acquire"],
        &["inspect"],
        &["break", "--reason", "x"],
    ] {
        let mut command = stage.distlock(args);
        command.arg(key);
        if ["run", "try"].contains(&args[0]) {
            command.args(["--", "true"]);
        }
        let done = crate::stage::Done::of(command.output().unwrap());
        assert_eq!(done.code, Some(64), "{args:?} {done:?}");
        assert!(done.err.contains("UTF-8"), "{done:?}");
    }
}

#[test]
fn a_wrong_configuration_file_is_78() {
    let stage = Stage::new();
    std::fs::write(stage.path("bad.toml"), "tll = '5s'").unwrap();
    for file in ["bad.toml", "missing.toml"] {
        let done = stage.run(&["run", "--config", file, "k", "--", "true"]);
        assert_eq!(done.code, Some(78), "{done:?}");
        assert!(done.err.contains(file), "{done:?}");
    }
}

#[test]
fn an_engine_that_cannot_be_used_is_125_and_runs_nothing() {
    let stage = Stage::new();
    // Nobody listens there.
    let url = "redis://127.0.0.1:1/";
    let mark = stage.path("ran").display().to_string();
    let done = stage.run(&["run", "--url", url, "--wait", "300ms", "k", "--", "touch", &mark]);
    assert_eq!(done.code, Some(125), "{done:?}");
    assert!(!stage.path("ran").exists());
}

#[test]
fn another_kind_on_the_key_is_refused_with_125() {
    let stage = Stage::new();
    let _holder = stage.hold("k");
    let done = stage.run(&["run", "--permits", "3", "--wait", "5s", "k", "--", "true"]);
    assert_eq!(done.code, Some(125), "{done:?}");
    assert!(
        done.err.contains("mutex") && done.err.contains("hint"),
        "{done:?}"
    );
}

#[test]
fn f81_what_cannot_be_run_is_126_or_127_and_leaves_no_lock() {
    let stage = Stage::new();
    let write = |name: &str, text: &str, mode: u32| {
        std::fs::write(stage.path(name), text).unwrap();
        std::fs::set_permissions(stage.path(name), PermissionsExt::from_mode(mode)).unwrap();
        stage.path(name).display().to_string()
    };
    let plain = write("plain", "#!/bin/sh\n", 0o644);
    let orphan = write("orphan", "#!/no/such/interpreter\n", 0o755);
    let dir = stage.path("").display().to_string();
    for (command, code) in [
        ("/no/such/command", 127),
        ("no-such-command", 127),
        ("", 127),
        (&plain, 126),
        (&orphan, 126),
        (&dir, 126),
    ] {
        let done = stage.run(&["run", "k", "--", command]);
        assert_eq!(done.code, Some(code), "{command} {done:?}");
        assert!(done.err.contains(command), "{done:?}");
        assert!(stage.is_free("k"), "{command}");
    }
}

#[test]
fn max_hold_stops_the_command_with_124() {
    let stage = Stage::new();
    let script = "trap 'echo told >> said' TERM; sleep 600 & echo $$ $! > pids; while :; do wait; done";
    let args = [
        "run",
        "--max-hold",
        "300ms",
        "--kill-after",
        "300ms",
        "k",
        "--",
        "sh",
        "-c",
        script,
    ];
    let done = stage.run(&args);
    assert_eq!(done.code, Some(124), "{done:?}");
    // TERM first, then KILL for one that does not obey; its children too.
    assert_eq!(stage.read("said"), "told\n");
    for pid in stage.read("pids").split_whitespace() {
        assert!(!crate::stage::lives(pid.parse().unwrap()), "{pid}");
    }
    assert!(stage.is_free("k"));
}

#[test]
fn a_lost_lock_stops_the_command_with_79() {
    let stage = Stage::new();
    let mut holder = stage.start(&["run", "k", "--", "sh", "-c", "echo $$ > pid; exec sleep 600"]);
    let pid = stage.wait_for("pid").parse().unwrap();
    let broken = stage.run(&["break", "k", "--reason", "test", "--now"]);
    assert_eq!(broken.code, Some(0), "{broken:?}");
    assert_eq!(holder.code(), Some(79));
    assert!(!crate::stage::lives(pid));
}

/// One event, one line, the documented code; nothing in the background ends the wrapper.
#[test]
fn f24_a_loss_is_told_once() {
    let stage = Stage::new();
    let mut command = stage.distlock(&[
        "--json",
        "run",
        "k",
        "--",
        "sh",
        "-c",
        "echo > up; exec sleep 600",
    ]);
    command.stderr(std::process::Stdio::piped());
    let mut holder = crate::stage::Running::start(command);
    stage.wait_for("up");
    stage.run(&["break", "k", "--reason", "test", "--now"]);
    assert_eq!(holder.code(), Some(79));
    let said = holder.errors();
    let events: Vec<serde_json::Value> = said
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let lost: Vec<_> = events.iter().filter(|event| event["event"] == "lost").collect();
    assert!(lost.len() == 1 && lost[0]["key"] == "k", "{said}");
    assert!(!said.contains("panicked"), "{said}");
}

#[test]
fn on_lost_can_be_a_signal_or_nothing() {
    let stage = Stage::new();
    for (policy, said) in [("ignore", "free\n"), ("signal:USR1", "usr1\n")] {
        let script = "trap 'echo usr1 > said; exit 5' USR1; echo $$ > pid; while [ ! -e go ]; do sleep 0.05; done; \
                      echo free > said; exit 5";
        let mut holder = stage.start(&["run", "--on-lost", policy, "k", "--", "sh", "-c", script]);
        stage.wait_for("pid");
        stage.run(&["break", "k", "--reason", "test", "--now"]);
        until("the lock", || stage.is_free("k").then_some(()));
        if policy == "ignore" {
            assert!(!holder.has_ended());
            std::fs::write(stage.path("go"), "").unwrap();
        }
        assert_eq!(holder.code(), Some(5));
        assert_eq!(stage.read("said"), said);
        for file in ["said", "pid", "go"] {
            let _ = std::fs::remove_file(stage.path(file));
        }
    }
}
