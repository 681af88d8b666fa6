//! The engine against real servers: formats, faults.
#![allow(missing_docs, clippy::unwrap_used)]

mod bridge;
#[path = "../common/mod.rs"]
mod common;
mod doctor;
mod faults;
mod formats;
#[cfg(feature = "sasl")]
mod secure;
