//! The conformance suite, fault injection, histories and checkers of distlock.

pub mod check;
pub mod conformance;
pub mod gates;
pub mod history;
pub mod proxy;
pub mod servers;
pub mod simulation;
pub mod store;
pub mod torture;
pub mod worker;
