//! The row engine: what the core sees of it.

use std::sync::Arc;
use std::time::Duration;

use distlock_core::driver::{
    Claim, Death, Driver, DriverError, Hold, Inspect, Loss, MAX_TTL, Orders, Promises, Renewal, TokenPromise, Wakes,
    Want,
};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use crate::claim::RowClaim;
use crate::config::{Config, Dialect};
use crate::store::{Backend, Store};
use crate::watch::Watch;

/// Locks as rows of one table.
#[derive(Debug)]
pub(crate) struct RowDriver {
    pub(crate) store: Arc<Store>,
    watch: Arc<Watch>,
    host: String,
}

impl RowDriver {
    pub(crate) fn new(engine: distlock_core::engine::Engine, config: Config) -> Result<Self, DriverError> {
        let store = Arc::new(Store::new(engine, config)?);
        crate::purge::start(&store);
        Ok(Self { watch: Arc::new(Watch::new(store.clone())), host: crate::about::host_name(), store })
    }
}

impl Driver for RowDriver {
    fn promises(&self) -> Promises {
        let dialect = self.store.config.dialect;
        let mut promises = Promises::new(dialect.engine());
        promises.order = Orders::AnyOrFifo;
        promises.shared = true;
        promises.slots = true;
        promises.token = TokenPromise::BestEffort {
            unless: "the row was purged after a day without use, or deleted, and the server's clock stepped back further",
        };
        promises.ttl = Duration::from_millis(100)..=MAX_TTL;
        promises.wakes = match dialect {
            Dialect::Postgres => Wakes::Notified,
            Dialect::Mysql => Wakes::Paced,
        };
        promises.loss = Loss::BeforeRegrant;
        promises.death = Death::AtTtl;
        promises.lease_records = true;
        promises.keep = true;
        promises
    }

    fn claim(&self, want: Arc<Want>) -> Result<Box<dyn Claim>, DriverError> {
        Ok(Box::new(RowClaim::new(self.store.clone(), self.watch.clone(), &self.host, want)))
    }

    fn renew<'a>(
        &'a self,
        holds: &'a [Hold],
        answer: &'a (dyn Fn(usize, Renewal) + Send + Sync),
    ) -> BoxFuture<'a, ()> {
        crate::renew::renew(&self.store, holds, answer).boxed()
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        if let Backend::Postgres { listener, .. } = &self.store.backend {
            listener.stop();
        }
        std::future::ready(()).boxed()
    }

    fn inspect(&self) -> Option<&dyn Inspect> {
        Some(self)
    }
}
