//! What happens to a test whose server is not installed.

use std::io::Write;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::program::StartError;

static SKIPPED: AtomicUsize = AtomicUsize::new(0);

/// The server, or `None` if it is not installed on this machine, which is then told by [`skip`].
///
/// # Panics
/// When the server is installed and does not start, and as [`skip`].
#[track_caller]
pub fn or_skip<T>(started: Result<T, StartError>) -> Option<T> {
    match started {
        Ok(server) => Some(server),
        Err(StartError::Missing(what)) => {
            skip(&format!("{what} is not installed"));
            None
        }
        Err(e) => panic!("{e}"),
    }
}

/// Tells, with a visible line and a count, that a test cannot run on this machine. The line is also added to the file
/// that `DISTLOCK_SKIPPED` names, so that `scripts/test` can count over all programs.
///
/// # Panics
/// When `DISTLOCK_REQUIRE=all`: there, what is missing is a failure.
#[track_caller]
#[allow(clippy::print_stderr)]
pub fn skip(why: &str) {
    if std::env::var_os("DISTLOCK_REQUIRE").is_some_and(|v| v == "all") {
        panic!("{why}, and DISTLOCK_REQUIRE=all");
    }
    let n = SKIPPED.fetch_add(1, Ordering::Relaxed) + 1;
    eprintln!("SKIPPED ({n} in this program): {why}");
    if let Some(path) = std::env::var_os("DISTLOCK_SKIPPED")
        && let Ok(mut list) = std::fs::File::options().append(true).create(true).open(path)
    {
        // One write: lines of programs that run side by side do not mix.
        let _ = list.write_all(format!("{why}\n").as_bytes());
    }
}

/// How many tests of this program were skipped so far.
pub fn skipped() -> usize {
    SKIPPED.load(Ordering::Relaxed)
}
