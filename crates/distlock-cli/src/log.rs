//! The log: off unless asked for, on standard error.

use tracing_subscriber::EnvFilter;

/// Starts it. `-v` shows what distlock does, `-vv` also what its engines do; `DISTLOCK_LOG` filters as `RUST_LOG`
/// does elsewhere.
pub(crate) fn start(verbose: u8) {
    let filter = match (std::env::var("DISTLOCK_LOG"), verbose) {
        (Ok(filter), _) if !filter.is_empty() => filter,
        (_, 0) => return,
        (_, 1) => "distlock=debug".into(),
        (_, _) => "trace".into(),
    };
    let filter = EnvFilter::try_new(&filter).unwrap_or_else(|_| EnvFilter::new("distlock=debug"));
    // Only fails when there is a log already.
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .try_init();
}
