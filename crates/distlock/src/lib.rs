//! One lock that means the same thing on every engine.
#![forbid(unsafe_code)]

mod attribute;
mod connect;
mod location;

pub use distlock_core::driver::Order;
pub use distlock_core::*;

#[cfg(feature = "macros")]
pub use distlock_macros::{assert_locked, locked};

pub use crate::attribute::install;
pub use crate::connect::{Locks, LocksBuilder};

/// What the macros expand to; not an interface.
#[doc(hidden)]
pub mod __private {
    pub use crate::attribute::*;
}
