//! Commit first, release second: a transaction that was written under a lock is committed while the lock is held.
//!
//! A commit that gave an error may still have happened, or may still arrive. Until that is known, the lock must not
//! go to the next one, who would read the data of before: it is kept, and its lease ends it.

use std::fmt;
use std::future::Future;

use crate::error::Error;
use crate::guard::Guard;
use crate::hold::HoldState;
use crate::release::Release;

/// What [`Guard::release_after`] gives when the commit succeeded.
#[derive(Debug)]
pub struct Committed<T> {
    /// What the commit returned.
    pub value: T,
    /// How the release ended. [`Release::Lost`]: the lock was lost while the commit was under way, so somebody else
    /// may have worked at the same time.
    pub release: Result<Release, Error>,
}

/// Why [`Guard::release_after`] did not commit, or does not know.
#[derive(Debug)]
pub enum CommitError<E> {
    /// The lock was lost before the commit was begun, and it was not begun.
    Lost(Error),
    /// The commit failed, and the lock is kept.
    Failed(Uncommitted<E>),
}

/// A commit that failed, with the lock under which it was tried.
///
/// An error does not say that nothing was committed: the answer may have been lost on its way. So the lock is kept:
/// when this is dropped its renewals end, and its lease ends the lock. Whoever knows that nothing was committed says
/// so by [`rolled_back`](Self::rolled_back).
#[must_use = "the lock is kept until its lease has run out, unless `rolled_back` is called"]
pub struct Uncommitted<E> {
    error: E,
    guard: Guard,
}

impl<E> Uncommitted<E> {
    /// The commit's own error.
    pub fn error(&self) -> &E {
        &self.error
    }

    /// The commit's own error; the lock is kept until its lease has run out.
    pub fn into_error(self) -> E {
        self.error
    }

    /// Says that the transaction is known not to be committed, and releases the lock at once.
    ///
    /// # Errors
    /// As [`Guard::release`].
    ///
    /// # Cancel safety
    /// As [`Guard::release`].
    pub async fn rolled_back(self) -> Result<Release, Error> {
        decided(self.guard.holds());
        self.guard.release().await
    }
}

impl<E: fmt::Debug> fmt::Debug for Uncommitted<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Uncommitted")
            .field("error", &self.error)
            .finish_non_exhaustive()
    }
}

impl<E: fmt::Display> fmt::Display for CommitError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lost(e) => write!(f, "not committed: {e}"),
            Self::Failed(failed) => write!(f, "the commit failed, and the lock is kept: {}", failed.error),
        }
    }
}

impl<E: std::error::Error + 'static> std::error::Error for CommitError<E> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Lost(e) => Some(e),
            Self::Failed(failed) => Some(&failed.error),
        }
    }
}

pub(crate) fn undecided(holds: &[std::sync::Arc<HoldState>]) {
    holds.iter().for_each(|hold| hold.undecided());
}

pub(crate) fn decided(holds: &[std::sync::Arc<HoldState>]) {
    holds.iter().for_each(|hold| hold.decided());
}

impl Guard {
    /// Awaits `commit`, and releases the lock after it: whoever is granted next reads what was committed.
    ///
    /// The commit is begun only if the lock is still held. After an error of the commit, and after a drop of this
    /// future while the commit is under way, the lock is *not* released, because the commit may have happened or may
    /// still arrive: its renewals end, and its lease ends the lock (on engines that free the locks of a dead process
    /// at once, the end of this process does so too).
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// # use distlock_core::{Client, memory::Memory};
    /// # async fn commit() -> Result<(), std::io::Error> { Ok(()) }
    /// # let locks = Client::builder().memory(&Memory::new())?;
    /// let guard = locks.mutex("account:7").acquire().await?;
    /// // read, decide, write in a transaction; then, instead of `commit` and `release`:
    /// let done = guard.release_after(commit()).await;
    /// assert!(done.is_ok());
    /// # Ok::<(), distlock_core::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// [`CommitError::Lost`]: the lock was lost before, and nothing was committed. [`CommitError::Failed`]: the
    /// commit's error, and the lock, which can be released if it is known that nothing was committed.
    ///
    /// # Cancel safety
    /// A dropped future keeps the lock until its lease has run out, as above.
    pub async fn release_after<T, E>(
        self,
        commit: impl Future<Output = Result<T, E>>,
    ) -> Result<Committed<T>, CommitError<E>> {
        self.ensure().map_err(CommitError::Lost)?;
        undecided(self.holds());
        match commit.await {
            Ok(value) => {
                decided(self.holds());
                let release = self.release().await;
                Ok(Committed { value, release })
            }
            Err(error) => Err(CommitError::Failed(Uncommitted { error, guard: self })),
        }
    }
}
