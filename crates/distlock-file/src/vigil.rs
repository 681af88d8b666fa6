//! While this client holds anything, it looks twice a second whether the table is still where others look for it (a
//! removed directory is the one loss of which nobody sends word), and whether word of another loss lies unread, because
//! the runtime that was to read it is blocked.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use distlock_core::clock::Clock;
use tokio::sync::Notify;
use tokio::task::AbortHandle;

use crate::driver::Shared;

const EVERY: Duration = Duration::from_millis(500);

/// How many holds there are, and whether somebody looks after them.
#[derive(Debug, Default)]
pub(crate) struct Vigil {
    held: AtomicUsize,
    awake: AtomicBool,
    call: Arc<Notify>,
    task: OnceLock<AbortHandle>,
}

impl Drop for Vigil {
    fn drop(&mut self) {
        if let Some(task) = self.task.get() {
            task.abort();
        }
    }
}

impl Vigil {
    /// A hold began. The thread is woken only if it went to sleep, which it does only after half a second without.
    pub(crate) fn began(&self) {
        self.held.fetch_add(1, Ordering::SeqCst);
        if !self.awake.load(Ordering::SeqCst) {
            self.awake.store(true, Ordering::SeqCst);
            self.call.notify_one();
        }
    }

    pub(crate) fn ended(&self) {
        self.held.fetch_sub(1, Ordering::SeqCst);
    }

    /// Goes to sleep, unless there are holds.
    fn rest(&self) -> bool {
        if self.held.load(Ordering::SeqCst) > 0 {
            return false;
        }
        self.awake.store(false, Ordering::SeqCst);
        // A hold that began in between saw the vigil awake.
        if self.held.load(Ordering::SeqCst) == 0 {
            return true;
        }
        self.awake.store(true, Ordering::SeqCst);
        false
    }
}

/// Starts the vigil of a client, on its engine thread. With a manual clock nothing happens by itself.
pub(crate) fn start(shared: &Arc<Shared>) {
    if matches!(shared.clock(), Clock::Manual(_)) {
        return;
    }
    let (call, clock) = (shared.vigil.call.clone(), shared.clock().clone());
    let weak = Arc::downgrade(shared);
    let task = shared.engine.spawn(async move {
        loop {
            call.notified().await;
            loop {
                clock.sleep(EVERY).await;
                let Some(shared) = weak.upgrade() else {
                    return;
                };
                if shared.vigil.rest() {
                    break;
                }
                let place = shared.place();
                place.ring();
                if !place.is_in_place() {
                    if let Err(e) = shared.reopen(&place) {
                        tracing::warn!(error = %e, "the directory of locks cannot be opened anew");
                    }
                    shared.bells.ring_all();
                }
            }
        }
    });
    let _ = shared.vigil.task.set(task.abort_handle());
}
