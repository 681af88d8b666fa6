//! The command as a whole process, beside `flock(1)`.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::report::Report;
use crate::sample::{Sample, ratio};

/// The command that was built beside this program.
fn distlock() -> PathBuf {
    let me = std::env::current_exe().unwrap_or_else(|e| panic!("where am I: {e}"));
    me.with_file_name("distlock")
}

fn timed(program: &Path, arguments: &[&str], url: &str) -> Duration {
    let mut command = Command::new(program);
    command
        .args(arguments)
        .env("DISTLOCK_URL", url)
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    let start = Instant::now();
    match command.status() {
        Ok(status) if status.success() => start.elapsed(),
        other => panic!("{} {arguments:?}: {other:?}", program.display()),
    }
}

pub(crate) fn measure(quick: bool) -> Report {
    let mut report = Report::new("whole processes, around `true`");
    let dir = tempfile::tempdir().unwrap_or_else(|e| panic!("no temporary directory: {e}"));
    let file = dir.path().join("flock");
    let (file, url) = (
        file.display().to_string(),
        format!("file://{}/locks", dir.path().display()),
    );
    let (flock, distlock) = (PathBuf::from("flock"), distlock());
    let (mut floor, mut version, mut list, mut run) = <(Sample, Sample, Sample, Sample)>::default();
    for round in 0..if quick { 60 } else { 600 } {
        let samples = [
            (&mut floor, timed(&flock, &[&file, "true"], &url)),
            (&mut version, timed(&distlock, &["--version"], &url)),
            (&mut list, timed(&distlock, &["ls"], &url)),
            (&mut run, timed(&distlock, &["run", "report", "--", "true"], &url)),
        ];
        // The first rounds warm the caches.
        if round >= 10 {
            samples.into_iter().for_each(|(sample, took)| sample.push(took));
        }
    }
    report.note(
        "distlock --version (start, arguments), p50",
        format!("{:?}", version.p50()),
    );
    report.note(
        "distlock ls (and a client, no guardian), p50",
        format!("{:?}", list.p50()),
    );
    let guardian = run.p50().saturating_sub(list.p50());
    report.note(
        "what acquire, guardian, the command itself and release add, p50",
        format!("{guardian:?}"),
    );
    let r = ratio(run.p50(), floor.p50());
    report.row(
        "distlock run KEY -- true, p50 (floor: flock FILE true)",
        format!("{:?}", floor.p50()),
        format!("{:?} ({r:.2} x), p10 {:?}", run.p50(), run.quantile(0.1)),
        "<= 2 x",
        r <= 2.0,
    );
    report
}
