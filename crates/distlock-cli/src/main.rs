//! The command distlock.
fn main() {}
