//! Links the command at a fixed address where that can be done.
//!
//! A position-independent program of this size has some 35,000 addresses that the loader has to fix at each start: a
//! quarter of all page faults of `distlock run KEY -- true`. Other commands of its kind (those written in Go) are linked
//! like this too. Libraries, stack and heap stay where the kernel's randomness puts them.

#![allow(clippy::print_stdout, reason = "this is how a build script speaks to cargo")]

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let is = |name: &str, value: &str| {
        std::env::var(name).is_ok_and(|found| found.split(',').any(|word| word == value))
    };
    let linux = is("CARGO_CFG_TARGET_OS", "linux") && is("CARGO_CFG_TARGET_ENV", "gnu");
    if linux && !is("CARGO_CFG_TARGET_FEATURE", "crt-static") {
        println!("cargo::rustc-link-arg-bins=-no-pie");
    }
}
