//! A quorum of five memory engines: the conformance suite, and faults in virtual time.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test fails by it; the model says what it found"
)]

mod conformance;
mod faults;
mod model;
mod restarts;
mod world;
