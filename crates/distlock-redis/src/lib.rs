//! The Redis engine of distlock.
//!
//! It speaks two formats. [`Layout::Redisson`] (the default) is that of Redisson's `RLock`, fair lock, read/write
//! lock and `PermitExpirableSemaphore`, so that a Java service and a Rust service exclude and wake each other on the
//! same name. [`Layout::String`] is the plain `SET key value NX PX` that redis-py, redsync, node-redlock, rslock and
//! Spring's registry share. In both, the engine's own data is in keys of its own beside the lock's, in the same hash
//! slot: `{name}:distlock` has the last token and the last holder's description.
//!
//! Every decision is one Lua script in `src/scripts`, each with a header that says what it does; the time is always
//! the server's. [`open`] gives the [`Driver`](distlock_core::driver::Driver); everything that waits, renews, retries
//! and cleans up is in `distlock-core`.

#![forbid(unsafe_code)]

mod claim;
mod cluster;
mod config;
mod dial;
mod doctor;
mod driver;
mod fault;
mod gate;
mod hub;
mod inspect;
mod links;
mod names;
mod record;
mod redlock;
mod renew;
mod replicas;
mod rights;
mod script;
mod seen;
mod shape;
mod site;
mod slot;
mod url;

pub use crate::config::{Config, Endpoint, Layout, Tls, ValueFormat};
pub use crate::driver::open;
pub use crate::gate::{Stale, guarded_set};
pub use crate::redlock::{Redlock, open_redlock, redlock_parameters, vouch};
pub use crate::replicas::MinReplicas;
pub use crate::url::{UrlParts, parameters};
pub use distlock_core::Secret;
