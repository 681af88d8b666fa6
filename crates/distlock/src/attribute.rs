//! What `#[locked]` and `assert_locked!` expand to. Not an interface: it changes with the macros.

use std::future::Future;
use std::sync::OnceLock;
use std::time::Duration;

use distlock_core::{All, Entered, Error, ErrorKind, Held, Key, Lock, RunError, Wait};

use crate::Locks;

/// The wait of a `#[locked]` function that names none: neither fails at the first contention nor hangs.
pub const USUAL_WAIT: Wait = Wait::For(Duration::from_secs(3));

static INSTALLED: OnceLock<Locks> = OnceLock::new();

/// Makes this client the one of all `#[locked]` functions that name none. Once per process, at its start.
///
/// Libraries do not call this; they take a client from their caller.
///
/// # Errors
/// [`ErrorKind::InvalidConfig`] when a client was installed before; it stays.
pub fn install(locks: Locks) -> Result<(), Error> {
    INSTALLED.set(locks).map_err(|_| {
        Error::new(
            ErrorKind::InvalidConfig,
            "distlock::install was called before; it is called once per process",
        )
    })
}

/// The client that was installed.
///
/// # Errors
/// [`ErrorKind::InvalidConfig`] when there is none.
pub fn installed() -> Result<&'static Locks, Error> {
    INSTALLED.get().ok_or_else(|| {
        let why = "no client for #[locked]: call distlock::install(locks) at the start of the program, or name one \
                   with #[locked(locks = …)]";
        Error::new(ErrorKind::InvalidConfig, why)
    })
}

/// What a function under `#[locked]` returns: a `Result` whose error can be made from [`Error`].
#[diagnostic::on_unimplemented(
    message = "a `#[locked]` function returns a `Result<T, E>` where `E: From<distlock::Error>`, not `{Self}`",
    label = "cannot tell that the lock was not obtained, or lost",
    note = "taking a lock can fail; give the error type a variant for it, such as `Lock(#[from] distlock::Error)` with \
            thiserror, or `impl From<distlock::Error>` by hand; `Box<dyn Error>` and `anyhow::Error` have it already"
)]
pub trait Outcome: Sized {
    /// The value of the body.
    type Value;
    /// The error of the body.
    type Failure;
    /// As a plain result.
    fn into_result(self) -> Result<Self::Value, Self::Failure>;
    /// From the body's own result.
    fn of(result: Result<Self::Value, Self::Failure>) -> Self;
    /// From a failure of the lock.
    fn failed(e: Error) -> Self;
}

#[diagnostic::do_not_recommend]
impl<T, E: From<Error>> Outcome for Result<T, E> {
    type Value = T;
    type Failure = E;

    fn into_result(self) -> Result<T, E> {
        self
    }

    fn of(result: Result<T, E>) -> Self {
        result
    }

    fn failed(e: Error) -> Self {
        Err(e.into())
    }
}

/// What can be entered: one lock, or several.
pub trait Enter {
    /// Takes the lock, or re-enters.
    fn enter(self) -> impl Future<Output = Result<Entered, Error>> + Send;
    /// As `enter`, blocking this thread.
    fn enter_blocking(self) -> Result<Entered, Error>;
}

impl Enter for Lock {
    fn enter(self) -> impl Future<Output = Result<Entered, Error>> + Send {
        Self::enter(self)
    }

    fn enter_blocking(self) -> Result<Entered, Error> {
        Self::enter_blocking(self)
    }
}

impl Enter for All {
    fn enter(self) -> impl Future<Output = Result<Entered, Error>> + Send {
        Self::enter(self)
    }

    fn enter_blocking(self) -> Result<Entered, Error> {
        Self::enter_blocking(self)
    }
}

/// Takes the lock of an async function, or re-enters.
///
/// # Errors
/// As [`Lock::acquire`].
///
/// # Cancel safety
/// As [`Lock::acquire`].
pub async fn enter(lock: Result<impl Enter, Error>) -> Result<Entered, Error> {
    lock?.enter().await
}

/// As [`enter`], for a function that is not async.
///
/// # Errors
/// As [`enter`], and [`ErrorKind::Unsupported`] inside async code.
pub fn enter_blocking(lock: Result<impl Enter, Error>) -> Result<Entered, Error> {
    lock?.enter_blocking()
}

/// Runs the body of an async function.
///
/// # Cancel safety
/// As [`Lock::run`].
pub async fn run<R, F, Fut>(entered: Entered, body: F) -> R
where
    R: Outcome,
    F: FnOnce(Held) -> Fut,
    Fut: Future<Output = R>,
{
    let key = entered.key();
    outcome(
        &key,
        entered.run(|held| async { body(held).await.into_result() }).await,
    )
}

/// Runs the body of a function that is not async. A value that it has although the lock was lost is dropped: the
/// caller is told of the loss.
pub fn run_blocking<R: Outcome>(entered: Entered, body: impl FnOnce(Held) -> R) -> R {
    let key = entered.key();
    outcome(&key, entered.run_blocking(|held| body(held).into_result()))
}

/// The function's result from the run's.
fn outcome<R: Outcome, T>(key: &Key, out: Result<R::Value, RunError<R::Failure, T>>) -> R {
    match out {
        Ok(value) => R::of(Ok(value)),
        Err(RunError::Body(e)) => R::of(Err(e)),
        Err(RunError::Lock(e)) => R::failed(e),
        Err(RunError::Lost { reason, .. }) => R::failed(Error::lost(reason).with_key(key)),
    }
}

/// The function's result when the lock was not obtained.
pub fn not_obtained<R: Outcome>(e: Error) -> R {
    R::failed(e)
}

/// Panics unless an enclosing scope holds the key.
///
/// # Panics
/// See there.
#[track_caller]
pub fn assert_locked(key: Result<Key, Error>) {
    match key {
        Ok(key) => assert!(
            distlock_core::holds_key(&key),
            "this code must run under the lock {key:?}: call it from a #[locked] function or a `run` body that holds it"
        ),
        Err(e) => panic!("{e}"),
    }
}
