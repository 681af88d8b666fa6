//! Optimistic work: read a version, work without a lock, write only if the version is still the same; else again.
//!
//! Right where collisions are rare and the work can be repeated. The database does the comparing:
//!
//! ```sql
//! UPDATE stock SET amount = $1, version = version + 1 WHERE id = $2 AND version = $3
//! ```
//!
//! ```
//! # use distlock_sql::versioned::{Step, Versioned, VersionedError};
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! # let mut row = (3_i64, 10_i64);
//! let sold = Versioned::default().run(async |_try_no| {
//!     let (version, amount) = row; // SELECT version, amount …
//!     let updated = { row = (version + 1, amount - 1); true }; // UPDATE … = 1 row
//!     Ok::<_, std::io::Error>(if updated { Step::Done(amount - 1) } else { Step::Conflict { seen: version } })
//! });
//! assert_eq!(sold.await.unwrap(), 9);
//! # }
//! ```

use std::fmt;
use std::time::Duration;

use rand::RngExt;

/// What one attempt came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step<T> {
    /// The write was made.
    Done(T),
    /// Somebody else wrote first; nothing was changed.
    Conflict {
        /// The version that the attempt had read.
        seen: i64,
    },
}

/// Why the work was not done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VersionedError<E> {
    /// Others wrote first each time.
    Conflict {
        /// How many attempts were made.
        tries: u32,
        /// The version that the last of them had read.
        seen: i64,
    },
    /// The work's own error.
    Work(E),
}

impl<E: fmt::Display> fmt::Display for VersionedError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Conflict { tries, seen } => write!(
                f,
                "others wrote first in all of {tries} tries (last version read: {seen})"
            ),
            Self::Work(e) => e.fmt(f),
        }
    }
}

impl<E: fmt::Debug + fmt::Display> std::error::Error for VersionedError<E> {}

impl<E> From<E> for VersionedError<E> {
    fn from(e: E) -> Self {
        Self::Work(e)
    }
}

/// How often, and at what pace, work is repeated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Versioned {
    tries: u32,
    pause: Duration,
}

impl Default for Versioned {
    /// Ten tries, with a random pause of up to 2 ms that doubles each time, up to 200 ms.
    fn default() -> Self {
        Self {
            tries: 10,
            pause: Duration::from_millis(2),
        }
    }
}

impl Versioned {
    /// Sets the number of attempts; at least one is made.
    #[must_use]
    pub fn tries(mut self, tries: u32) -> Self {
        self.tries = tries.max(1);
        self
    }

    /// Sets the longest pause before the second attempt.
    #[must_use]
    pub fn pause(mut self, pause: Duration) -> Self {
        self.pause = pause;
        self
    }

    /// Does the work until it is done, fails, or has collided too often. Needs tokio's timer.
    ///
    /// # Errors
    /// [`VersionedError::Conflict`] says how often was tried and what was seen last; [`VersionedError::Work`].
    ///
    /// # Cancel safety
    /// As the work's own.
    pub async fn run<T, E>(
        self,
        mut work: impl AsyncFnMut(u32) -> Result<Step<T>, E>,
    ) -> Result<T, VersionedError<E>> {
        let mut most = self.pause;
        let mut tries = 0;
        loop {
            tries += 1;
            match work(tries).await? {
                Step::Done(value) => return Ok(value),
                Step::Conflict { seen } if tries >= self.tries => {
                    return Err(VersionedError::Conflict { tries, seen });
                }
                Step::Conflict { .. } => {}
            }
            let share = rand::rng().random_range(0.1..1.0);
            tokio::time::sleep(most.mul_f64(share)).await;
            most = (most * 2).min(Duration::from_millis(200).max(self.pause));
        }
    }
}
