//! The command as people and scripts use it: real processes, the file engine in a directory of its own.

#![allow(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "a test ends where something is wrong"
)]

mod elect;
mod exit_codes;
mod guardian;
mod guide;
mod hold;
mod lease;
mod nested;
mod once;
mod passing;
mod place;
mod reading;
mod redlock;
mod serve;
mod serving;
mod settings;
mod signals;
mod sql;
mod stage;
mod terminal;
mod texts;
mod waiting;
