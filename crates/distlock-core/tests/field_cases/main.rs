//! Field cases (`docs/field-cases.md`) of the core alone: over the memory engine, in virtual time.

#![allow(clippy::unwrap_used)]

mod acquire;
mod clock;
mod election;
mod naming;
mod notices;
mod observability;
mod once;
mod reentrancy;
mod release;
mod renew;
mod telling;
mod threads;
mod wait;

use std::time::Duration;

use distlock_core::clock::{Clock, ManualClock};
use distlock_core::memory::{Call, Event, Memory};
use distlock_core::{Builder, Client, Guard, Key};

const MS: fn(u64) -> Duration = Duration::from_millis;
const SECS: fn(u64) -> Duration = Duration::from_secs;

/// One memory engine under one manual clock. Each client is a stranger to the others, as a process of its own is.
struct Scene {
    time: ManualClock,
    memory: Memory,
}

impl Scene {
    fn new() -> Self {
        Self {
            time: ManualClock::new(),
            memory: Memory::new(),
        }
    }

    fn builder(&self) -> Builder {
        Client::builder().clock(Clock::Manual(self.time.clone()))
    }

    fn client(&self) -> Client {
        self.builder().memory(&self.memory).unwrap()
    }

    /// Whether a stranger who does not wait gets the lock (and gives it back).
    async fn is_free(&self, key: &str) -> bool {
        match self.client().mutex(key).try_acquire().await.unwrap() {
            Some(guard) => guard.release().await.is_ok(),
            None => false,
        }
    }

    /// How long a stranger waits for the lock, which it gives back.
    async fn wait_for(&self, key: &str, at_most: Duration) -> Duration {
        let client = self.client();
        let clock = client.clock().clone();
        let start = clock.now();
        let lock = client.mutex(key).wait(at_most);
        let waiter = tokio::spawn(async move {
            let guard = lock.acquire().await.unwrap();
            let at = clock.now();
            guard.release().await.unwrap();
            at
        });
        self.time.settle().await;
        while !waiter.is_finished() {
            self.time.advance(MS(10)).await;
        }
        waiter.await.unwrap().since(start)
    }

    /// The requests of this kind since the recording began.
    fn asked(&self, call: Call) -> Vec<Event> {
        let mut events = self.memory.faults().history();
        events.retain(|event| event.call == call);
        events
    }
}

fn key(name: &str) -> Key {
    Key::new(name).unwrap()
}

/// A lock that nothing renews, so that it is overrun on command.
async fn overrun(scene: &Scene, client: &Client, ttl: Duration) -> Guard {
    let lock = client.mutex("k").ttl(ttl).renew(distlock_core::Renew::Never);
    let guard = lock.acquire().await.unwrap();
    scene.time.jump(ttl * 2).await;
    guard
}
