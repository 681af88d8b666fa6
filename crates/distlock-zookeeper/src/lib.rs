//! The ZooKeeper engine of distlock, in Curator's layout.
//!
//! A lock is a container node; every contender has a protected ephemeral sequential child, named as Apache Curator's
//! `InterProcessMutex`, `InterProcessReadWriteLock` and `InterProcessSemaphoreV2` name theirs, so that a Java service
//! and a Rust service exclude, order and wake each other on the same path. The session and its requests come from the
//! crate `zookeeper-client`; the recipes are ours.
//!
//! One client has one session, which lives on its engine thread. The session is the lease of all its locks: its
//! negotiated timeout bounds their TTL. [`open`] gives the [`Driver`](distlock_core::driver::Driver); everything that
//! waits, renews, retries and cleans up is in `distlock-core`.

#![forbid(unsafe_code)]

mod call;
mod claim;
mod config;
mod contender;
mod doctor;
mod driver;
mod gate;
mod inspect;
mod kinds;
mod multi;
mod node;
mod path;
mod registry;
mod renew;
mod seat;
mod session;
mod slots;
mod supervisor;
mod taking;
mod watches;
mod witness;
mod writes;

pub use crate::config::{Acl, Bridge, Config, Scheme, parameters};
pub use crate::driver::open;
pub use crate::gate::ZooKeeperGate;
pub use crate::multi::{GuardMulti, Multi, MultiError};
pub use crate::writes::Writes;
pub use distlock_core::Secret;

/// The code on the engine's page compiles.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/engines/zookeeper.md")]
struct Page;
