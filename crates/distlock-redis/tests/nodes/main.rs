//! Locks over several servers.
#![allow(clippy::unwrap_used, missing_docs)]

mod redlock;
mod started;
