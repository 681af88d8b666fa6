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

use distlock_core::clock::Clock;
use distlock_core::driver::{Driver, DriverError, Reached};
use distlock_core::engine::Engine;
use distlock_core::{Error, Namespace};

pub use crate::config::{Config, Dialect, Host, Layout, Tls, parameters};
pub use crate::table::Migration;
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
        Layout::Row | Layout::ShedLock => Ok(Arc::new(driver::RowDriver::new(engine, config)?)),
        Layout::Session => Ok(Arc::new(session::SessionDriver::new(engine, &config)?)),
    }
}

/// Makes the table of locks, for deployments whose services may not ([`Config::create`] is off). It may be called any
/// number of times, also by several at once. [`Config::schema`] gives the statements instead.
///
/// # Errors
/// [`InvalidConfig`](distlock_core::ErrorKind::InvalidConfig) for a configuration that cannot work or keeps no table
/// (`mode=session`), a missing right, and a table of that name that is not ours, which is left as it is; else the
/// database could not be reached.
///
/// # Cancel safety
/// Safe: the table may have been made.
pub async fn migrate(config: Config) -> Result<Migration, Error> {
    let prepared = async {
        config.schema()?;
        let (engine, _thread) = Engine::start(Clock::boot(), Namespace::default(), None)
            .map_err(|e| DriverError::unavailable(Reached::No, e))?;
        let config = Config {
            create: true,
            ..config
        };
        table::prepare(&store::Store::new(engine, config)?).await
    };
    prepared.await.map_err(Error::from_driver)
}
