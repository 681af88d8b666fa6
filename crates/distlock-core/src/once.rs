//! At most once per key and window, across processes and hosts.

use std::future::Future;
use std::time::Duration;

use crate::client::Client;
use crate::driver::{Holder, Life};
use crate::entered::Entered;
use crate::error::{Error, ErrorKind, RunError};
#[cfg(doc)]
use crate::guard::Guard;
use crate::guard::Held;
use crate::holds::Holds;
use crate::key::IntoKey;
use crate::lock::Lock;
use crate::settings::{Renew, Wait};

/// What a process that dies in the middle of a [`once`](Client::once) leaves behind. There is no default, because
/// only the caller knows whether the work can bear to be done twice or not at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnCrash {
    /// The work counts as not done: as soon as the dead holder's lease is over, the next caller does it again. It may
    /// have been done in part, or in whole. Only a body that ends with `Ok` closes the window.
    Retry,
    /// The work counts as done: nobody does it again in this window, however the first attempt ended, also with an
    /// error, a panic or a dropped future. It may not have been done at all.
    Skip,
}

/// What became of a [`once`](Client::once).
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "it says whether the work was done by this call"]
pub enum Ran<T> {
    /// The body ran now, and gave this.
    Now(T),
    /// The body did not run: it was done within the window.
    Already {
        /// In how long it may run again, where the engine tells.
        again_in: Option<Duration>,
    },
    /// The body did not run: somebody is at it (or died at it, and its lease is not over).
    Elsewhere {
        /// Who, where known.
        holder: Option<Holder>,
    },
}

impl<T> Ran<T> {
    /// What the body gave, if this call ran it.
    pub fn now(self) -> Option<T> {
        match self {
            Self::Now(value) => Some(value),
            Self::Already { .. } | Self::Elsewhere { .. } => None,
        }
    }

    /// What a refusal means.
    fn skipped(busy: &Error) -> Self {
        match busy.holder() {
            Some(kept) if kept.is_nobody() => Self::Already {
                again_in: kept.expires_in,
            },
            holder => Self::Elsewhere {
                holder: holder.cloned(),
            },
        }
    }
}

/// Work that is done at most once per key and window, not yet begun; see [`Client::once`].
#[derive(Debug)]
#[must_use = "nothing is done until `run` is called and awaited"]
pub struct Once {
    lock: Lock,
    window: Duration,
}

impl Client {
    /// Work that is done at most once in every `window` per key, whoever calls, wherever.
    ///
    /// The window opens with the grant and is rolling: a run at 10:40 with a window of an hour keeps others out until
    /// 11:40, by the engine's clock. It is a hold whose record stays behind after the release. Use a key of its own
    /// for it. It never waits.
    ///
    /// Guarantee: in any stretch of time as long as the window there are not two runs that began in it and of which
    /// the first counted as done (see [`OnCrash`]), as far as the engine keeps its records
    /// ([`Promises`](crate::driver::Promises)). Work that must not be repeated at all, such as a payment, needs
    /// its result recorded where the payment is, in the same transaction.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// # use std::time::Duration;
    /// # use distlock_core::{Client, OnCrash, Ran, memory::Memory};
    /// # let locks = Client::builder().memory(&Memory::new())?;
    /// let day = Duration::from_secs(24 * 3600);
    /// let report = async |_| Ok::<_, std::io::Error>("written");
    /// let first = locks.once("report:nightly", day, OnCrash::Retry).run(report).await.unwrap();
    /// assert_eq!(first, Ran::Now("written"));
    /// let second = locks.once("report:nightly", day, OnCrash::Retry).run(report).await.unwrap();
    /// assert!(matches!(second, Ran::Already { again_in: Some(_) }));
    /// # Ok::<(), distlock_core::Error>(()) }).unwrap();
    /// ```
    pub fn once(&self, key: impl IntoKey, window: Duration, on_crash: OnCrash) -> Once {
        let mut lock = self.mutex(key).wait(Wait::Try);
        lock.settings.window = Some(window);
        if on_crash == OnCrash::Skip {
            // The record is there for the whole window from the first moment on, whatever becomes of this process.
            lock = lock.ttl(window).renew(Renew::Never).min_hold(window);
            lock.settings.life = Life::Lease;
        }
        Once { lock, window }
    }
}

impl Once {
    /// The lease while the work goes on: how long nobody takes over after a crash. With [`OnCrash::Skip`] it is the
    /// window, and another one is refused.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.lock = self.lock.ttl(ttl);
        self
    }

    /// The longest time that the work may take, as [`Lock::max_hold`].
    pub fn max_hold(mut self, max: Duration) -> Self {
        // With `Skip` the record outlives the work anyway, and a `max_hold` below the window is no contradiction.
        self.lock.settings.max_hold = Some(max);
        self
    }

    /// Why, for people who look.
    pub fn reason(mut self, reason: impl Into<String>) -> Self {
        self.lock = self.lock.reason(reason);
        self
    }

    /// Runs `body` if it was not run within the window, and nobody is at it.
    ///
    /// The body is dropped at its next await when the lock is lost, as in [`Lock::run`]. With
    /// [`OnCrash::Skip`] it is lost at the end of the window, less the margin of a lease.
    ///
    /// # Errors
    /// As [`Lock::run`], except busy; [`ErrorKind::Unsupported`] on an engine whose
    /// [`Promises::keep`](crate::driver::Promises::keep) is false (for [`OnCrash::Skip`] also
    /// [`lease_records`](crate::driver::Promises::lease_records)); [`ErrorKind::InvalidConfig`] for a window that the
    /// engine cannot keep; [`ErrorKind::WouldDeadlock`] inside a `run` of the same key.
    ///
    /// # Cancel safety
    /// A dropped future drops the body. With [`OnCrash::Retry`] the work then counts as not done, with
    /// [`OnCrash::Skip`] as done.
    pub async fn run<T, E, F, Fut>(self, body: F) -> Result<Ran<T>, RunError<E>>
    where
        F: FnOnce(Held) -> Fut,
        Fut: Future<Output = Result<T, E>>,
    {
        let window = self.window;
        let guard = match self.lock.acquire().await {
            Ok(guard) => guard,
            Err(e) if e.kind() == ErrorKind::Busy => return Ok(Ran::skipped(&e)),
            Err(e) => return Err(RunError::Lock(e)),
        };
        let done = Entered::new(Holds::None, Some(guard)).run(|held| {
            let body = body(held.clone());
            async move {
                let value = body.await?;
                held.keep_for(window);
                Ok(value)
            }
        });
        done.await.map(Ran::Now)
    }

    /// The lock behind it, for code that has to hold the guard itself. Call [`Guard::keep_for`] with the window when the
    /// work is done, then release; without that call the work counts as not done (with [`OnCrash::Retry`]). A refusal
    /// is [`ErrorKind::Busy`]; when its [holder](Error::holder) [is nobody](Holder::is_nobody), the work was done.
    pub fn lock(self) -> Lock {
        self.lock
    }
}
