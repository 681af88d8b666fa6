//! The public API over the memory engine: what a user relies on, in virtual time where time matters.

#![allow(clippy::unwrap_used, reason = "a test")]

mod commit;
mod holding;
mod scopes;
mod settings;
mod waiting;

use std::time::Duration;

use distlock_core::clock::{Clock, ManualClock};
use distlock_core::memory::Memory;
use distlock_core::{Client, Key};

const MS: fn(u64) -> Duration = Duration::from_millis;

fn manual() -> (ManualClock, Memory, Client) {
    let time = ManualClock::new();
    let memory = Memory::new();
    let client = client(&time, &memory);
    (time, memory, client)
}

fn client(time: &ManualClock, memory: &Memory) -> Client {
    Client::builder()
        .clock(Clock::Manual(time.clone()))
        .memory(memory)
        .unwrap()
}

fn key(name: &str) -> Key {
    Key::new(name).unwrap()
}
