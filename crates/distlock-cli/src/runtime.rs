//! The runtime of the command: one thread, so that a short command starts fast.

use std::io;

use tokio::runtime::{Builder, Runtime};

/// Makes it.
///
/// # Errors
/// When the system refuses.
pub(crate) fn current_thread() -> io::Result<Runtime> {
    Builder::new_current_thread().enable_all().build()
}
