//! Every metric of a gateway, in one place. Those of the locks are the library's.
//!
//! | metric | type | labels | meaning |
//! |---|---|---|---|
//! | `distlock_service_requests_total` | counter | `status` = 2xx, 4xx, 5xx, other | answers |
//! | `distlock_service_waiting` | gauge | | requests that wait for a lock |
//!
//! Neither keys nor callers are labels: a key per order would be a series per order.

use metrics::{counter, describe_counter, describe_gauge, gauge};

const REQUESTS: &str = "distlock_service_requests_total";
const WAITING: &str = "distlock_service_waiting";

/// Says what they mean, to the recorder of the process.
pub(crate) fn describe() {
    describe_counter!(REQUESTS, "Answers of the service.");
    describe_gauge!(WAITING, "Requests that wait for a lock.");
}

/// An answer went out.
pub(crate) fn answered(status: u16) {
    let class = match status {
        200..=299 => "2xx",
        400..=499 => "4xx",
        500..=599 => "5xx",
        _ => "other",
    };
    counter!(REQUESTS, "status" => class).increment(1);
}

/// So many requests wait.
pub(crate) fn waiting(n: usize) {
    gauge!(WAITING).set(n as f64);
}
