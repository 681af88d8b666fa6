//! A quorum of five memory engines: the conformance suite, and faults in virtual time.
#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod conformance;
mod faults;
mod model;
mod restarts;
mod world;
