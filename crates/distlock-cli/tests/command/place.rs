//! The default engine, and the configuration file.

use std::process::{Command, Stdio};

use crate::stage::{KILL, Running, Stage, until};

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

/// Every client sweeps what dead ones left behind when it opens the directory.
#[test]
fn f88_sweeping_after_the_dead_leaves_the_living_alone() {
    let stage = Stage::new();
    let mut living: Vec<Running> = (0..6).map(|n| stage.hold(&format!("living{n}"))).collect();
    let readers: Vec<Running> = (0..3)
        .map(|_| stage.start(&["run", "-s", "shared", "--", "sleep", "600"]))
        .collect();
    until("the readers", || {
        let seen = stage.run(&["--json", "inspect", "shared"]).out;
        let seen: serde_json::Value = serde_json::from_str(&seen).unwrap();
        (seen["holders"].as_array().unwrap().len() == 3).then_some(())
    });
    let waiter = stage.start(&["run", "-q", "living0", "--", "touch", "got"]);
    until("the waiter", || {
        stage
            .run(&["inspect", "living0"])
            .out
            .contains("waiter:")
            .then_some(())
    });
    for n in 0..30 {
        let mut dead = stage.hold(&format!("dead{n}"));
        dead.signal(KILL);
        dead.wait();
        assert!(stage.is_free(&format!("dead{n}")));
    }
    assert!((0..6).all(|n| !stage.is_free(&format!("living{n}"))));
    assert!(living.iter_mut().all(|holder| !holder.has_ended()));
    let seen = stage.run(&["ls"]).out;
    assert!(!seen.contains("dead"), "{seen}");
    drop(living.remove(0));
    let mut waiter = waiter;
    assert_eq!(waiter.code(), Some(0));
    drop(readers);
}

#[test]
fn f91_names_that_processes_used_leave_nothing_behind() {
    let stage = Stage::new();
    let files = || {
        let mut open = vec![stage.path("locks")];
        let mut found = 0;
        while let Some(dir) = open.pop() {
            for entry in std::fs::read_dir(dir).unwrap() {
                let path = entry.unwrap().path();
                found += 1;
                if path.is_dir() {
                    open.push(path);
                }
            }
        }
        found
    };
    assert_eq!(stage.run(&["run", "first", "--", "true"]).code, Some(0));
    let before = files();
    for n in 0..100 {
        assert_eq!(
            stage.run(&["run", &format!("name{n}"), "--", "true"]).code,
            Some(0)
        );
    }
    assert!(files() <= before + 1, "{} files, and {before} before", files());
    assert_eq!(stage.run(&["ls"]).out, "no locks in use\n");
}
