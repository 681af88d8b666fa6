//! Examines the deployment for settings that endanger locks.

mod mysql;
mod postgres;

use distlock_core::driver::{DriverError, Finding};

use crate::fault::Fault;
use crate::store::{Backend, Store};

/// What is wrong with this server, for locks.
pub(crate) async fn examine(store: &Store) -> Result<Vec<Finding>, DriverError> {
    let mut found = match &store.backend {
        Backend::Postgres { pool, .. } => postgres::examine(store, pool).await,
        Backend::Mysql(pool) => mysql::examine(pool).await,
    }
    .map_err(Fault::into_error)?;
    found.sort_by_key(|f| std::cmp::Reverse(f.severity));
    Ok(found)
}
