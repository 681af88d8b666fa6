//! The conformance suite, fault injection, histories and checkers of distlock.

pub mod servers;
