//! Flags, configuration file and defaults: which one counts, and what is refused.

use std::time::{Duration, Instant};

use crate::stage::{Done, Stage};

/// The wait that counts is the most specific one: flag, then file, then none at all.
#[test]
fn f38_a_limit_given_for_one_call_counts_more_than_the_default() {
    let stage = Stage::new();
    let _holder = stage.hold("k");
    let took = |file: &str, flags: &[&str]| {
        std::fs::write(stage.path("c.toml"), file).unwrap();
        let args = [&["run", "-q", "--config", "c.toml"], flags, &["k", "--", "true"]].concat();
        let start = Instant::now();
        assert_eq!(stage.run(&args).code, Some(75), "{file} {flags:?}");
        start.elapsed()
    };
    let (short, long) = (Duration::from_millis(300), Duration::from_secs(30));
    let limits = [
        (took("wait = '60s'", &["--wait", "300ms"]), short),
        (took("wait = '300ms'", &[]), short),
        (took("wait = '60s'", &["-n"]), Duration::ZERO),
        (
            took("wait = '0'", &["--wait", "700ms"]),
            Duration::from_millis(700),
        ),
    ];
    for (n, (took, at_least)) in limits.iter().enumerate() {
        assert!((*at_least..long).contains(took), "case {n}: {took:?}");
    }
}

#[test]
fn f63_a_ttl_that_is_no_duration_is_refused_by_name_wherever_it_stands() {
    let stage = Stage::new();
    let mark = stage.path("ran").display().to_string();
    for bad in [
        "0", "-5", "0ms", "abc", "", "1.5", "10", "1e9s", "NaN", "inf", "5ms",
    ] {
        let flag = format!("--ttl={bad}");
        let done = stage.run(&["run", &flag, "k", "--", "touch", &mark]);
        assert_eq!(done.code, Some(64), "{bad:?}: {done:?}");
        assert!(done.err.contains("--ttl"), "{bad:?}: {done:?}");

        std::fs::write(stage.path("c.toml"), format!("ttl = '{bad}'")).unwrap();
        let done = stage.run(&["run", "--config", "c.toml", "k", "--", "touch", &mark]);
        assert_eq!(done.code, Some(78), "{bad:?}: {done:?}");
        assert!(done.err.contains("ttl"), "{bad:?}: {done:?}");
        assert!(!stage.path("locks").exists(), "{bad:?}");

        let url = format!("{}?ttl={bad}", stage.url());
        let done = stage.run(&["run", "--url", &url, "k", "--", "touch", &mark]);
        assert_eq!(done.code, Some(64), "{bad:?}: {done:?}");
        assert!(done.err.contains("ttl"), "{bad:?}: {done:?}");
        assert!(!stage.path("ran").exists(), "{bad:?}");
        // Its own range only the engine knows.
        let _ = std::fs::remove_dir_all(stage.path("locks"));
    }
}

#[test]
fn f64_a_huge_duration_is_refused_or_kept_and_blocks_nobody() {
    let stage = Stage::new();
    let secs = |n: u128| format!("{n}s");
    let millis = |n: u128| format!("{n}ms");
    let huge = [
        secs(u64::MAX.into()),
        secs(i64::MAX.unsigned_abs().into()),
        millis(u64::MAX.into()),
        millis(1 << 53),
        "1000years".into(),
    ];
    for long in &huge {
        let done = stage.run(&["run", "--ttl", long, "k", "--", "true"]);
        assert_eq!(done.code, Some(64), "{long}: {done:?}");
        assert!(!done.err.contains("panicked"), "{done:?}");
        // As a wait it is as good as for ever, or refused; never a wait of nothing.
        let code = stage.run(&["run", "--wait", long, "k", "--", "true"]).code;
        assert!(matches!(code, Some(0 | 64)), "{long}: {code:?}");
    }
    assert_eq!(stage.run(&["try", "k", "--", "true"]).code, Some(0));
}

/// Over several looks of ours, to the end of a hold that is long for a test.
#[test]
fn f84_a_long_wait_lasts_as_long_as_it_was_asked_for() {
    let stage = Stage::new();
    let mut holder = stage.start(&["run", "k", "--", "sh", "-c", "echo > up; sleep 2"]);
    stage.wait_for("up");
    let start = Instant::now();
    let done = stage.run(&["run", "--wait", "2h", "k", "--", "true"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    assert!(start.elapsed() > Duration::from_millis(1500) && holder.code() == Some(0));
    // A longer one than the limit.
    let _holder = stage.hold("k");
    let start = Instant::now();
    assert_eq!(
        stage
            .run(&["run", "-q", "--wait", "1.5s", "k", "--", "true"])
            .code,
        Some(75)
    );
    assert!(start.elapsed() >= Duration::from_millis(1500));
}

#[test]
fn f99_a_name_that_is_empty_gets_the_same_answer_everywhere() {
    let stage = Stage::new();
    let every: [&[&str]; 6] = [
        &["run", "", "--", "touch", "ran"],
        &["try", "", "--", "touch", "ran"],
        &["hold", ""],
        &["acquire", ""],
        &["inspect", ""],
        &["break", "", "--reason", "x"],
    ];
    let answers: Vec<String> = every
        .iter()
        .map(|args| {
            let done = stage.run(args);
            assert_eq!(done.code, Some(64), "{args:?} {done:?}");
            done.err
        })
        .collect();
    assert!(answers.iter().all(|answer| *answer == answers[0]), "{answers:?}");
    // What a shell makes of a variable that is not set.
    let mut shell = std::process::Command::new("sh");
    shell.args([
        "-c",
        "exec \"$0\" run \"$UNSET\" -- touch ran",
        env!("CARGO_BIN_EXE_distlock"),
    ]);
    shell.env("DISTLOCK_URL", stage.url()).current_dir(stage.path(""));
    assert_eq!(Done::of(shell.output().unwrap()).code, Some(64));
    // A space is a name.
    assert_eq!(stage.run(&["run", " ", "--", "true"]).code, Some(0));
    assert!(!stage.path("ran").exists());
}

#[test]
fn a_password_is_not_repeated_in_advice() {
    let stage = Stage::new();
    let url = "redis://user:sesame@127.0.0.1:1/";
    let run = ["run", "--wait", "200ms", "k", "--", "true"];
    for json in [false, true] {
        let flags: &[&str] = if json { &["--json"] } else { &[] };
        let mut by_environment = stage.distlock(&[flags, &run].concat());
        by_environment.env("DISTLOCK_URL", url);
        let by_flag = stage.distlock(&[flags, &["--url", url], &run].concat());
        for mut command in [by_environment, by_flag] {
            let done = Done::of(command.output().unwrap());
            assert_eq!(done.code, Some(125), "{done:?}");
            assert!(
                done.err.contains("doctor") && !done.err.contains("sesame"),
                "{done:?}"
            );
        }
    }
}

#[test]
fn a_mistake_is_answered_with_what_was_meant() {
    let stage = Stage::new();
    let _holder = stage.hold("k");
    for (args, advice) in [
        (&["run", "k", "true"][..], "stands after --"),
        (&["run", "k", "ls", "-l"], "stands after --"),
        (&["run", "k", "-c", "echo a"], "sh -c"),
        (&["k", "--", "true"], "distlock run KEY"),
        (&["-n", "k", "--", "true"], "distlock run KEY"),
        (&["runn", "k", "--", "true"], "'run'"),
        (&["run", "k", "--", "echo a b"], "sh -c 'echo a b'"),
        (&["run", "--wait", "10", "k", "--", "true"], "10s"),
        (&["run", "--wait", "soon", "k", "--", "true"], "forever"),
        (&["run", "--url", "prod", "k", "--", "true"], "[urls]"),
        (&["run", "--permits", "0", "k", "--", "true"], "at least 1"),
        (&["run", "--ttl", "400days", "k", "--", "true"], "366 days"),
        (&["try", "k", "--", "true"], "--wait 30s"),
    ] {
        let done = stage.run(args);
        assert!(matches!(done.code, Some(64 | 75 | 127)), "{args:?} {done:?}");
        assert!(done.err.contains(advice), "{args:?}: {}", done.err);
    }
}
