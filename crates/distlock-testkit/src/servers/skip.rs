//! What happens to a test whose server is not installed.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::program::StartError;

static SKIPPED: AtomicUsize = AtomicUsize::new(0);

/// The server, or `None` with a visible line if it is not installed on this machine.
///
/// # Panics
/// When the server is installed and does not start, and when it is missing although `DISTLOCK_REQUIRE=all`.
#[track_caller]
#[allow(clippy::print_stderr)]
pub fn or_skip<T>(started: Result<T, StartError>) -> Option<T> {
    match started {
        Ok(server) => Some(server),
        Err(StartError::Missing(what)) => {
            if std::env::var_os("DISTLOCK_REQUIRE").is_some_and(|v| v == "all") {
                panic!("{what} is not installed, and DISTLOCK_REQUIRE=all");
            }
            let n = SKIPPED.fetch_add(1, Ordering::Relaxed) + 1;
            eprintln!("SKIPPED ({n} in this program): {what} is not installed");
            None
        }
        Err(e) => panic!("{e}"),
    }
}

/// How many tests of this program were skipped so far.
pub fn skipped() -> usize {
    SKIPPED.load(Ordering::Relaxed)
}
