//! What all requests share.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use distlock_core::Namespace;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::access::Access;
use crate::attempts::Attempts;
use crate::audit::Audit;
use crate::bound::Bound;
use crate::chronicle::Chronicle;
use crate::limits::{Limiter, Limits};
use crate::seats::Seats;
use crate::tenants::{Connect, Tenants};

/// The settings of a gateway.
#[derive(Clone)]
pub struct Config {
    /// Makes a client of the engine for a namespace.
    pub connect: Connect,
    /// The engine, for people: its URL without secrets.
    pub engine: String,
    /// The namespace of requests that name none.
    pub namespace: Namespace,
    /// The file of the tokens; without it everybody may do everything.
    pub tokens: Option<PathBuf>,
    /// The file to which each break is appended.
    pub audit: Option<PathBuf>,
    /// What one client, and all together, may ask.
    pub limits: Limits,
    /// The text of `/metrics`.
    pub metrics: Option<Arc<dyn Fn() -> String + Send + Sync>>,
}

impl Config {
    /// The defaults, with what makes a client of the engine.
    pub fn new(connect: Connect) -> Self {
        Self {
            connect,
            engine: String::new(),
            namespace: Namespace::default(),
            tokens: None,
            audit: None,
            limits: Limits::default(),
            metrics: None,
        }
    }
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("engine", &self.engine)
            .field("namespace", &self.namespace)
            .field("tokens", &self.tokens)
            .field("audit", &self.audit)
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}

/// A gateway.
pub(crate) struct Gateway {
    pub(crate) id: Uuid,
    pub(crate) engine: String,
    pub(crate) namespace: Namespace,
    pub(crate) access: Access,
    pub(crate) limiter: Limiter,
    pub(crate) tenants: Tenants,
    pub(crate) seats: Arc<Seats>,
    pub(crate) attempts: Arc<Attempts>,
    pub(crate) bound: Arc<Bound>,
    pub(crate) audit: Audit,
    pub(crate) chronicle: Arc<Chronicle>,
    pub(crate) metrics: Option<Arc<dyn Fn() -> String + Send + Sync>>,
    /// Cancelled when the shutdown begins.
    pub(crate) closing: CancellationToken,
}

impl fmt::Debug for Gateway {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gateway")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

impl Gateway {
    pub(crate) fn new(config: Config) -> std::io::Result<Arc<Self>> {
        let id = Uuid::new_v4();
        let access = match &config.tokens {
            None => Access::open(),
            Some(path) => Access::tokens(path, config.namespace.as_str())?,
        };
        Ok(Arc::new(Self {
            access,
            audit: Audit::open(config.audit.as_deref())?,
            tenants: Tenants::new(config.connect, config.limits.namespaces),
            limiter: Limiter::new(config.limits),
            seats: Arc::default(),
            attempts: Arc::default(),
            bound: Arc::new(Bound::new(id)),
            chronicle: Arc::default(),
            engine: config.engine,
            namespace: config.namespace,
            metrics: config.metrics,
            closing: CancellationToken::new(),
            id,
        }))
    }

    /// What has to be done from time to time, until the shutdown.
    pub(crate) async fn tend(self: Arc<Self>) {
        let mut tick = tokio::time::interval(Duration::from_secs(1));
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = self.closing.cancelled() => return,
                _ = tick.tick() => {}
            }
            self.access.refresh();
            self.attempts.sweep();
            self.chronicle.sweep(&self.tenants).await;
        }
    }
}
