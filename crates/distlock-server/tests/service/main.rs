//! The lock service from outside: by HTTP, and by the engine that speaks to it.
#![allow(missing_docs, clippy::unwrap_used)]

mod access;
mod clients;
mod conformance;
mod doctor;
mod encrypted;
mod field_cases;
mod gateway;
mod hostile;
mod leases;
mod openapi;
mod page;
mod slow;
mod two;
mod waiting;
mod wire;
