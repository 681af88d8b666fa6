//! The default engine, and the configuration file.

use std::process::{Command, Stdio};

use crate::stage::{Running, Stage};

/// The place of the default engine depends on the user alone: cron, with its bare environment, meets a shell.
#[test]
fn a_bare_environment_and_a_shell_meet() {
    let stage = Stage::new();
    let key = format!(
        "distlock-test:{}:{}",
        std::process::id(),
        stage.path("").display()
    );
    let mut command = stage.distlock(&["hold", "--no-stdin", &key]);
    command
        .env_remove("DISTLOCK_URL")
        .env("HOME", stage.path(""))
        .env("XDG_STATE_HOME", stage.path(""));
    let mut holder = Running::start({
        command.stdout(Stdio::piped());
        command
    });
    let line = holder.first_line();
    assert!(line.contains("\"held\""), "{line}");
    let bare = |command: &mut Command| {
        command
            .env_clear()
            .env("DISTLOCK_CONFIG", stage.path("none.toml"))
            .status()
            .unwrap()
            .code()
    };
    let mut second = stage.distlock(&["try", "-q", &key, "--", "/bin/true"]);
    assert_eq!(bare(&mut second), Some(75));
    drop(holder);
    let mut third = stage.distlock(&["run", "-q", "--wait", "20s", &key, "--", "/bin/true"]);
    assert_eq!(bare(&mut third), Some(0));
}

#[test]
fn the_configuration_names_engines_and_sets_defaults() {
    let stage = Stage::new();
    let text = format!(
        "url = 'here'\nwait = '0'\nlabel = 'from-file'\n[urls]\nhere = '{}'\n",
        stage.url()
    );
    std::fs::write(stage.path("c.toml"), text).unwrap();
    let distlock = |args: &[&str]| {
        let mut command = stage.distlock(args);
        command
            .env_remove("DISTLOCK_URL")
            .env("DISTLOCK_CONFIG", stage.path("c.toml"));
        command
    };
    let mut command = distlock(&["hold", "--no-stdin", "k"]);
    let mut holder = Running::start({
        command.stdout(Stdio::piped());
        command
    });
    holder.first_line();
    // The file's `wait` makes `run` a try; the file's name for the engine is the stage's.
    assert_eq!(
        distlock(&["run", "-q", "k", "--", "true"])
            .status()
            .unwrap()
            .code(),
        Some(75)
    );
    assert!(stage.run(&["inspect", "k"]).out.contains("from-file"));
    let done = crate::stage::Done::of(distlock(&["ls", "--url", "there"]).output().unwrap());
    assert_eq!(done.code, Some(64));
    assert!(done.err.contains("here"), "{done:?}");
}
