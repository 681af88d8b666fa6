//! One lock that means the same thing on every engine.
#![forbid(unsafe_code)]

mod attribute;
mod connect;
// What an engine's URL may hold is read by the engines whose feature is on.
#[cfg_attr(
    not(all(
        feature = "redis",
        feature = "etcd",
        feature = "sql",
        feature = "zookeeper",
        feature = "http"
    )),
    allow(dead_code)
)]
mod location;
#[cfg(feature = "prometheus")]
mod prometheus;
#[cfg(feature = "sql")]
pub mod sql;
#[cfg(feature = "opentelemetry")]
mod traces;

pub use distlock_core::driver::Order;
pub use distlock_core::*;

#[cfg(feature = "macros")]
pub use distlock_macros::{assert_locked, locked};

pub use crate::attribute::install;
#[cfg(feature = "redis")]
pub use crate::connect::vouch;
pub use crate::connect::{Locks, LocksBuilder};
#[cfg(feature = "prometheus")]
pub use crate::prometheus::Prometheus;
#[cfg(feature = "opentelemetry")]
pub use crate::traces::opentelemetry;

/// The README's code compiles.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

/// The guide's code compiles and runs.
#[cfg(all(doctest, feature = "macros"))]
mod guide {
    #[doc = include_str!("../../../docs/guide/quick-start.md")]
    struct QuickStart;
    #[doc = include_str!("../../../docs/guide/loss.md")]
    struct Loss;
    #[doc = include_str!("../../../docs/guide/granularity.md")]
    struct Granularity;
    #[doc = include_str!("../../../docs/guide/once-and-election.md")]
    struct OnceAndElection;
    #[doc = include_str!("../../../docs/guide/monitoring.md")]
    struct Monitoring;
    #[doc = include_str!("../../../docs/guide/transactions.md")]
    struct Transactions;
}

/// What the macros expand to; not an interface.
#[doc(hidden)]
pub mod __private {
    pub use crate::attribute::*;
}
