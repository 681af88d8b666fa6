//! The engine against real clusters: formats, faults, other programs.
#![allow(missing_docs, clippy::unwrap_used)]

mod cluster;
#[path = "engine/faults.rs"]
mod faults;
#[path = "engine/formats.rs"]
mod formats;
#[path = "engine/interop.rs"]
mod interop;
#[path = "engine/secure.rs"]
mod secure;
