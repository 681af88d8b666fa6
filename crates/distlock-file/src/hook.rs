//! Places for tests: to stop this process between the write of a snapshot and its commit, and to let others go first.

use std::sync::atomic::{AtomicU32, Ordering};

/// The commit before which this process stops itself with SIGSTOP: 1 is the next one, 0 is none.
pub static STOP_BEFORE_COMMIT: AtomicU32 = AtomicU32::new(0);

/// How often that happened.
pub static STOPPED: AtomicU32 = AtomicU32::new(0);

pub(crate) fn before_commit() {
    if STOP_BEFORE_COMMIT.load(Ordering::Relaxed) != 0
        && STOP_BEFORE_COMMIT.fetch_sub(1, Ordering::Relaxed) == 1
    {
        STOPPED.fetch_add(1, Ordering::Relaxed);
        crate::sys::stop_here();
    }
}

/// A place before a step that other processes can see. The model check lets others go first here.
#[inline]
pub(crate) fn step() {
    #[cfg(test)]
    crate::model::step();
}

/// Whether the owner of a slot's lock counts as stopped already. The clock decides; a model check has none, so there it
/// may be at any time.
#[inline]
pub(crate) fn passes_by() -> bool {
    #[cfg(test)]
    return crate::model::passes_by();
    #[cfg(not(test))]
    false
}
