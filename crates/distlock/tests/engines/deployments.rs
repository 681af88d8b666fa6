//! Every engine with a server, started once for all tests that run at the same time.

use std::any::Any;
use std::sync::{Arc, Weak};

use distlock_testkit::proxy::Proxy;
use distlock_testkit::servers::{Etcd, MariaDb, Postgres, Redis, StartError, ZooKeeper, or_skip};
use futures_util::future::join_all;
use tokio::sync::Mutex;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Engine {
    Redis,
    Etcd,
    ZooKeeper,
    Postgres,
    MariaDb,
}

/// A server, which is killed when the last test that uses it has ended.
pub(crate) struct Deployment {
    pub(crate) engine: Engine,
    pub(crate) url: String,
    address: String,
    _server: Box<dyn Any + Send + Sync>,
}

impl Deployment {
    fn new(engine: Engine, url: String, address: String, server: impl Any + Send + Sync) -> Self {
        Self {
            engine,
            url,
            address,
            _server: Box::new(server),
        }
    }

    /// A new way to it, and the URL of that.
    pub(crate) async fn behind_a_proxy(&self) -> (Proxy, String) {
        let proxy = Proxy::start(self.address.clone()).await.unwrap();
        let url = self.url.replace(&self.address, &proxy.address());
        (proxy, url)
    }
}

impl Engine {
    pub(crate) const ALL: [Self; 5] = [
        Self::Redis,
        Self::Etcd,
        Self::ZooKeeper,
        Self::Postgres,
        Self::MariaDb,
    ];

    /// `None`: it is not installed.
    pub(crate) async fn start(self) -> Option<Arc<Deployment>> {
        static RUNNING: [Mutex<Weak<Deployment>>; 5] = [const { Mutex::const_new(Weak::new()) }; 5];
        let mut running = RUNNING[self as usize].lock().await;
        if let Some(deployment) = running.upgrade() {
            return Some(deployment);
        }
        let deployment = Arc::new(or_skip(self.server().await)?);
        *running = Arc::downgrade(&deployment);
        Some(deployment)
    }

    async fn server(self) -> Result<Deployment, StartError> {
        Ok(match self {
            Self::Redis => {
                let server = Redis::start().await?;
                Deployment::new(self, server.url(), server.address(), server)
            }
            Self::Etcd => {
                let server = Etcd::start(1).await?;
                Deployment::new(self, server.url(), server.addresses()[0].clone(), server)
            }
            Self::ZooKeeper => {
                // Sessions as long as they are with the defaults.
                let server = ZooKeeper::start_with(1, "maxSessionTimeout=40000\n").await?;
                Deployment::new(self, server.url(), server.addresses()[0].clone(), server)
            }
            Self::Postgres => {
                let server = Postgres::start().await?;
                Deployment::new(self, server.url(), server.address(), server)
            }
            Self::MariaDb => {
                let server = MariaDb::start().await?;
                Deployment::new(self, server.url(), server.address(), server)
            }
        })
    }
}

/// Does this on all of them at once, and no other such thing meanwhile: the servers share few processors.
pub(crate) async fn on_each(body: impl AsyncFn(&Deployment)) {
    static ALONE: Mutex<()> = Mutex::const_new(());
    let _alone = ALONE.lock().await;
    join_all(Engine::ALL.map(async |engine| {
        if let Some(deployment) = engine.start().await {
            body(&deployment).await;
        }
    }))
    .await;
}

/// The URL with more parameters.
pub(crate) fn with(url: &str, parameters: &str) -> String {
    let sign = if url.contains('?') { '&' } else { '?' };
    format!("{url}{sign}{parameters}")
}
