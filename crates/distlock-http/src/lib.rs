//! The engine that speaks to a lock service (`distlock serve`), so that programs use a gateway with nothing but the
//! URL changed.
//!
//! A claim's attempt is one request. One that has to wait keeps its connection open, and is told of its place and of
//! the grant on it; when the connection ends, the gateway leaves the line. All requests run on the client's engine
//! thread, so that neither the caller's runtime nor a dropped future cuts one in half.
//!
//! A lease is counted from the moment before the request was sent, plus the time that the gateway says it kept the
//! request: never longer than the engine behind it keeps the lock.
#![forbid(unsafe_code)]

mod attempt;
mod claim;
mod config;
mod doctor;
mod driver;
mod failure;
mod gateway;
mod inspect;
mod renew;
mod wire;

use std::sync::Arc;

use distlock_core::driver::{Driver, DriverError};
use distlock_core::engine::Engine;

pub use crate::config::{Config, parameters};

/// Opens the engine: checks the configuration and asks the gateway what it stands on.
///
/// # Errors
/// [`Refusal::InvalidConfig`](distlock_core::driver::Refusal::InvalidConfig) for a configuration or a token that the
/// gateway refuses, else unavailable.
///
/// # Cancel safety
/// Safe.
pub async fn open(engine: Engine, config: Config) -> Result<Arc<dyn Driver>, DriverError> {
    let gateway = gateway::Gateway::new(&engine, &config)?;
    let view: wire::EngineView = gateway.get("/v1/engine", &[]).await?;
    Ok(Arc::new(driver::HttpDriver::new(engine, gateway, view)))
}
