//! The engine itself.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use distlock_core::driver::{
    Claim, Death, Driver, DriverError, Hold, Inspect, Life, Loss, Mode, Orders, Promises, Reached, Refusal,
    Renewal, TokenPromise, Wakes, Want,
};
use distlock_core::engine::Engine;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use uuid::Uuid;
use zookeeper_client::Error;

use crate::claim::ZooKeeperClaim;
use crate::config::{Bridge, Config};
use crate::multi::CLIENTS;
use crate::path::Paths;
use crate::registry::{Held, Registry};
use crate::session::Session;
use crate::supervisor::supervise;
use crate::watches::Watches;

/// The shortest TTL: a guard's deadline may be earlier than its session's.
const FLOOR: Duration = Duration::from_millis(100);
/// How long a hold lives before its node is watched: most are released sooner, and need no watch.
const YOUNG: Duration = Duration::from_millis(200);
/// Between two attempts to delete a node that must go.
const PAUSE: Duration = Duration::from_millis(100);

/// Opens the engine and its first session, so that a wrong address or password is told at once.
///
/// # Errors
/// [`Refusal::InvalidConfig`] for a setting that does not work; otherwise when no session is given in
/// [`Config::connect_timeout`].
///
/// # Cancel safety
/// Safe: a session that comes too late is closed.
pub async fn open(engine: Engine, config: Config) -> Result<Arc<dyn Driver>, DriverError> {
    let config = config.checked()?;
    let paths = Paths::new(&config.chroot, engine.namespace())?;
    let session = Session::open(&engine, &config).await?;
    let shared = Arc::new(Shared {
        watches: Watches::start(&engine),
        registry: Registry::default(),
        ceiling: session.timeout(),
        session: Mutex::new(Some(session.clone())),
        closed: AtomicBool::new(false),
        paths,
        config,
        engine: engine.clone(),
    });
    CLIENTS.add(engine.owners().client(), &shared);
    engine.spawn(supervise(shared.clone(), session));
    Ok(Arc::new(ZooKeeperDriver(shared)))
}

#[derive(Debug)]
pub(crate) struct ZooKeeperDriver(pub(crate) Arc<Shared>);

/// What claims, renewals and inspection share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) engine: Engine,
    pub(crate) config: Config,
    pub(crate) paths: Paths,
    pub(crate) watches: Watches,
    pub(crate) registry: Registry,
    /// The timeout of the first session.
    ceiling: Duration,
    session: Mutex<Option<Arc<Session>>>,
    closed: AtomicBool,
}

impl Shared {
    pub(crate) fn client(&self) -> Uuid {
        self.engine.owners().client()
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// The present session.
    pub(crate) fn session(&self) -> Result<Arc<Session>, DriverError> {
        if self.is_closed() {
            return Err(DriverError::closed());
        }
        let session = self
            .session
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        session.filter(|session| !session.has_ended()).ok_or_else(|| {
            DriverError::unavailable(
                Reached::No,
                format!("no session with ZooKeeper at {}", self.config.address()),
            )
        })
    }

    /// Nothing is in this session any more.
    pub(crate) fn no_session(&self, ended: &Arc<Session>) {
        let mut present = self.session.lock().unwrap_or_else(PoisonError::into_inner);
        if present
            .as_ref()
            .is_some_and(|session| Arc::ptr_eq(session, ended))
        {
            *present = None;
        }
    }

    /// The next session, unless the client was closed meanwhile.
    pub(crate) fn new_session(&self, session: Arc<Session>) -> Option<Arc<Session>> {
        let mut present = self.session.lock().unwrap_or_else(PoisonError::into_inner);
        if self.is_closed() {
            session.end();
            return None;
        }
        *present = Some(session.clone());
        Some(session)
    }

    /// Watches over a hold, if it is still held in a moment.
    pub(crate) fn hold(self: &Arc<Self>, want: &Want, held: Arc<Held>) {
        if !self.registry.hold(want.owner, &want.bell, held) {
            return;
        }
        let shared = self.clone();
        self.engine.spawn(async move {
            shared.engine.clock().sleep(YOUNG).await;
            for (held, bell) in shared.registry.grown() {
                if held.start_watch() {
                    shared.watches.wait(held.watch(bell));
                }
            }
        });
    }

    /// Deletes a node in the background, until it is gone or its session is.
    pub(crate) fn chase(&self, session: Arc<Session>, path: String) {
        let clock = self.engine.clock().clone();
        self.engine.spawn(async move {
            while !session.has_ended() {
                if let Ok(call) = session.call() {
                    match call.answer(call.client.delete(&path, None)).await {
                        Ok(()) | Err(Error::NoNode) => return,
                        Err(_) => {}
                    }
                }
                clock.sleep(PAUSE).await;
            }
        });
    }
}

impl Driver for ZooKeeperDriver {
    fn promises(&self) -> Promises {
        let mut promises = Promises::new("zookeeper");
        promises.order = Orders::AlwaysFifo;
        // Others' kinds of locks are not known in kazoo's line.
        promises.shared = self.0.config.bridge == Bridge::None;
        promises.slots = promises.shared;
        promises.token = TokenPromise::Durable;
        promises.ttl = FLOOR.min(self.0.ceiling)..=self.0.ceiling;
        promises.wakes = Wakes::Notified;
        promises.loss = Loss::BeforeRegrant;
        promises.death = Death::AtTtl;
        promises
    }

    fn claim(&self, want: Arc<Want>) -> Result<Box<dyn Claim>, DriverError> {
        if self.0.is_closed() {
            return Err(DriverError::closed());
        }
        let range = self.promises().ttl;
        if !range.contains(&want.ttl) {
            let why = format!(
                "ttl {:?}: with this session timeout ZooKeeper keeps {:?} to {:?} (session_timeout= asks for more)",
                want.ttl,
                range.start(),
                range.end()
            );
            return Err(DriverError::refused(Refusal::InvalidConfig(why)));
        }
        if want.life == Life::Lease {
            let why = "a lock that outlives its process: ZooKeeper's locks end with their session";
            return Err(DriverError::refused(Refusal::Unsupported(why.into())));
        }
        if want.mode == (Mode::Slot { of: 0 }) {
            return Err(DriverError::refused(Refusal::InvalidConfig(
                "a semaphore has at least one permit".into(),
            )));
        }
        if self.0.config.bridge != Bridge::None && want.mode != Mode::Mutex {
            let why = "bridge=kazoo has mutexes only: kazoo's other locks are made otherwise";
            return Err(DriverError::refused(Refusal::Unsupported(why.into())));
        }
        let path = self.0.paths.of(&want.key)?;
        Ok(Box::new(ZooKeeperClaim::new(self.0.clone(), want, path)))
    }

    fn renew<'a>(
        &'a self,
        holds: &'a [Hold],
        answer: &'a (dyn Fn(usize, Renewal) + Send + Sync),
    ) -> BoxFuture<'a, ()> {
        self.0.renew(holds, answer).boxed()
    }

    fn inspect(&self) -> Option<&dyn Inspect> {
        Some(self)
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        self.0.closed.store(true, Ordering::Release);
        let session = self
            .0
            .session
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        async move {
            let Some(session) = session else { return };
            let states = session.states();
            session.end();
            // Until the servers have confirmed it: everything of ours is gone then.
            if let Some(mut states) = states {
                while !states.state().is_terminated() {
                    states.changed().await;
                }
            }
        }
        .boxed()
    }
}
