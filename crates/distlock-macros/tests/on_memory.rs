//! The attribute on the memory engine.

use distlock::memory::Memory;
use distlock::{Client, Locks};

mod suite;

#[derive(Debug)]
struct Engine(Memory);

impl Engine {
    fn new() -> Self {
        Self(Memory::new())
    }

    fn client(&self) -> Locks {
        Client::builder()
            .memory(&self.0)
            .expect("the memory engine starts")
            .into()
    }
}
