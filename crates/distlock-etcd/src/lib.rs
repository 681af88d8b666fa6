//! The etcd engine of distlock, in the layout of the Go `concurrency` package.
//!
//! A contender is a key under the lock's prefix, attached to a lease; the line is the order of create revisions.
//! Go's `concurrency.Mutex`, `etcdctl lock` and jetcd on the same name exclude, and are excluded by, distlock.
//!
//! The fencing token is the store's revision at the moment of the grant.

mod ask;
mod auth;
mod claim;
mod client;
mod company;
mod config;
mod doctor;
mod driver;
mod failure;
mod gate;
mod heart;
mod holds;
mod inspect;
mod lease;
mod leave;
mod name;
mod numbers;
mod place;
mod record;
mod renew;
mod session;
mod sessions;
mod txn;
mod watcher;
mod wire;
mod writes;

use std::sync::Arc;

use distlock_core::driver::{Driver, DriverError};
use distlock_core::engine::Engine;

pub use crate::config::{Config, parameters};
pub use crate::gate::EtcdGate;
pub use crate::txn::{Applied, GuardTxn, Ownership, Txn};
pub use crate::writes::Writes;

/// Opens the engine: checks the configuration and asks the cluster once.
///
/// # Errors
/// [`Refusal::InvalidConfig`](distlock_core::driver::Refusal::InvalidConfig) for a configuration or an account that
/// the cluster refuses, else unavailable.
///
/// # Cancel safety
/// Safe.
pub async fn open(engine: Engine, config: Config) -> Result<Arc<dyn Driver>, DriverError> {
    let client = client::Client::new(&config, engine.clock().clone())?;
    // A read of one key that need not exist: proves the way, the account and a quorum.
    let names = name::Names::new(engine.namespace().clone());
    client
        .call(ask::page(&names.sessions(), names.sessions().into_bytes(), 1))
        .await?;
    let shared = driver::Shared::new(engine, client);
    txn::CLIENTS.add(shared.engine.owners().client(), &shared);
    Ok(Arc::new(driver::EtcdDriver { shared }))
}

/// The code on the engine's page compiles.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/engines/etcd.md")]
struct Page;
