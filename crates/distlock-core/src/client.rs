//! The client: an engine, its keeper, its local queue and its clean-up.

use std::fmt;
use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::Either;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

use crate::cleanup::Cleanup;
use crate::clock::{Clock, Moment};
use crate::driver::{Driver, DriverError, LostReason, Mode, Promises};
use crate::engine::{Engine, EngineThread};
use crate::error::{Error, ErrorKind};
use crate::fork;
use crate::keeper::Keeper;
use crate::key::{IntoKey, Namespace};
use crate::lock::{Lock, RwLock};
use crate::observe::Observe;
use crate::queue::Queue;
use crate::settings::{DEFAULT_TTL, check_ttl, saying};
use crate::survey::Survey;

/// How long the last client waits for clean-up when it is dropped where blocking is allowed.
const LINGER: Duration = Duration::from_millis(100);
/// How long a driver may take to close.
const CLOSE: Duration = Duration::from_secs(2);

/// Locks on one engine. Cheap to clone; clones are the same client.
///
/// A client owns one background thread for what must go on whatever the callers do: renewals, sessions,
/// subscriptions, clean-up. The thread ends when the last clone and the last guard are gone.
#[derive(Clone)]
pub struct Client(pub(crate) Arc<ClientInner>);

pub(crate) struct ClientInner {
    pub(crate) driver: Arc<dyn Driver>,
    pub(crate) promises: Promises,
    pub(crate) engine: Engine,
    pub(crate) keeper: Arc<Keeper>,
    pub(crate) queue: Arc<Queue>,
    pub(crate) cleanup: Arc<Cleanup>,
    pub(crate) observe: Arc<Observe>,
    pub(crate) ttl: Duration,
    closed: AtomicBool,
    thread: Mutex<Option<EngineThread>>,
    process: u64,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("driver", &self.0.driver)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for ClientInner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("driver", &self.driver)
            .finish_non_exhaustive()
    }
}

/// What a hold does when the engine does not answer a renewal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnDisconnect {
    /// It goes on until the lease's end by our own clock, and is renewed if the engine comes back.
    #[default]
    Hold,
    /// It is lost at once.
    Stop,
}

/// The settings of a client.
#[derive(Debug, Clone)]
#[must_use = "a builder does nothing until it is built"]
pub struct Builder {
    namespace: Namespace,
    label: Option<Arc<str>>,
    clock: Option<Clock>,
    ttl: Option<Duration>,
    on_disconnect: OnDisconnect,
    survey: Option<Survey>,
    bad: Option<Arc<str>>,
}

impl Default for Builder {
    fn default() -> Self {
        Self {
            namespace: Namespace::default(),
            label: None,
            clock: None,
            ttl: None,
            on_disconnect: OnDisconnect::Hold,
            survey: None,
            bad: None,
        }
    }
}

impl Builder {
    /// The prefix of this application's records; default `distlock`; empty for exact names. May not contain `:`
    /// or `/`; that is reported when the client is built.
    pub fn namespace(mut self, name: impl AsRef<str>) -> Self {
        match Namespace::new(name) {
            Ok(namespace) => self.namespace = namespace,
            Err(e) => self.bad = Some(e.message().into()),
        }
        self
    }

    /// A name for this process or service, shown to people who look who holds a lock. At most 1 KiB of it is kept.
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.label = Some(saying(label.into()));
        self
    }

    /// The default TTL of this client's locks; if not set, 30 s or what the engine can that is next to it. One that
    /// the engine does not offer is refused when the client is built.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = Some(ttl);
        self
    }

    /// What a hold does when the engine does not answer.
    pub fn on_disconnect(mut self, what: OnDisconnect) -> Self {
        self.on_disconnect = what;
        self
    }

    /// Collects hold times and waits by pattern of keys. Default: not, which costs nothing.
    pub fn survey(mut self, survey: &Survey) -> Self {
        self.survey = Some(survey.clone());
        self
    }

    /// Another clock than the host's, for tests.
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = Some(clock);
        self
    }

    /// Builds the client of an engine. `make` runs on the client's engine thread, whatever runtime (or none) the
    /// caller is on.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidConfig`] for a bad setting; what `make` gave.
    ///
    /// # Cancel safety
    /// Safe: nothing is left but what `make` leaves.
    pub async fn build<F, Fut>(self, make: F) -> Result<Client, Error>
    where
        F: FnOnce(Engine) -> Fut,
        Fut: Future<Output = Result<Arc<dyn Driver>, DriverError>> + Send + 'static,
    {
        let (engine, thread) = self.start()?;
        let made = AbortOnDrop(engine.spawn(make(engine.clone()))).await;
        let driver = made.map_err(|_| Error::new(ErrorKind::Closed, "the engine thread ended"))?;
        self.finish(engine, thread, driver.map_err(Error::from_driver)?)
    }

    /// As [`build`](Self::build), for an engine that is made without waiting.
    ///
    /// # Errors
    /// As [`build`](Self::build).
    pub fn build_now<F>(self, make: F) -> Result<Client, Error>
    where
        F: FnOnce(Engine) -> Result<Arc<dyn Driver>, DriverError>,
    {
        let (engine, thread) = self.start()?;
        let driver = make(engine.clone()).map_err(Error::from_driver)?;
        self.finish(engine, thread, driver)
    }

    /// A client of the memory engine; clients of the same memory share its locks.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidConfig`] for a bad setting.
    pub fn memory(self, memory: &crate::memory::Memory) -> Result<Client, Error> {
        self.build_now(|engine| Ok(memory.driver(engine)))
    }

    fn start(&self) -> Result<(Engine, EngineThread), Error> {
        if let Some(bad) = &self.bad {
            return Err(Error::new(ErrorKind::InvalidConfig, &**bad));
        }
        let clock = self.clock.clone().unwrap_or_else(Clock::boot);
        Engine::start(clock, self.namespace.clone(), self.label.clone()).map_err(|e| {
            Error::new(ErrorKind::Unavailable, "the engine thread could not be started").with_source(e)
        })
    }

    fn finish(self, engine: Engine, thread: EngineThread, driver: Arc<dyn Driver>) -> Result<Client, Error> {
        let promises = driver.promises();
        let ttl = match self.ttl {
            Some(ttl) => check_ttl(ttl, &promises).map_err(|e| e.with_engine(promises.engine))?,
            None => DEFAULT_TTL.max(*promises.ttl.start()).min(*promises.ttl.end()),
        };
        let observe = Arc::new(Observe::new(promises.engine, self.survey));
        let stop = self.on_disconnect == OnDisconnect::Stop;
        let keeper = Keeper::new(engine.clock().clone(), observe.clone(), stop);
        engine.spawn(keeper.clone().run(driver.clone()));
        Ok(Client(Arc::new(ClientInner {
            observe,
            ttl,
            queue: Arc::default(),
            cleanup: Arc::new(Cleanup::new(engine.clone())),
            closed: AtomicBool::new(false),
            thread: Mutex::new(Some(thread)),
            process: fork::process(),
            driver,
            promises,
            engine,
            keeper,
        })))
    }
}

impl Client {
    /// The settings of a new client.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// A mutex: one holder.
    pub fn mutex(&self, key: impl IntoKey) -> Lock {
        Lock::new(self, key.into_key(), Mode::Mutex)
    }

    /// A read/write lock: many readers or one writer.
    ///
    /// A writer that waits keeps later readers of this client out. Readers of other clients pass it, for as long as
    /// they keep coming, unless it asks for [`Order::Fifo`](crate::driver::Order::Fifo).
    pub fn rw(&self, key: impl IntoKey) -> RwLock {
        RwLock::new(self.clone(), key.into_key())
    }

    /// A semaphore: up to `permits` holders. All contenders must name the same number.
    pub fn semaphore(&self, key: impl IntoKey, permits: u32) -> Lock {
        Lock::new(self, key.into_key(), Mode::Slot { of: permits })
    }

    /// The client's random identity, the first part of its owners.
    pub fn id(&self) -> uuid::Uuid {
        self.0.engine.owners().client()
    }

    /// What the engine promises.
    pub fn capabilities(&self) -> &Promises {
        &self.0.promises
    }

    /// The clock by which leases are judged.
    pub fn clock(&self) -> &Clock {
        self.0.engine.clock()
    }

    /// The prefix of this client's records.
    pub fn namespace(&self) -> &Namespace {
        self.0.engine.namespace()
    }

    /// The driver, for tools that speak to the port itself.
    pub fn driver(&self) -> &Arc<dyn Driver> {
        &self.0.driver
    }

    /// Takes the client apart, for tools that speak to the port themselves and end the engine thread when they like.
    /// `None` if it has ended. Other clones are closed by it.
    pub fn into_parts(&self) -> Option<(Arc<dyn Driver>, Engine, EngineThread)> {
        let mut thread = self.0.thread.lock().unwrap_or_else(PoisonError::into_inner);
        let thread = thread.take()?;
        self.0.closed.store(true, Ordering::Release);
        Some((self.0.driver.clone(), self.0.engine.clone(), thread))
    }

    /// How many locks this client holds now.
    pub fn held(&self) -> usize {
        self.0.keeper.len()
    }

    /// Asks the engine about all holds at once, for instance after a resume that the program knows of.
    pub fn verify_all(&self) {
        self.0.keeper.poke_all();
    }

    /// Ends the client: tells every hold's loss, waits at most `deadline` until what is left to release has been
    /// released, and closes the engine. Later calls are refused with [`ErrorKind::Closed`].
    ///
    /// Call it before the process exits: what still runs on the engine thread then is lost, and the leases end
    /// such locks only when they run out.
    ///
    /// Returns whether everything was released in time.
    ///
    /// # Cancel safety
    /// Safe: the shutdown goes on in the background.
    pub async fn shutdown(&self, deadline: Duration) -> bool {
        self.0.closed.store(true, Ordering::Release);
        for hold in self.0.keeper.holds() {
            hold.lose(LostReason::Shutdown);
        }
        let closing = self.0.close(deadline);
        match closing {
            Some(closing) => closing.await.unwrap_or(false),
            None => self.0.cleanup.pending() == 0,
        }
    }
}

impl ClientInner {
    pub(crate) fn now(&self) -> Moment {
        self.engine.clock().now()
    }

    /// Whether this process is a forked child: it has no engine thread, and the holds are its parent's.
    pub(crate) fn is_forked(&self) -> bool {
        fork::process() != self.process
    }

    pub(crate) fn check_open(&self) -> Result<(), Error> {
        if self.closed.load(Ordering::Acquire) {
            return Err(Error::new(ErrorKind::Closed, "the client was shut down"));
        }
        if self.is_forked() {
            return Err(Error::new(
                ErrorKind::Closed,
                "this process is a fork; it needs a client of its own",
            ));
        }
        Ok(())
    }

    /// Runs a future that speaks to the engine: here if the caller is inside a tokio runtime, else on the engine
    /// thread. Not an async function: that would have room for `future` twice, and thousands may wait in it.
    pub(crate) fn on_runtime<F>(
        &self,
        future: F,
    ) -> impl Future<Output = Result<F::Output, Error>> + Send + use<F>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        if Handle::try_current().is_ok() {
            return Either::Left(future.map(Ok));
        }
        let ended = |_| Error::new(ErrorKind::Closed, "the engine thread ended");
        Either::Right(AbortOnDrop(self.engine.spawn(future)).map(move |answer| answer.map_err(ended)))
    }

    /// Starts the end: clean-up, driver, thread. `None` if that already happened.
    fn close(&self, deadline: Duration) -> Option<JoinHandle<bool>> {
        let thread = self
            .thread
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()?;
        let (driver, cleanup, clock) = (
            self.driver.clone(),
            self.cleanup.clone(),
            self.engine.clock().clone(),
        );
        Some(self.engine.spawn(async move {
            let drained = clock.timeout(deadline, cleanup.drained()).await.is_some();
            clock.timeout(CLOSE, driver.close()).await;
            // The end of this task ends the thread.
            drop(thread);
            drained
        }))
    }
}

impl Drop for ClientInner {
    fn drop(&mut self) {
        if self.is_forked() {
            // The thread and its runtime exist only in the parent.
            if let Some(thread) = self
                .thread
                .get_mut()
                .unwrap_or_else(PoisonError::into_inner)
                .take()
            {
                std::mem::forget(thread);
            }
            return;
        }
        let lingers = self.cleanup.pending() > 0 && Handle::try_current().is_err();
        if lingers {
            self.cleanup.drained_blocking(LINGER);
        }
        self.close(Duration::from_secs(30));
    }
}

/// A task that ends when nobody waits for it any more.
struct AbortOnDrop<T>(JoinHandle<T>);

impl<T> Future for AbortOnDrop<T> {
    type Output = Result<T, tokio::task::JoinError>;

    fn poll(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Self::Output> {
        std::pin::Pin::new(&mut self.0).poll(cx)
    }
}

impl<T> Drop for AbortOnDrop<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}
