//! The same locks for code that blocks: no runtime needed.
//!
//! The work runs on the client's engine thread while the caller's thread waits. Inside async code the calls are
//! refused, since they would block the executor; on a thread for blocking work (`spawn_blocking`) they are fine.
//!
//! ```
//! use distlock_core::{Client, memory::Memory};
//! let locks = Client::builder().memory(&Memory::new())?.blocking();
//! let out = locks.mutex("report").run(|held| {
//!     held.ensure()?; // between steps: a blocking body cannot be stopped from outside
//!     Ok::<_, distlock_core::Error>(42)
//! });
//! assert_eq!(out.unwrap(), 42);
//! # Ok::<(), distlock_core::Error>(())
//! ```

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::task::coop;

use crate::acquire::Plan;
use crate::client::ClientInner;
use crate::driver::{Holder, LockInfo, Order};
use crate::entered::Entered;
use crate::error::{Error, ErrorKind, RunError};
use crate::guard::Held;
use crate::holds::Holds;
use crate::key::IntoKey;
use crate::lease::Lease;
use crate::lock::{enter, nested};
use crate::reentrant::Owner;
use crate::release::Release;
use crate::settings::{Renew, Wait};
use crate::token::FencingToken;

/// A client for code that blocks; see [`Client::blocking`](crate::Client::blocking).
#[derive(Debug, Clone)]
pub struct Client(crate::Client);

impl crate::Client {
    /// The same client for code that blocks.
    pub fn blocking(&self) -> Client {
        Client(self.clone())
    }
}

/// A lock for code that blocks, not yet taken; see [`Lock`](crate::Lock) for its settings.
#[derive(Debug)]
#[must_use = "a lock is not taken until `acquire`, `try_acquire` or `run` is called"]
pub struct Lock(crate::Lock);

/// A lock that is held by code that blocks; see [`Guard`](crate::Guard), to which it dereferences.
#[derive(Debug)]
#[must_use = "the lock is released as soon as the guard is dropped; bind it to a variable, and call `release`"]
pub struct Guard {
    inner: crate::Guard,
    client: crate::Client,
}

impl std::ops::Deref for Guard {
    type Target = crate::Guard;
    fn deref(&self) -> &crate::Guard {
        &self.inner
    }
}

/// Waits on this thread for a future on the engine thread.
pub(crate) fn wait<F>(client: &Arc<ClientInner>, future: F) -> Result<F::Output, Error>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    if in_async_code() {
        let why = "a blocking call inside async code; use the async form, or spawn_blocking";
        return Err(Error::new(ErrorKind::Unsupported, why));
    }
    let (sender, receiver) = mpsc::sync_channel(1);
    client.engine.spawn(async move {
        let _ = sender.send(future.await);
    });
    receiver
        .recv()
        .map_err(|_| Error::new(ErrorKind::Closed, "the engine thread ended"))
}

/// Whether this thread polls a future of tokio, so that blocking would stop others. A thread that merely belongs to a
/// runtime (`spawn_blocking`, `block_in_place`) may block.
///
/// Told by the budget that tokio gives to every poll: nobody else's ever ends. Only inside of `unconstrained` is there
/// none; there tokio's own refusal to block has to tell, which is a panic that the panic hook prints.
fn in_async_code() -> bool {
    // A poll's budget is counted in a byte.
    const POLLS: usize = u8::MAX as usize + 1;
    let Ok(runtime) = Handle::try_current() else {
        return false;
    };
    let mut cx = Context::from_waker(Waker::noop());
    let mut taken = Vec::new();
    while taken.len() < POLLS {
        match coop::poll_proceed(&mut cx) {
            Poll::Ready(one) => taken.push(one),
            Poll::Pending => break,
        }
    }
    let ended = taken.len() < POLLS;
    // Given back, the latest first: each remembers what was left before it.
    while taken.pop().is_some() {}
    ended || catch_unwind(AssertUnwindSafe(|| runtime.block_on(std::future::ready(())))).is_err()
}

impl Client {
    /// As [`Client::mutex`](crate::Client::mutex).
    pub fn mutex(&self, key: impl IntoKey) -> Lock {
        Lock(self.0.mutex(key))
    }

    /// The readers' side of [`Client::rw`](crate::Client::rw).
    pub fn read(&self, key: impl IntoKey) -> Lock {
        Lock(self.0.rw(key).read())
    }

    /// The writer's side of [`Client::rw`](crate::Client::rw).
    pub fn write(&self, key: impl IntoKey) -> Lock {
        Lock(self.0.rw(key).write())
    }

    /// As [`Client::semaphore`](crate::Client::semaphore).
    pub fn semaphore(&self, key: impl IntoKey, permits: u32) -> Lock {
        Lock(self.0.semaphore(key, permits))
    }

    /// The async client.
    pub fn client(&self) -> &crate::Client {
        &self.0
    }

    /// As [`Client::inspect`](crate::Client::inspect).
    ///
    /// # Errors
    /// As the async form.
    pub fn inspect(&self, key: impl IntoKey) -> Result<LockInfo, Error> {
        let (client, key) = (self.0.clone(), key.into_key()?);
        wait(&self.0.0, async move { client.inspect(key).await })?
    }

    /// As [`Client::break_lock`](crate::Client::break_lock).
    ///
    /// # Errors
    /// As the async form.
    pub fn break_lock(&self, key: impl IntoKey, how: crate::driver::Break) -> Result<Vec<Holder>, Error> {
        let (client, key) = (self.0.clone(), key.into_key()?);
        wait(&self.0.0, async move { client.break_lock(key, how).await })?
    }

    /// As [`Client::resume`](crate::Client::resume).
    ///
    /// # Errors
    /// As the async form.
    pub fn resume(&self, lease: &Lease) -> Result<Guard, Error> {
        let (client, lease) = (self.0.clone(), lease.clone());
        let inner = wait(&self.0.0, async move { client.resume(&lease).await })??;
        Ok(Guard {
            inner,
            client: self.0.clone(),
        })
    }

    /// As [`Client::shutdown`](crate::Client::shutdown).
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] inside async code.
    pub fn shutdown(&self, deadline: Duration) -> Result<bool, Error> {
        let client = self.0.clone();
        // The engine thread ends in the shutdown: what it does after that is not waited for.
        wait(&self.0.0, async move { client.shutdown(deadline).await })
    }
}

/// The settings, as of [`crate::Lock`].
macro_rules! settings {
    ($($name:ident($($arg:ident: $type:ty),*)),+ $(,)?) => {
        impl Lock {
            $(
                #[doc = concat!("As [`Lock::", stringify!($name), "`](crate::Lock::", stringify!($name), ").")]
                pub fn $name(self, $($arg: $type),*) -> Self {
                    Self(self.0.$name($($arg),*))
                }
            )+
        }
    };
}

settings! {
    ttl(ttl: Duration),
    wait(wait: impl Into<Wait>),
    max_hold(max: Duration),
    min_hold(min: Duration),
    expect(expect: Duration),
    order(order: Order),
    renew(renew: Renew),
    reason(reason: impl Into<String>),
    owner(owner: &Owner),
    fenced(),
    detachable(),
}

impl Lock {
    /// As [`Lock::acquire`](crate::Lock::acquire), blocking this thread.
    ///
    /// # Errors
    /// As the async form, and [`ErrorKind::Unsupported`] inside async code.
    pub fn acquire(self) -> Result<Guard, Error> {
        let client = self.0.client.clone();
        Ok(Guard {
            inner: take(self.0.plan()?)?,
            client,
        })
    }

    /// As [`Lock::try_acquire`](crate::Lock::try_acquire), blocking this thread for one look.
    ///
    /// # Errors
    /// As the async form, and [`ErrorKind::Unsupported`] inside async code.
    pub fn try_acquire(self) -> Result<Option<Guard>, Error> {
        match self.wait(Wait::Try).acquire() {
            Ok(guard) => Ok(Some(guard)),
            Err(e) if e.kind() == ErrorKind::Busy => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// As [`Lock::run`](crate::Lock::run), on this thread. The body cannot be stopped from outside: call
    /// [`Held::ensure`] between its steps.
    ///
    /// # Errors
    /// [`RunError::Lost`] carries the body's value if it ran to its end.
    pub fn run<T, E>(self, body: impl FnOnce(Held) -> Result<T, E>) -> Result<T, RunError<E, T>> {
        self.0.enter_blocking()?.run_blocking(body)
    }
}

impl crate::Lock {
    /// As [`enter`](Self::enter), blocking this thread.
    ///
    /// # Errors
    /// As [`enter`](Self::enter), and [`ErrorKind::Unsupported`] inside async code.
    #[doc(hidden)]
    pub fn enter_blocking(self) -> Result<Entered, Error> {
        let plan = self.plan()?;
        match nested(&plan)? {
            Some(hold) => Ok(Entered::new(hold.into(), None)),
            None => Ok(Entered::new(Holds::None, Some(take(plan)?))),
        }
    }
}

/// Takes a lock for a guard.
fn take(plan: Plan) -> Result<crate::Guard, Error> {
    let hold = match enter(&plan)? {
        Some(hold) => hold,
        None => {
            let client = plan.client.clone();
            wait(&client, async move { plan.acquire().await })??
        }
    };
    Ok(crate::Guard::new(hold.into()))
}

/// Releases, blocking this thread.
pub(crate) fn release(guard: crate::Guard) -> Result<Release, Error> {
    let Some(client) = guard.holds().first().map(|hold| hold.client.clone()) else {
        return Ok(Release::Clean);
    };
    wait(&client, guard.release())?
}

impl Guard {
    /// As [`Guard::release`](crate::Guard::release), blocking this thread.
    ///
    /// # Errors
    /// As the async form, and [`ErrorKind::Unsupported`] inside async code (the lock is then released in the
    /// background).
    pub fn release(self) -> Result<Release, Error> {
        release(self.inner)
    }

    /// As [`Guard::verify`](crate::Guard::verify), blocking this thread.
    ///
    /// # Errors
    /// As the async form.
    pub fn verify(&self) -> Result<(), Error> {
        let held = self.inner.held();
        wait(&self.client.0, async move { held.verify().await })?
    }

    /// As [`Guard::extend`](crate::Guard::extend), blocking this thread.
    ///
    /// # Errors
    /// As the async form.
    pub fn extend(&self, ttl: Duration) -> Result<(), Error> {
        let held = self.inner.held();
        wait(&self.client.0, async move { held.extend(ttl).await })?
    }

    /// As [`Guard::detach`](crate::Guard::detach).
    ///
    /// # Errors
    /// As there.
    pub fn detach(self) -> Result<Lease, Error> {
        self.inner.detach()
    }

    /// The token; see [`Guard::token`](crate::Guard::token).
    pub fn token(&self) -> Option<FencingToken> {
        self.inner.token()
    }
}
