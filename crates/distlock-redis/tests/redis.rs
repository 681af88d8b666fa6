//! The engine on real servers: formats, attempts, waiting, holding, deployments, faults.
#![allow(clippy::unwrap_used, missing_docs)]

mod common;

/// A server of the test's own, or the end of the test where there is none.
macro_rules! redis {
    () => {
        redis!(distlock_testkit::servers::Redis::start())
    };
    ($start:expr) => {
        match distlock_testkit::servers::or_skip($start.await) {
            Some(redis) => redis,
            None => return,
        }
    };
}

#[path = "redis/attempts.rs"]
mod attempts;
#[path = "redis/deployments.rs"]
mod deployments;
#[path = "redis/doctor.rs"]
mod doctor;
#[path = "redis/faults.rs"]
mod faults;
#[path = "redis/foreign.rs"]
mod foreign;
#[path = "redis/formats.rs"]
mod formats;
#[path = "redis/gate.rs"]
mod gate;
#[path = "redis/holding.rs"]
mod holding;
#[path = "redis/waiting.rs"]
mod waiting;
