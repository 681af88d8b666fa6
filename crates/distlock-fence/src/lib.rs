//! The checking side of fencing tokens: stores that refuse a writer who no longer holds the lock.
//!
//! A lock alone cannot protect data from a holder that was paused (a stopped VM, a long garbage collection in a
//! neighbour, a slow disk) and wakes up after its lease went to somebody else. Every exclusive grant of distlock
//! therefore carries a [`FencingToken`], larger than all tokens of that key before it. The holder sends it along
//! with each write, and the store keeps the one rule:
//!
//! > refuse a token that is smaller than the largest seen for the resource, else remember it and write,
//! > **in one atomic step**.
//!
//! The rule, as a type, is [`FenceGate`]. This crate has the gates that need no server:
//!
//! | gate | protects | a write is |
//! |---|---|---|
//! | [`MemoryGate`] | what one process owns | a closure, or anything done while an [`Entry`] is open |
//! | [`FencedFile`], [`FileGate`] | a file of one host | the file's new content |
//! | `FenceLayer` (feature `tower`) | an HTTP service | a request with the header [`Fencing-Token`](header::NAME) |
//!
//! The gates for SQL, Redis, etcd (`EtcdGate`) and ZooKeeper (`ZooKeeperGate`) come with those engines' crates.
//!
//! ```
//! use distlock_fence::{FenceError, FencingToken, MemoryGate};
//!
//! # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
//! let gate = MemoryGate::new();
//! let (paused, present) = (FencingToken::new(33), FencingToken::new(34));
//!
//! let entry = gate.enter("row:7", present).await?;   // the present holder writes while `entry` is open
//! drop(entry);
//!
//! // The paused one wakes up and is refused.
//! let refused = gate.enter("row:7", paused).await;
//! assert!(matches!(refused, Err(FenceError::Stale { .. })));
//! # Ok::<(), FenceError>(()) })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod error;
mod file;
mod gate;
pub mod header;
mod memory;
mod record;
#[cfg(feature = "tower")]
mod tower_layer;

pub use crate::error::FenceError;
pub use crate::file::{FencedFile, FileGate};
pub use crate::gate::{FenceGate, judge};
pub use crate::memory::{Entry, MemoryGate};
#[cfg(feature = "tower")]
pub use crate::tower_layer::{FenceLayer, FenceService};
pub use distlock_core::FencingToken;
