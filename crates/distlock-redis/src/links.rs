//! Connections to the master: one for each async runtime, made when first used and again when it is lost.

use std::sync::Arc;
use std::time::Duration;

use distlock_core::driver::{DriverError, Reached};
use distlock_core::engine::Engine;
use distlock_core::per_runtime::PerRuntime;
use redis::PushInfo;
use tokio::runtime::Handle;

use crate::dial::{Dialer, Link};
use crate::site::Site;

/// Hands out connections.
#[derive(Debug)]
pub(crate) struct Links {
    engine: Engine,
    dialer: Dialer,
    site: Arc<Site>,
    per_runtime: PerRuntime<(u64, Link)>,
    patience: Duration,
}

impl Links {
    pub(crate) fn new(engine: Engine, dialer: Dialer, site: Arc<Site>, patience: Duration) -> Arc<Self> {
        Arc::new(Self {
            engine,
            dialer,
            site,
            per_runtime: PerRuntime::new(),
            patience,
        })
    }

    pub(crate) fn site(&self) -> &Arc<Site> {
        &self.site
    }

    /// How long an answer may take.
    pub(crate) fn patience(&self) -> Duration {
        self.patience
    }

    /// The present runtime's connection; the engine thread's outside of any.
    ///
    /// # Errors
    /// Nothing was sent: [`Reached::No`].
    pub(crate) async fn get(self: &Arc<Self>) -> Result<Link, DriverError> {
        if Handle::try_current().is_ok() {
            return self.here().await;
        }
        self.engine_side().await
    }

    /// The engine thread's connection.
    pub(crate) async fn engine_side(self: &Arc<Self>) -> Result<Link, DriverError> {
        let links = self.clone();
        match self.engine.spawn(async move { links.here().await }).await {
            Ok(link) => link,
            Err(_) => Err(DriverError::closed()),
        }
    }

    async fn here(&self) -> Result<Link, DriverError> {
        for _ in 0..3 {
            let (generation, (epoch, link)) = self.per_runtime.get(|| self.dial(|_| ())).await?;
            if !link.is_over() && epoch == self.site.epoch() {
                return Ok(link);
            }
            self.per_runtime.discard(generation);
        }
        Err(DriverError::unavailable(
            Reached::No,
            "connections to Redis are lost as soon as they are made",
        ))
    }

    /// A new connection to the master, with the epoch that it belongs to.
    ///
    /// # Errors
    /// Nothing was sent: [`Reached::No`].
    pub(crate) async fn dial(
        &self,
        push: impl Fn(PushInfo) + Send + Sync + 'static,
    ) -> Result<(u64, Link), DriverError> {
        let (epoch, node) = self.site.master().await?;
        match self.dialer.dial(&node, push).await {
            Ok(link) => {
                self.site.admit(epoch, &link).await?;
                Ok((epoch, link))
            }
            Err(e) => {
                self.site.suspect(epoch);
                Err(e)
            }
        }
    }
}
