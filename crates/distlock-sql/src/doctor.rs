//! Examines the deployment for settings that endanger locks.

use distlock_core::driver::{DriverError, Finding};

use crate::store::Store;

/// What is wrong with this server, for locks.
pub(crate) async fn examine(_store: &Store) -> Result<Vec<Finding>, DriverError> {
    Ok(Vec::new())
}
