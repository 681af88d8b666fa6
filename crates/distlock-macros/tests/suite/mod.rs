//! What a function under `#[locked]` does, on any engine: the file that includes this makes the clients.

use std::fmt::Display;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use distlock::{Error, ErrorKind, FencingToken, Held, IntoKey, Locks, assert_locked, key, locked};
use tracing::instrument;

mod busy;
mod functions;
mod holding;
mod keys;

/// Two clients of one engine: `other` sees what another process would see.
#[derive(Clone, Debug)]
struct Pair {
    locks: Locks,
    other: Locks,
    /// What the engine needs for its life.
    _engine: Arc<super::Engine>,
}

impl Pair {
    fn new() -> Self {
        let engine = super::Engine::new();
        Self {
            locks: engine.client(),
            other: engine.client(),
            _engine: Arc::new(engine),
        }
    }

    async fn is_taken(&self, key: impl IntoKey) -> bool {
        self.other
            .mutex(key)
            .try_acquire()
            .await
            .expect("the engine answers")
            .is_none()
    }
}
