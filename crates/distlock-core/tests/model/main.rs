//! Model checks of the parts that many threads use at once: bell, schedule (the keeper's index), local queue.
//!
//! The files of the crate are compiled here once more, over primitives whose interleavings are tried at random, many
//! thousand schedules per test. A thread that would wait for ever is found as a deadlock. Memory orders weaker than
//! sequential consistency are not explored.

#![allow(clippy::unwrap_used, reason = "a test")]
#![allow(
    dead_code,
    unreachable_pub,
    reason = "what is compiled here is a part of something else"
)]

#[path = "../../src/bell.rs"]
mod bell;
#[path = "../../src/prehashed.rs"]
mod prehashed;
#[path = "../../src/queue.rs"]
mod queue;
#[path = "../../src/schedule.rs"]
mod schedule;

mod bells;
mod queues;
mod schedules;

/// The primitives, as `src/sync.rs` names them.
mod sync {
    pub(crate) use std::sync::{Arc, PoisonError};
    use std::task::Waker;

    pub(crate) use shuttle::sync::{Mutex, MutexGuard};

    pub(crate) mod atomic {
        pub(crate) use shuttle::sync::atomic::{AtomicBool, AtomicU32, Ordering};
    }

    /// The contract of the real one, with a place between its steps where others may run.
    #[derive(Default)]
    pub(crate) struct AtomicWaker(Mutex<Option<Waker>>);

    impl AtomicWaker {
        pub(crate) fn register(&self, waker: &Waker) {
            *self.0.lock().unwrap() = Some(waker.clone());
        }

        pub(crate) fn wake(&self) {
            let waker = self.0.lock().unwrap().take();
            if let Some(waker) = waker {
                waker.wake();
            }
        }
    }
}

mod clock {
    pub(crate) use distlock_core::clock::Moment;
}

mod driver {
    pub(crate) use distlock_core::driver::{Holder, Kind, Mode};
}

mod key {
    pub(crate) use distlock_core::Key;
}

/// What bell and queue know of a hold.
mod hold {
    use std::sync::Arc;

    use distlock_core::driver::{Holder, Mode};

    use crate::sync::atomic::{AtomicU32, Ordering};

    #[derive(Default)]
    pub(crate) struct HoldState {
        pub(crate) rings: AtomicU32,
    }

    impl HoldState {
        pub(crate) fn rung(self: &Arc<Self>) {
            self.rings.fetch_add(1, Ordering::SeqCst);
        }

        pub(crate) fn is_held(&self) -> bool {
            true
        }

        pub(crate) fn holder(&self) -> Holder {
            Holder::new("here", Mode::Mutex)
        }
    }
}

/// Tries so many schedules.
fn check(schedules: usize, case: impl Fn() + Send + Sync + 'static) {
    let case = std::sync::Arc::new(case);
    let again = case.clone();
    shuttle::check_random(move || case(), schedules);
    // Few switches, at the places that count: what a random walk seldom tries.
    shuttle::check_pct(move || again(), schedules, 3);
}
