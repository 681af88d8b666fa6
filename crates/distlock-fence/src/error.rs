//! Why a gate did not write.

use std::io;
use std::time::Duration;

use distlock_core::FencingToken;

/// Why a gate did not write.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FenceError {
    /// Somebody with a larger token has been here: the caller no longer holds the lock. Nothing was written. Stop
    /// the work; do not retry with this token.
    #[error("the write to {resource:?} was refused: its token {token} is older than {newest}")]
    Stale {
        /// What was to be written.
        resource: String,
        /// The caller's token.
        token: FencingToken,
        /// The largest token seen.
        newest: FencingToken,
    },
    /// Another write of the same resource did not end within this time. Nothing was written.
    #[error("another write to {resource:?} did not end within {waited:?}")]
    Blocked {
        /// What was to be written.
        resource: String,
        /// How long the gate waited.
        waited: Duration,
    },
    /// The remembered token of the resource cannot be read, so that no token can be judged. Nothing was written.
    #[error("the remembered token of {resource:?} is damaged: {why}")]
    Damaged {
        /// What was to be written.
        resource: String,
        /// What is wrong with the record.
        why: String,
    },
    /// The name of the resource is not one that this gate can keep.
    #[error("{resource:?} cannot be a resource here: {why}")]
    InvalidResource {
        /// The name.
        resource: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// The store itself failed. The token may have been remembered (which does no harm), the data are as they were
    /// before, or as the write left them if it reports its own error.
    #[error("the store failed: {0}")]
    Store(#[source] Box<dyn std::error::Error + Send + Sync>),
}

impl FenceError {
    /// Whether the caller's hold is over.
    pub fn is_stale(&self) -> bool {
        matches!(self, Self::Stale { .. })
    }

    /// The failure of a store.
    pub fn store(e: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Store(e.into())
    }
}

impl From<io::Error> for FenceError {
    fn from(e: io::Error) -> Self {
        Self::store(e)
    }
}
