//! Connections to the master: one for each async runtime, made when first used and again when it is lost.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use distlock_core::driver::{DriverError, Reached};
use distlock_core::engine::Engine;
use distlock_core::per_runtime::PerRuntime;
use redis::PushInfo;
use tokio::runtime::Handle;

use crate::dial::{Dialer, Link};
use crate::site::Site;

/// Connections that are not in use.
type Spare = Arc<Mutex<Vec<(u64, Link)>>>;
/// So many are kept.
const SPARE: usize = 16;

/// A connection for one contender. It is closed unless it is given back: what was sent on it may not be answered.
#[derive(Debug)]
pub(crate) struct Lent {
    epoch: u64,
    pub(crate) link: Link,
    spare: Spare,
}

impl Lent {
    /// Everything that was sent is answered.
    pub(crate) fn give_back(self) {
        let mut spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner);
        if spare.len() < SPARE {
            spare.push((self.epoch, self.link));
        }
    }
}

/// Hands out connections.
#[derive(Debug)]
pub(crate) struct Links {
    engine: Engine,
    dialer: Dialer,
    site: Arc<Site>,
    per_runtime: PerRuntime<(u64, Link)>,
    spare: PerRuntime<Spare>,
    patience: Duration,
}

impl Links {
    pub(crate) fn new(engine: Engine, dialer: Dialer, site: Arc<Site>, patience: Duration) -> Arc<Self> {
        Arc::new(Self {
            engine,
            dialer,
            site,
            per_runtime: PerRuntime::new(),
            spare: PerRuntime::new(),
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
        match self.per_runtime.present() {
            Some((epoch, link)) if !link.is_over() && epoch == self.site.epoch() => Ok(link),
            // In a future of its own: dialling takes a large one, and each request would carry it along.
            _ => Box::pin(self.make()).await,
        }
    }

    async fn make(self: &Arc<Self>) -> Result<Link, DriverError> {
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

    /// A connection that nobody else uses meanwhile.
    ///
    /// # Errors
    /// Nothing was sent: [`Reached::No`].
    pub(crate) async fn lend(self: &Arc<Self>) -> Result<Lent, DriverError> {
        if Handle::try_current().is_ok() {
            return self.lend_here().await;
        }
        let links = self.clone();
        match self.engine.spawn(async move { links.lend_here().await }).await {
            Ok(lent) => lent,
            Err(_) => Err(DriverError::closed()),
        }
    }

    async fn lend_here(&self) -> Result<Lent, DriverError> {
        let (_, spare) = self
            .spare
            .get(|| std::future::ready(Ok::<_, DriverError>(Spare::default())))
            .await?;
        let idle = || spare.lock().unwrap_or_else(PoisonError::into_inner).pop();
        while let Some((epoch, link)) = idle() {
            if !link.is_over() && epoch == self.site.epoch() {
                return Ok(Lent { epoch, link, spare });
            }
        }
        let (epoch, link) = self.dial(|_| ()).await?;
        Ok(Lent { epoch, link, spare })
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
