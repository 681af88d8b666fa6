//! The builder of a lock: its settings, and the ways to take it.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tracing::{Instrument, debug_span};

use crate::acquire::Plan;
use crate::client::Client;
use crate::driver::{Life, Mode, Order};
use crate::entered::Entered;
use crate::error::{Error, ErrorKind, RunError};
use crate::guard::{Guard, Held};
use crate::hold::HoldState;
use crate::holds::Holds;
use crate::key::Key;
use crate::reentrant::{self, Owner};
use crate::settings::{Renew, Settings, Wait, saying};

/// One lock, not yet taken: its key, kind and settings.
///
/// Nothing happens before [`acquire`](Self::acquire), [`try_acquire`](Self::try_acquire) or [`run`](Self::run).
/// A bad key or setting is reported by those, before any I/O.
#[derive(Debug)]
#[must_use = "a lock is not taken until `acquire`, `try_acquire` or `run` is called and awaited"]
pub struct Lock {
    pub(crate) client: Client,
    pub(crate) key: Result<Key, Error>,
    pub(crate) mode: Mode,
    pub(crate) settings: Settings,
}

/// A read/write lock: choose a side.
#[derive(Debug)]
#[must_use = "choose `read()` or `write()`"]
pub struct RwLock {
    client: Client,
    key: Result<Key, Error>,
}

impl RwLock {
    pub(crate) fn new(client: Client, key: Result<Key, Error>) -> Self {
        Self { client, key }
    }

    /// The readers' side: shared with other readers.
    pub fn read(self) -> Lock {
        Lock::new(&self.client, self.key, Mode::Read)
    }

    /// The writer's side: alone.
    pub fn write(self) -> Lock {
        Lock::new(&self.client, self.key, Mode::Write)
    }
}

/// The settings of a [`Lock`].
impl Lock {
    pub(crate) fn new(client: &Client, key: Result<Key, Error>, mode: Mode) -> Self {
        Self {
            client: client.clone(),
            key,
            mode,
            settings: Settings::default(),
        }
    }

    /// The length of the lease. Default: the client's, 30 s unless set. The watchdog renews it at a third, so it
    /// bounds how long others wait after a crash, not how long the work may take.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.settings.ttl = Some(ttl);
        self
    }

    /// How long to wait while somebody else holds the lock. Default: for ever.
    pub fn wait(mut self, wait: impl Into<Wait>) -> Self {
        self.settings.wait = wait.into();
        self
    }

    /// The longest time that the lock is held: then it is lost, renewed or not. Default: none, so a body that
    /// hangs holds its lock for ever.
    pub fn max_hold(mut self, max: Duration) -> Self {
        self.settings.max_hold = Some(max);
        self
    }

    /// The shortest time for which others are kept out, also when the work is done sooner (not after a crash):
    /// against clocks and schedules that differ a little between hosts. Default: zero.
    pub fn min_hold(mut self, min: Duration) -> Self {
        self.settings.min_hold = min;
        self
    }

    /// How long the work should take; warnings are given at 80 % and 100 % of it. Default: the TTL.
    pub fn expect(mut self, expect: Duration) -> Self {
        self.settings.expect = Some(expect);
        self
    }

    /// Whether waiters are served in order across processes. Default: not.
    pub fn order(mut self, order: Order) -> Self {
        self.settings.order = order;
        self
    }

    /// Whether the watchdog renews the lease. Default: it does.
    pub fn renew(mut self, renew: Renew) -> Self {
        self.settings.renew = renew;
        self
    }

    /// Why the lock is taken, for people who look. At most 1 KiB of it is kept.
    pub fn reason(mut self, reason: impl Into<String>) -> Self {
        self.settings.reason = Some(saying(reason.into()));
        self
    }

    /// Takes the lock in the name of an explicit owner, who re-enters what it holds already.
    pub fn owner(mut self, owner: &Owner) -> Self {
        self.settings.owner = Some(owner.clone());
        self
    }

    /// Refuses a grant without a fencing token, so that [`Guard::token`] is certain to be `Some`.
    pub fn fenced(mut self) -> Self {
        self.settings.fenced = true;
        self
    }

    /// Lets the hold outlive this process: it depends on its TTL alone and may be handed on by
    /// [`Guard::detach`](crate::Guard::detach).
    pub fn detachable(mut self) -> Self {
        self.settings.life = Life::Lease;
        self
    }
}

impl Lock {
    /// Checks everything that can be checked without I/O.
    pub(crate) fn plan(self) -> Result<Plan, Error> {
        let client = self.client.0;
        let engine = client.observe.engine();
        let key = self.key.map_err(|e| e.with_engine(engine))?;
        let ttl = self.settings.ttl.unwrap_or(client.ttl);
        let checked = client
            .check_open()
            .and_then(|()| self.settings.check(ttl, self.mode, &client.promises));
        match checked {
            Ok(()) => Ok(Plan {
                client,
                key,
                mode: self.mode,
                ttl,
                settings: self.settings,
            }),
            Err(e) => Err(e.with_key(&key).with_engine(engine)),
        }
    }

    /// Takes the lock, waiting as [`wait`](Self::wait) says.
    ///
    /// On `Ok` the lock was granted, and it is held until the guard is released, dropped or lost.
    ///
    /// # Errors
    /// [`Timeout`](ErrorKind::Timeout) (or [`Busy`](ErrorKind::Busy) with [`Wait::Try`]) with the present holder
    /// where known; [`WouldDeadlock`](ErrorKind::WouldDeadlock) when an enclosing `run` of this task holds it;
    /// [`Unavailable`](ErrorKind::Unavailable) or [`OutcomeUnknown`](ErrorKind::OutcomeUnknown) when the engine
    /// does not answer within the wait; [`InvalidKey`](ErrorKind::InvalidKey),
    /// [`InvalidConfig`](ErrorKind::InvalidConfig), [`Unsupported`](ErrorKind::Unsupported),
    /// [`KindMismatch`](ErrorKind::KindMismatch), [`Closed`](ErrorKind::Closed).
    ///
    /// # Cancel safety
    /// Safe: a dropped future leaves the line, and releases in the background what it may have been granted.
    pub async fn acquire(self) -> Result<Guard, Error> {
        let plan = self.plan()?;
        Ok(Guard::new(take(plan).await?.into()))
    }

    /// Takes the lock if it is free. `None` means exactly "somebody else holds it".
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire), except busy.
    ///
    /// # Cancel safety
    /// As [`acquire`](Self::acquire).
    pub async fn try_acquire(mut self) -> Result<Option<Guard>, Error> {
        self.settings.wait = Wait::Try;
        match self.acquire().await {
            Ok(guard) => Ok(Some(guard)),
            Err(e) if e.kind() == ErrorKind::Busy => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Takes the lock, runs `body`, releases the lock. The recommended form.
    ///
    /// The body is dropped at its next await when the lock is lost. A nested `run` on the same key (in the same
    /// task) re-enters: no round trip, same token. A failed release never replaces the body's value or error.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// # use distlock_core::{Client, memory::Memory};
    /// # let locks = Client::builder().memory(&Memory::new())?;
    /// let n = locks.mutex("order:close:42").run(async |held| Ok::<_, std::io::Error>(held.token())).await;
    /// assert!(n.unwrap().is_some());
    /// # Ok::<(), distlock_core::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// [`RunError::Lock`] when the lock was not obtained (the body never ran); [`RunError::Lost`] when it was lost
    /// while the body ran; [`RunError::Body`] with the body's own error.
    ///
    /// # Cancel safety
    /// A dropped future drops the body and releases in the background.
    pub async fn run<T, E, F, Fut>(self, body: F) -> Result<T, RunError<E>>
    where
        F: FnOnce(Held) -> Fut,
        Fut: Future<Output = Result<T, E>>,
    {
        self.enter().await?.run(body).await
    }

    /// Takes the lock, runs `body`, commits the transaction that it returned, and releases the lock after that: by
    /// construction, whoever is granted next reads what was committed.
    ///
    /// The body returns its value and the open transaction; `commit` ends it. A body that lost its lock is dropped,
    /// and with it the transaction. A commit that has begun is not dropped. If it gives an error, or this future is
    /// dropped meanwhile, nobody knows whether it happened: the lock is then kept until its lease has run out, as by
    /// [`Guard::release_after`]. (Nested in a `run` of the same key, it is the outer lock that is kept.)
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// # use distlock_core::{Client, memory::Memory};
    /// # struct Tx; impl Tx { async fn commit(self) -> Result<(), std::io::Error> { Ok(()) } }
    /// # async fn begin() -> Result<Tx, std::io::Error> { Ok(Tx) }
    /// # let locks = Client::builder().memory(&Memory::new())?;
    /// let balance = locks.mutex("account:7").run_then_commit(
    ///     async |_held| {
    ///         let tx = begin().await?;
    ///         // read, decide, write in `tx`
    ///         Ok::<_, std::io::Error>((42, tx))
    ///     },
    ///     async |tx| tx.commit().await,
    /// );
    /// assert_eq!(balance.await.unwrap(), 42);
    /// # Ok::<(), distlock_core::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// [`RunError::Lock`] when the lock was not obtained. [`RunError::Lost`] with the value when the lock was lost
    /// while the commit was under way, which has happened; without a value when it was lost before, and nothing was
    /// committed. [`RunError::Body`] with the error of the body or of the commit.
    ///
    /// # Cancel safety
    /// Dropped while the body runs, it drops the body and releases in the background. Dropped while the commit is
    /// under way, it keeps the lock until its lease has run out.
    pub async fn run_then_commit<T, X, E, F, Fut, C, Done>(
        self,
        body: F,
        commit: C,
    ) -> Result<T, RunError<E, T>>
    where
        F: FnOnce(Held) -> Fut,
        Fut: Future<Output = Result<(T, X), E>>,
        C: FnOnce(X) -> Done,
        Done: Future<Output = Result<(), E>>,
    {
        self.enter().await?.run_then_commit(body, commit).await
    }

    /// The first half of [`run`](Self::run): takes the lock, or re-enters. For `#[locked]`.
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire).
    ///
    /// # Cancel safety
    /// As [`acquire`](Self::acquire).
    #[doc(hidden)]
    pub async fn enter(self) -> Result<Entered, Error> {
        let plan = self.plan()?;
        match nested(&plan)? {
            Some(hold) => Ok(Entered::new(hold.into(), None)),
            None => Ok(Entered::new(
                Holds::None,
                Some(Guard::new(take(plan).await?.into())),
            )),
        }
    }
}

/// The hold of an enclosing scope, which a body re-enters.
pub(crate) fn nested(plan: &Plan) -> Result<Option<Arc<HoldState>>, Error> {
    let Some(hold) = reentrant::enclosing(&plan.client, &plan.key) else {
        return Ok(None);
    };
    reentrant::check(&hold, plan.mode).map_err(|e| plan.name(e))?;
    Ok(Some(hold))
}

/// Re-entry by an explicit owner, or a refusal, before the engine is asked: `Ok(None)` means "ask it".
pub(crate) fn enter(plan: &Plan) -> Result<Option<Arc<HoldState>>, Error> {
    if reentrant::enclosing(&plan.client, &plan.key).is_some() {
        return Err(plan.name(reentrant::would_deadlock()));
    }
    let Some(hold) = plan
        .settings
        .owner
        .as_ref()
        .and_then(|o| o.find(&plan.client, &plan.key))
    else {
        return Ok(None);
    };
    reentrant::check(&hold, plan.mode).map_err(|e| plan.name(e))?;
    Ok(hold.add_guard().then_some(hold))
}

/// Takes a lock for a guard: by re-entry of an explicit owner, or from the engine.
pub(crate) async fn take(plan: Plan) -> Result<Arc<HoldState>, Error> {
    if let Some(hold) = enter(&plan)? {
        return Ok(hold);
    }
    let span =
        debug_span!(target: "distlock", "acquire", key = %plan.key, engine = plan.client.observe.engine());
    if tokio::runtime::Handle::try_current().is_ok() {
        return if span.is_disabled() {
            plan.acquire().await
        } else {
            plan.acquire().instrument(span).await
        };
    }
    let client = plan.client.clone();
    client
        .on_runtime(async move { plan.acquire().instrument(span).await })
        .await?
}
