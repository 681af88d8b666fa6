//! `distlock acquire`, `renew`, `release`.

use std::io::Write;
use std::process::Stdio;

use crate::stage::{Stage, until};

#[test]
fn a_lease_outlives_its_process_and_is_given_back() {
    let stage = Stage::new();
    let taken = stage.run(&["acquire", "--ttl", "60s", "k"]);
    assert_eq!(taken.code, Some(0), "{taken:?}");
    let handle = taken.out.trim_end();
    assert!(!stage.is_free("k"));
    let renewed = stage.run(&["renew", handle]);
    assert_eq!(
        (renewed.code, renewed.out.trim_end()),
        (Some(0), handle),
        "{renewed:?}"
    );
    assert_eq!(stage.run(&["release", handle]).code, Some(0));
    assert!(stage.is_free("k"));
    // It is over: neither can be done again.
    for again in ["renew", "release"] {
        let done = stage.run(&[again, handle]);
        assert_eq!(done.code, Some(79), "{done:?}");
    }
}

#[test]
fn a_lease_ends_by_its_ttl() {
    let stage = Stage::new();
    let taken = stage.run(&["--json", "acquire", "--ttl", "400ms", "k"]);
    let line: serde_json::Value = serde_json::from_str(&taken.out).unwrap();
    assert_eq!(line["ttl_ms"], 400);
    until("the lease's end", || stage.is_free("k").then_some(()));
    assert_eq!(
        stage.run(&["renew", line["handle"].as_str().unwrap()]).code,
        Some(79)
    );
}

#[test]
fn a_handle_may_come_from_input() {
    let stage = Stage::new();
    for json in [false, true] {
        let args: &[&str] = if json {
            &["--json", "acquire", "k"]
        } else {
            &["acquire", "k"]
        };
        let taken = stage.run(args);
        let mut command = stage.distlock(&["release", "-"]);
        let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
        child
            .stdin
            .take()
            .unwrap()
            .write_all(taken.out.as_bytes())
            .unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(0));
        assert!(stage.is_free("k"));
    }
}
