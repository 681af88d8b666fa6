//! Seeded faults: mistakes that are built in on purpose, to prove that the tests notice them.
//!
//! They exist only in builds with `--cfg distlock_mutants`, where the environment variable `DISTLOCK_MUTANT` chooses
//! one; `scripts/mutants` runs them all. In every other build this is the constant `false`.

/// The seeded faults.
pub const MUTANTS: [&str; 7] = [
    "release_without_owner_check",
    "renew_acquires",
    "no_second_look",
    "deadline_from_reply",
    "token_not_bumped",
    "no_chase",
    "file_cas",
];

/// Whether this mistake is to be made.
#[cfg(distlock_mutants)]
pub fn is(name: &str) -> bool {
    static CHOSEN: std::sync::OnceLock<Option<String>> = std::sync::OnceLock::new();
    CHOSEN
        .get_or_init(|| std::env::var("DISTLOCK_MUTANT").ok())
        .as_deref()
        == Some(name)
}

/// Never: this is not a build with seeded faults.
#[cfg(not(distlock_mutants))]
pub const fn is(_name: &str) -> bool {
    false
}
