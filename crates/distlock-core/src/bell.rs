//! The latched signal by which an engine tells a contender that its standing may have changed.

use std::fmt;
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Poll, Waker};

use futures_util::task::AtomicWaker;

/// "Your standing may have changed": rung by an engine from any thread, heard by the one who waits for the claim.
///
/// The ring is latched: one that comes while nobody listens is heard by the next call of [`rung`](Bell::rung).
/// There is one listener at a time (the waiting loop while the claim waits, the keeper while it holds); clones
/// are the same bell, so a composite engine gives one bell to all its members.
///
/// A missed or a spurious ring never costs correctness, only time: the core looks again within the `recheck` that
/// the engine gave.
#[derive(Clone, Default)]
pub struct Bell(Arc<Inner>);

#[derive(Default)]
struct Inner {
    rung: AtomicBool,
    listener: AtomicWaker,
}

impl Bell {
    /// A bell that has not been rung.
    pub fn new() -> Self {
        Self::default()
    }

    /// Rings. Never blocks; several rings before the listener looks are one.
    pub fn ring(&self) {
        self.0.rung.store(true, Ordering::Release);
        self.0.listener.wake();
    }

    /// Resolves when the bell was rung since the last time that this resolved, and takes the ring.
    ///
    /// # Cancel safety
    /// Safe: a ring is taken only when the future resolves.
    pub async fn rung(&self) {
        poll_fn(|cx| {
            if self.listen(cx.waker()) {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        })
        .await;
    }

    /// Takes the ring if there is one.
    pub fn take(&self) -> bool {
        self.0.rung.swap(false, Ordering::AcqRel)
    }

    /// Makes `waker` the listener, then takes the ring if there is one: `true` means "rung already". The waker is
    /// used up by the next ring.
    pub fn listen(&self, waker: &Waker) -> bool {
        self.0.listener.register(waker);
        self.take()
    }
}

impl fmt::Debug for Bell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bell")
            .field("rung", &self.0.rung.load(Ordering::Relaxed))
            .finish()
    }
}
