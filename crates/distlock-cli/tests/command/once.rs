//! `run --once-per`: at most once in a window.

use std::time::{Duration, Instant};

use crate::stage::{KILL, Stage, until};

const RETRY: [&str; 5] = ["run", "--once-per", "1h", "--on-crash", "retry"];
const SKIP: [&str; 5] = ["run", "--once-per", "1h", "--on-crash", "skip"];

fn code(stage: &Stage, flags: &[&str], command: &str) -> Option<i32> {
    let args = [flags, &["k", "--", "sh", "-c", command][..]].concat();
    stage.run(&args).code
}

#[test]
fn the_second_run_of_a_window_is_80_and_says_when_the_next_may_be() {
    let stage = Stage::new();
    assert_eq!(code(&stage, &RETRY, "echo one >> runs"), Some(0));
    let done = stage.run(&[&RETRY[..], &["k", "--", "sh", "-c", "echo two >> runs"]].concat());
    assert_eq!(done.code, Some(80), "{done:?}");
    assert!(
        done.err.contains("already done") && done.err.contains("59m"),
        "{done:?}"
    );
    let json = stage.run(&[&["--json"][..], &RETRY, &["k", "--", "true"]].concat());
    let event: serde_json::Value = serde_json::from_str(json.err.lines().last().unwrap()).unwrap();
    assert_eq!(
        (&event["event"], &event["exit"]),
        (&"already_done".into(), &80.into())
    );
    assert!(event["again_in_ms"].as_u64().unwrap() > 3_500_000);
    assert_eq!(
        code(&stage, &[&RETRY[..], &["--skip-ok"]].concat(), "true"),
        Some(0)
    );
    assert_eq!(stage.read("runs"), "one\n");
}

#[test]
fn the_window_ends() {
    let stage = Stage::new();
    let flags = ["run", "--once-per", "1s", "--on-crash", "retry"];
    let start = Instant::now();
    assert_eq!(code(&stage, &flags, "true"), Some(0));
    until("the next window", || {
        (code(&stage, &flags, "true") == Some(0)).then_some(())
    });
    assert!(start.elapsed() >= Duration::from_secs(1));
}

#[test]
fn a_failed_run_is_run_again_or_not_as_the_caller_said() {
    let stage = Stage::new();
    assert_eq!(code(&stage, &RETRY, "exit 3"), Some(3));
    assert_eq!(code(&stage, &RETRY, "exit 0"), Some(0));
    let stage = Stage::new();
    assert_eq!(code(&stage, &SKIP, "exit 3"), Some(3));
    assert_eq!(code(&stage, &SKIP, "exit 0"), Some(80));
}

#[test]
fn a_killed_run_is_run_again_or_not_as_the_caller_said() {
    for (flags, again) in [(RETRY, 0), (SKIP, 75)] {
        let stage = Stage::new();
        let args = [
            &flags[..],
            &["k", "--", "sh", "-c", "echo begun > begun; exec sleep 600"],
        ]
        .concat();
        let mut first = stage.start(&args);
        stage.wait_for("begun");
        assert_eq!(code(&stage, &flags, "true"), Some(75), "somebody is at it");
        first.signal(KILL);
        first.wait();
        let last = until("the guardian's end", || {
            let code = code(&stage, &flags, "true");
            (code == Some(again)).then_some(code)
        });
        assert_eq!(last, Some(again));
    }
}

#[test]
fn what_a_crash_means_has_to_be_said() {
    let stage = Stage::new();
    let silent = stage.run(&["run", "--once-per", "1h", "k", "--", "true"]);
    assert_eq!(silent.code, Some(64));
    assert!(silent.err.contains("--on-crash"), "{silent:?}");
    for wrong in [
        &[
            "run",
            "--once-per",
            "1h",
            "--on-crash",
            "perhaps",
            "k",
            "--",
            "true",
        ][..],
        &["run", "--once-per", "0", "--on-crash", "retry", "k", "--", "true"],
        &[
            "run",
            "--once-per",
            "1h",
            "--on-crash",
            "retry",
            "a",
            "b",
            "--",
            "true",
        ],
        &[
            "run",
            "--once-per",
            "1h",
            "--on-crash",
            "skip",
            "--ttl",
            "5s",
            "k",
            "--",
            "true",
        ],
    ] {
        assert_eq!(stage.run(wrong).code, Some(64), "{wrong:?}");
    }
}

#[test]
fn f96_refused_runs_are_counted() {
    let stage = Stage::new();
    let counted = ["--metrics-file", "job.prom"];
    let once = [&RETRY[..], &counted].concat();
    assert_eq!(code(&stage, &once, "exit 3"), Some(3));
    assert_eq!(code(&stage, &once, "true"), Some(0));
    assert_eq!(code(&stage, &once, "true"), Some(80));
    let text = stage.read("job.prom");
    for line in [
        "distlock_run_total{key=\"k\",outcome=\"failed\"} 1",
        "distlock_run_total{key=\"k\",outcome=\"ok\"} 1",
        "distlock_run_total{key=\"k\",outcome=\"skipped\"} 1",
        "distlock_run_exit_code{key=\"k\"} 80",
    ] {
        assert!(text.lines().any(|l| l == line), "{line} is not in:\n{text}");
    }
    for name in [
        "waited_seconds",
        "held_seconds",
        "last_timestamp_seconds",
        "last_success_timestamp_seconds",
    ] {
        assert!(
            text.contains(&format!("\ndistlock_run_{name}{{key=\"k\"}} ")),
            "{name} is not in:\n{text}"
        );
    }
    let alone = std::fs::read_dir(stage.path(".")).unwrap().count();
    assert_eq!(alone, 3, "job.prom, the locks, and the configuration");
    let nowhere = stage.run(&["run", "--metrics-file", "no/dir/x.prom", "k2", "--", "true"]);
    assert!(
        nowhere.code == Some(0) && nowhere.err.contains("not counted"),
        "{nowhere:?}"
    );
}
