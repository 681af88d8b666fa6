//! The log: off unless asked for, on standard error.

use std::io::IsTerminal;

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
    begin(&filter, false);
}

/// Starts that of a service, which tells each request; `json`: one object a line.
pub(crate) fn start_service(json: bool, quiet: bool) {
    begin(if quiet { "distlock=warn" } else { "distlock=info" }, json);
}

fn begin(filter: &str, json: bool) {
    let filter = EnvFilter::try_new(filter).unwrap_or_else(|_| EnvFilter::new("distlock=debug"));
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr);
    // Only fails when there is a log already.
    let _ = if json {
        log.json().try_init()
    } else {
        log.try_init()
    };
}
