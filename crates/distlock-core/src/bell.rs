//! The latched signal by which an engine tells a contender that its standing may have changed.

use std::fmt;
use std::future::poll_fn;
use std::sync::{OnceLock, Weak};
use std::task::{Poll, Waker};

use crate::hold::HoldState;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Arc, AtomicWaker};

/// "Your standing may have changed": rung by an engine from any thread, heard by the one who waits for the claim.
///
/// The ring is latched: one that comes while nobody listens is heard by the next call of [`rung`](Bell::rung).
/// There is one listener at a time (the waiting loop while the claim waits); from the grant on, a ring makes the
/// keeper ask the engine. Clones are the same bell, so a composite engine gives one bell to all its members.
///
/// A missed or a spurious ring never costs correctness, only time: the core looks again within the `recheck` that
/// the engine gave.
#[derive(Clone, Default)]
pub struct Bell(Arc<Inner>);

#[derive(Default)]
struct Inner {
    rung: AtomicBool,
    listener: AtomicWaker,
    /// From the grant on: whom a ring is about.
    hold: OnceLock<Weak<HoldState>>,
}

impl Bell {
    /// A bell that has not been rung.
    pub fn new() -> Self {
        Self::default()
    }

    /// Rings. Never blocks; several rings before the listener looks are one.
    pub fn ring(&self) {
        // An exchange, as in `take`: of a ring and a grant at the same time, either the ring finds the hold below, or
        // `belongs_to` finds the ring.
        self.0.rung.swap(true, Ordering::AcqRel);
        self.0.listener.wake();
        if let Some(hold) = self.0.hold.get().and_then(Weak::upgrade) {
            hold.rung();
        }
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

    /// From now on rings are about this hold. Whether it was rung already.
    pub(crate) fn belongs_to(&self, hold: &Arc<HoldState>) -> bool {
        // A claim serves one hold, so nobody has set it before.
        let _ = self.0.hold.set(Arc::downgrade(hold));
        self.take()
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
