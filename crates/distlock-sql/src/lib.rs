//! The MySQL/MariaDB and PostgreSQL engines of distlock: one core, two dialects.
//!
//! A lock is a row of one table: its name, its owner, a token that only grows, and an expiry by the database's own
//! clock. Taking and releasing an uncontended lock is one statement, one round trip each. Waiters on PostgreSQL are
//! notified; on MySQL they look at intervals. Nothing is ever waited for inside a statement, a transaction or a
//! connection of a pool.
//!
//! The statements are the files in `sql/`; each says what it does and why it is right.
#![forbid(unsafe_code)]

mod claim;
mod config;
mod doctor;
mod driver;
mod fault;
mod hash;
mod inspect;
mod kind;
mod mysql;
mod people;
mod postgres;
mod purge;
mod renew;
mod session;
mod state;
mod statement;
mod store;
mod table;
mod times;
mod tls;
pub mod tx;
pub mod versioned;
mod watch;

use std::sync::Arc;

use distlock_core::driver::{Driver, DriverError};
use distlock_core::engine::Engine;

pub use crate::config::{Config, Dialect, Host, Layout, Tls, parameters};
pub use distlock_core::Secret;

/// Opens the engine. Connections are made when they are first needed, so the database may be down meanwhile.
///
/// # Errors
/// A configuration that cannot work: a bad table name, an unreadable TLS file, MySQL without a database.
///
/// # Cancel safety
/// Safe.
pub async fn open(engine: Engine, config: Config) -> Result<Arc<dyn Driver>, DriverError> {
    match config.layout {
        Layout::Row => Ok(Arc::new(driver::RowDriver::new(engine, config)?)),
        Layout::Session => Ok(Arc::new(session::SessionDriver::new(engine, &config)?)),
    }
}
