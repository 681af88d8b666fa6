//! The engine itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use distlock_core::clock::Clock;
use distlock_core::driver::{
    Claim, Death, Driver, DriverError, Hold, Inspect, Loss, MAX_TTL, Mode, Order, Orders, Promises, Refusal,
    Renewal, TokenPromise, Wakes, Want,
};
use distlock_core::engine::Engine;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::sync::Semaphore;
use uuid::Uuid;

use crate::claim::RedisClaim;
use crate::cluster;
use crate::config::{Config, Endpoint, Layout};
use crate::dial::Dialer;
use crate::hub::{Hub, Live};
use crate::links::Links;
use crate::renew::IN_FLIGHT;
use crate::rights;
use crate::shape::Shape;
use crate::site::Site;

/// Opens the engine and makes one connection, so that a wrong address, password or version is told at once.
///
/// # Errors
/// [`Refusal::InvalidConfig`] for a setting that does not work; otherwise when the server cannot be reached.
///
/// # Cancel safety
/// Safe: nothing is left behind.
pub async fn open(engine: Engine, config: Config) -> Result<Arc<dyn Driver>, DriverError> {
    if let Endpoint::Cluster { nodes } = &config.endpoint {
        let nodes = nodes.clone();
        return cluster::open(engine, config, nodes).await;
    }
    let driver = RedisDriver::new(engine, config)?;
    rights::check(&driver.0).await?;
    Ok(Arc::new(driver))
}

impl RedisDriver {
    /// Connects when it is first used.
    ///
    /// # Errors
    /// [`Refusal::InvalidConfig`] for a setting that does not work.
    pub(crate) fn new(engine: Engine, config: Config) -> Result<Self, DriverError> {
        let dialer = Dialer::new(&config, engine.clock().clone())?;
        Ok(Self::with(engine, config, dialer))
    }

    /// The same with a dialer that has read the certificates.
    pub(crate) fn with(engine: Engine, config: Config, dialer: Dialer) -> Self {
        let site = Arc::new(Site::new(&config, &dialer, engine.clock().clone()));
        let links = Links::new(engine.clone(), dialer, site.clone(), config.timeout);
        engine.spawn(Site::supervise(Arc::downgrade(&site)));
        Self(Arc::new(Shared {
            hub: Hub::new(engine.clone(), links.clone(), &config),
            renewals: Semaphore::new(IN_FLIGHT),
            closed: AtomicBool::new(false),
            replicas: AtomicU32::new(0),
            links,
            engine,
            config,
        }))
    }

    pub(crate) fn claim_of(&self, want: Arc<Want>) -> Result<RedisClaim, DriverError> {
        if self.0.closed.load(Ordering::Acquire) {
            return Err(DriverError::closed());
        }
        accepts(&self.0.config, &want)?;
        let shape = self.0.shape(&want);
        Ok(RedisClaim::new(self.0.clone(), want, shape))
    }
}

#[derive(Debug)]
pub(crate) struct RedisDriver(pub(crate) Arc<Shared>);

/// What claims, renewals and inspection share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) engine: Engine,
    pub(crate) config: Config,
    pub(crate) links: Arc<Links>,
    pub(crate) hub: Arc<Hub>,
    /// Limits the renewal scripts that are on their way.
    pub(crate) renewals: Semaphore,
    pub(crate) closed: AtomicBool,
    /// The most replicas that the master was ever seen to have.
    pub(crate) replicas: AtomicU32,
}

impl Shared {
    pub(crate) fn client(&self) -> Uuid {
        self.engine.owners().client()
    }

    pub(crate) fn clock(&self) -> &Clock {
        self.engine.clock()
    }

    pub(crate) fn shape(&self, want: &Want) -> Shape {
        Shape::new(self.engine.namespace(), &self.config, want)
    }

    pub(crate) fn hub_live(&self) -> Option<Live> {
        self.hub.live()
    }
}

impl Driver for RedisDriver {
    fn promises(&self) -> Promises {
        promised("redis", &self.0.config)
    }

    fn claim(&self, want: Arc<Want>) -> Result<Box<dyn Claim>, DriverError> {
        self.claim_of(want).map(|claim| Box::new(claim) as Box<dyn Claim>)
    }

    fn renew<'a>(
        &'a self,
        holds: &'a [Hold],
        answer: &'a (dyn Fn(usize, Renewal) + Send + Sync),
    ) -> BoxFuture<'a, ()> {
        self.0.renew(holds, answer, false).boxed()
    }

    fn inspect(&self) -> Option<&dyn Inspect> {
        Some(self)
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        self.0.closed.store(true, Ordering::Release);
        self.0.hub.close();
        std::future::ready(()).boxed()
    }
}

/// What Redis promises with this format, as the engine of this name.
pub(crate) fn promised(engine: &'static str, config: &Config) -> Promises {
    let redisson = config.layout == Layout::Redisson;
    let mut promises = Promises::new(engine);
    promises.order = if redisson { Orders::AnyOrFifo } else { Orders::Any };
    promises.shared = redisson;
    promises.slots = redisson;
    promises.token = TokenPromise::BestEffort {
        unless: "the counter is lost (deleted, evicted, not replicated before a failover) while the server's \
                 clock is behind it",
    };
    promises.ttl = Duration::from_millis(100)..=MAX_TTL;
    promises.wakes = Wakes::Notified;
    promises.loss = Loss::BeforeRegrant;
    promises.death = Death::AtTtl;
    promises.lease_records = true;
    promises.keep = true;
    promises
}

/// Refuses what the format cannot store.
pub(crate) fn accepts(config: &Config, want: &Want) -> Result<(), DriverError> {
    let range = promised("redis", config).ttl;
    if !range.contains(&want.ttl) {
        let why = format!(
            "ttl {:?}: Redis keeps {:?} to {:?}",
            want.ttl,
            range.start(),
            range.end()
        );
        return Err(DriverError::refused(Refusal::InvalidConfig(why)));
    }
    let unsupported = |what: &str| Err(DriverError::refused(Refusal::Unsupported(what.to_owned())));
    match (&config.layout, want.mode, want.order) {
        (Layout::String { .. }, Mode::Mutex, Order::Any) | (Layout::Redisson, _, _) => {}
        (Layout::String { .. }, Mode::Mutex, Order::Fifo) => {
            return unsupported("layout=string has no order; use layout=redisson");
        }
        (Layout::String { .. }, _, _) => {
            return unsupported("layout=string has mutexes only; use layout=redisson");
        }
    }
    Ok(())
}
