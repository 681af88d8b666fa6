//! The engine against real clusters: formats, faults, other programs.
#![allow(missing_docs, clippy::unwrap_used)]

#[path = "../cluster/mod.rs"]
mod cluster;
mod doctor;
mod faults;
mod formats;
mod interop;
mod secure;
mod streams;
