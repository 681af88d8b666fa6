//! The row engine: what the core sees of it.

use std::sync::Arc;
use std::time::Duration;

use distlock_core::driver::{
    Claim, Death, Driver, DriverError, Hold, Inspect, Loss, MAX_TTL, Mode, Order, Orders, Promises, Refusal,
    Renewal, TokenPromise, Wakes, Want,
};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use crate::claim::RowClaim;
use crate::config::{Config, Dialect, Layout, invalid};
use crate::fault::unsupported;
use crate::store::Store;
use crate::watch::Watch;

/// Locks as rows of one table.
#[derive(Debug)]
pub(crate) struct RowDriver {
    pub(crate) store: Arc<Store>,
    watch: Arc<Watch>,
}

impl RowDriver {
    pub(crate) fn new(engine: distlock_core::engine::Engine, config: Config) -> Result<Self, DriverError> {
        let store = Arc::new(Store::new(engine, config)?);
        if store.config.layout == Layout::Row {
            crate::purge::start(&store);
        }
        Ok(Self {
            watch: Arc::new(Watch::new(store.clone())),
            store,
        })
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
        if self.store.config.layout == Layout::ShedLock {
            promises.order = Orders::Any;
            (promises.shared, promises.slots) = (false, false);
            promises.token = TokenPromise::None;
            promises.wakes = Wakes::Paced;
        }
        promises
    }

    fn claim(&self, want: Arc<Want>) -> Result<Box<dyn Claim>, DriverError> {
        if self.store.is_closed() {
            return Err(DriverError::closed());
        }
        within(&want, &self.promises())?;
        if self.store.config.layout == Layout::ShedLock {
            self.fits_shedlock(&want)?;
        }
        Ok(Box::new(RowClaim::new(
            self.store.clone(),
            self.watch.clone(),
            want,
        )))
    }

    fn renew<'a>(
        &'a self,
        holds: &'a [Hold],
        answer: &'a (dyn Fn(usize, Renewal) + Send + Sync),
    ) -> BoxFuture<'a, ()> {
        if self.store.is_closed() {
            return std::future::ready(()).boxed();
        }
        crate::renew::renew(&self.store, holds, answer).boxed()
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        self.store.close();
        std::future::ready(()).boxed()
    }

    fn inspect(&self) -> Option<&dyn Inspect> {
        Some(self)
    }
}

impl RowDriver {
    /// Refuses what ShedLock's table has no place for.
    fn fits_shedlock(&self, want: &Want) -> Result<(), DriverError> {
        if want.mode != Mode::Mutex || want.order == Order::Fifo {
            return Err(unsupported("layout=shedlock has mutexes in no order only"));
        }
        let name = self.store.engine.namespace().record(&want.key);
        if name.chars().count() > 64 {
            let why = format!("{name}: ShedLock's table has names of at most 64 characters");
            return Err(DriverError::refused(Refusal::InvalidKey(why)));
        }
        Ok(())
    }
}

/// Refuses a ttl that is not promised.
pub(crate) fn within(want: &Want, promises: &Promises) -> Result<(), DriverError> {
    if promises.ttl.contains(&want.ttl) {
        return Ok(());
    }
    let (least, most) = (promises.ttl.start(), promises.ttl.end());
    Err(invalid(format!(
        "ttl {:?}: it may be {least:?} to {most:?}",
        want.ttl
    )))
}
