//! Locks over several servers.
#![allow(clippy::unwrap_used, clippy::print_stdout, missing_docs)]

mod cluster;
mod cluster_faults;
mod cluster_holding;
mod lost_grants;
mod redlock;
mod redlock_doctor;
mod redlock_faults;
mod started;
