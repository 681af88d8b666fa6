//! `ls`, `inspect`, `break`, `doctor`, `conformance`, `bench`.

use std::process::Stdio;

use crate::stage::{Running, Stage, until};

#[test]
fn f101_prefixes_and_keys_are_literal() {
    let stage = Stage::new();
    let keys = ["job[1]", "job1", "job*", "job?", "job\\x", "{job}", "jöb"];
    let _holders: Vec<Running> = keys.iter().map(|key| stage.hold(key)).collect();
    let listed = |prefix: &str| {
        let out = stage.run(&["--json", "ls", prefix]).out;
        let mut keys: Vec<String> = out
            .lines()
            .map(|l| {
                serde_json::from_str::<serde_json::Value>(l).unwrap()["key"]
                    .as_str()
                    .unwrap()
                    .to_owned()
            })
            .collect();
        keys.sort();
        keys
    };
    assert_eq!(listed("job["), ["job[1]"]);
    assert_eq!(listed("job*"), ["job*"]);
    assert_eq!(listed("").len(), keys.len());
    stage.run(&["break", "job*", "--reason", "x", "--now"]);
    assert_eq!(listed("").len(), keys.len() - 1);
    assert!(stage.is_free("job*"));
}

#[test]
fn f86_ls_and_inspect_show_who_where_since_when_and_why() {
    let stage = Stage::new();
    assert_eq!(stage.run(&["ls"]).out, "no locks in use\n");
    assert!(stage.run(&["inspect", "k"]).out.contains("free"));
    let mut command = stage.distlock(&[
        "hold",
        "--no-stdin",
        "--label",
        "ci 7",
        "--reason",
        "deploy \"x\"",
        "k",
    ]);
    let mut holder = Running::start({
        command.stdout(Stdio::piped());
        command
    });
    holder.first_line();
    for args in [&["ls"][..], &["inspect", "k"]] {
        let out = stage.run(args).out;
        for word in ["ci 7", "deploy \"x\"", &holder.pid().to_string(), "mutex"] {
            assert!(out.contains(word), "{word} in {out}");
        }
    }
    let out = stage.run(&["--json", "inspect", "k"]).out;
    let lock: serde_json::Value = serde_json::from_str(&out).unwrap();
    let shown = &lock["holders"][0];
    assert_eq!(shown["pid"], holder.pid());
    assert!(shown["since"].as_str().unwrap().ends_with('Z') && shown["expires_in_ms"].is_u64());
    assert!(stage.run(&["inspect", "k"]).out.contains(&stage.url()));
}

#[test]
fn f86_break_takes_what_ls_shows_and_says_when_there_is_nothing() {
    let stage = Stage::new();
    let mut holder = stage.hold("stuck: a b");
    let listed: serde_json::Value = serde_json::from_str(&stage.run(&["--json", "ls"]).out).unwrap();
    let (key, token) = (&listed["key"], listed["holders"][0]["token"].to_string());
    let args = [
        "break",
        key.as_str().unwrap(),
        "--expect-token",
        &token,
        "--reason",
        "gone",
        "--now",
    ];
    let done = stage.run(&args);
    assert!(
        done.code == Some(0) && done.out.contains("taken from"),
        "{done:?}"
    );
    assert_eq!(holder.code(), Some(79));
    let nothing = stage.run(&["break", "never-heard-of", "--reason", "x"]);
    assert!(
        nothing.code == Some(0) && nothing.out.contains("nobody held it"),
        "{nothing:?}"
    );
}

#[test]
fn f92_the_lease_is_as_long_as_asked_and_shown() {
    let stage = Stage::new();
    for (flags, most) in [
        (&["acquire", "default"][..], 30_000),
        (&["acquire", "--ttl", "5s", "short"], 5_000),
    ] {
        assert_eq!(stage.run(flags).code, Some(0));
        let out = stage.run(&["--json", "inspect", flags.last().unwrap()]).out;
        let lock: serde_json::Value = serde_json::from_str(&out).unwrap();
        let left = lock["holders"][0]["expires_in_ms"].as_u64().unwrap();
        assert!(left <= most && left > most / 2, "{left} of {most}");
    }
    assert_eq!(stage.run(&["acquire", "--ttl", "1s", "k"]).code, Some(0));
    until("the end of the lease", || stage.is_free("k").then_some(()));
}

#[test]
fn f94_who_is_refused_sees_who_holds_also_as_json() {
    let stage = Stage::new();
    let reason = "deploy \"123\"\n\u{1b}[31m".to_owned() + &"x".repeat(10_000);
    let mut command = stage.distlock(&["hold", "--no-stdin", "--label", "ci 7", "--reason", &reason, "k"]);
    command.stdout(Stdio::piped());
    let mut holder = Running::start(command);
    holder.first_line();
    let refused = stage.run(&["--json", "run", "--wait", "10ms", "k", "--", "true"]);
    assert_eq!(refused.code, Some(75));
    let event: serde_json::Value = serde_json::from_str(refused.err.lines().last().unwrap()).unwrap();
    let seen = &event["holder"];
    assert_eq!(
        (&seen["label"], &seen["pid"]),
        (&"ci 7".into(), &holder.pid().into())
    );
    let told = seen["reason"].as_str().unwrap();
    assert!(
        told.starts_with("deploy \"123\"") && told.len() < 1100,
        "{} bytes",
        told.len()
    );
    assert!(
        seen["since"].is_string() && seen["expires_in_ms"].is_u64() && seen["token"].is_u64(),
        "{seen}"
    );
    let people = stage.run(&["try", "k", "--", "true"]).err;
    assert!(people.contains("ci 7") && !people.contains('\u{1b}'), "{people}");
    assert_eq!(people.lines().count(), 2, "one line, and one of advice: {people}");
}

/// A record that makes no sense: no answer is made up, and an operator can clear it.
#[test]
fn f86_a_damaged_record_is_told_and_can_be_cleared() {
    let stage = Stage::new();
    let _holder = stage.hold("deploy");
    damage(&stage.path("locks").join("table"));
    let done = stage.run(&["inspect", "deploy"]);
    assert!(done.code == Some(125) && done.err.contains("damaged"), "{done:?}");
    assert_eq!(stage.run(&["try", "deploy", "--", "true"]).code, Some(125));
    let clear = ["break", "deploy", "--reason", "damaged", "--now"];
    assert_eq!(stage.run(&clear).code, Some(0));
    assert!(stage.is_free("deploy"));
}

/// Overwrites whatever snapshot names a key.
fn damage(table: &std::path::Path) {
    use std::os::unix::fs::FileExt;
    let mut options = std::fs::OpenOptions::new();
    let file = options.read(true).write(true).open(table).unwrap();
    let length = file.metadata().unwrap().len();
    let mut block = vec![0u8; 4096];
    for at in (0..length).step_by(1 << 20) {
        let read = file.read_at(&mut block, at).unwrap();
        if block[..read].windows(6).any(|bytes| bytes == b"deploy") {
            file.write_at(&[0xff; 64], at).unwrap();
        }
    }
}

#[test]
fn f100_control_characters_are_refused_and_lists_keep_a_lock_on_a_line() {
    let stage = Stage::new();
    for key in ["a\tb", "a\rb", "a\nb", "k\r\nDEL other", "a\x7fb"] {
        let every: [&[&str]; 4] = [
            &["run", key, "--", "true"],
            &["acquire", key],
            &["inspect", key],
            &["break", key, "--reason", "x"],
        ];
        for args in every {
            let done = stage.run(args);
            assert!(
                done.code == Some(64) && done.err.contains("control"),
                "{args:?} {done:?}"
            );
            assert!(!done.err.trim_end().contains(['\r', '\t', '\x7f']), "{done:?}");
        }
    }
    let _spaced = stage.hold("two words");
    let list = stage.run(&["ls", "two "]).out;
    assert!(list.lines().count() == 2 && list.contains("two words"), "{list}");
}

#[test]
fn watching_shows_each_change() {
    let stage = Stage::new();
    let mut command = stage.distlock(&["--json", "ls", "--watch", "k"]);
    let mut watcher = Running::start({
        command.stdout(Stdio::piped());
        command
    });
    let holder = stage.hold("k");
    assert!(watcher.first_line().contains("\"pid\""));
    drop(holder);
    assert!(watcher.first_line().contains("\"holders\":[]"));
}

#[test]
fn doctor_conformance_and_bench_run() {
    let stage = Stage::new();
    let done = stage.run(&["doctor"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    let json = stage.run(&["--json", "doctor", &stage.url()]);
    let seen: serde_json::Value = serde_json::from_str(&json.out).unwrap();
    assert!(
        seen["hand_off_us"].is_u64() && seen["acquire"]["typical_us"].is_u64(),
        "{seen}"
    );
    // Where tests keep their files, programs tidy up: a warning.
    assert_eq!(seen["findings"][0]["id"], "file-tidied");
    assert_eq!(stage.run(&["doctor", "--strict"]).code, Some(1));
    let nobody = stage.run(&["doctor", "redis://127.0.0.1:1/"]);
    assert_eq!(nobody.code, Some(125), "{nobody:?}");

    let done = stage.run(&["conformance", &stage.url(), "--only", "release"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    assert!(done.out.contains("ok      release_in_every_state"), "{done:?}");
    assert!(
        done.out
            .lines()
            .any(|l| l.starts_with("safe release") && l.contains("yes")),
        "{done:?}"
    );
    assert_eq!(done.out.lines().rev().take_while(|l| !l.is_empty()).count(), 8);
    assert_eq!(
        stage.run(&["conformance", "--only", "no such case"]).code,
        Some(64)
    );
    let done = stage.run(&["--json", "bench", "--time", "50ms", "--tasks", "2"]);
    let line: serde_json::Value = serde_json::from_str(&done.out).unwrap();
    assert!(line["operations"].as_u64().unwrap() > 0);
    assert_eq!(stage.run(&["ls"]).out, "no locks in use\n");
}
