//! Times by the server's clock, in microseconds, as the statements want and give them.

use std::time::Duration;

/// A span of server time; negative ones are over.
pub(crate) fn micros(us: i64) -> Duration {
    Duration::from_micros(u64::try_from(us).unwrap_or(0))
}

/// A span as the statements want it.
pub(crate) fn in_micros(d: Duration) -> i64 {
    i64::try_from(d.as_micros()).unwrap_or(i64::MAX)
}
