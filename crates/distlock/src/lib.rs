//! One lock that means the same thing on every engine.
#![forbid(unsafe_code)]

mod connect;
mod location;

pub use distlock_core::*;

pub use crate::connect::{Locks, LocksBuilder};
