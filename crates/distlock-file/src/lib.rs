//! The engine of distlock that needs no server: one table of copy-on-write snapshots on the local file system.
//!
//! All processes of a host that name the same directory exclude each other, whatever container, PID namespace or
//! time namespace they run in. A holder that is killed is replaced at once, one that is stopped after its TTL; no
//! process that is stopped or frozen at any instruction keeps others from going on.
//!
//! Linux only for now: elsewhere this crate is empty.
#![cfg(any(target_os = "linux", target_os = "android"))]

mod bells;
mod boot;
mod claim;
mod config;
mod dir;
mod doctor;
mod driver;
mod entry;
mod fifo;
mod filesystem;
mod hash;
#[doc(hidden)]
pub mod hook;
mod inspect;
#[cfg(test)]
mod model;
mod peers;
mod place;
mod protocol;
mod root;
mod rule;
mod snapshot;
mod stopped;
mod sys;
mod table;
mod trouble;
mod update;
mod vigil;

use std::sync::Arc;

use distlock_core::driver::{Driver, DriverError};
use distlock_core::engine::Engine;

pub use crate::config::{Config, Share};

/// Opens a directory of locks, making it if only its last part is missing.
///
/// # Errors
/// * refused as an invalid setting: a missing parent, a symbolic link, a directory in which others could tamper with
///   the locks, a network file system;
/// * unavailable: a directory that cannot be read or written, a full disk, a damaged table.
///
/// Each names the path and says what to do.
pub fn open(engine: Engine, config: Config) -> Result<Arc<dyn Driver>, DriverError> {
    Ok(Arc::new(driver::FileDriver::open(engine, config)?))
}
