//! What the core sees of session locks.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use async_trait::async_trait;
use distlock_core::driver::{
    Claim, Death, Driver, DriverError, Grant, Hold, Life, Loss, LostReason, MAX_TTL, Mode, Order, Orders,
    Promises, Reached, Released, Renewal, Standing, TokenPromise, Wakes, Want,
};
use distlock_core::engine::Engine;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use rand::RngExt;

use super::Session;
use crate::config::{Config, Dialect};
use crate::fault::{Fault, unsupported};

/// Locks as session locks.
#[derive(Debug)]
pub(crate) struct SessionDriver {
    session: Arc<Session>,
    dialect: Dialect,
}

impl SessionDriver {
    pub(crate) fn new(engine: Engine, config: &Config) -> Result<Self, DriverError> {
        Ok(Self {
            session: Arc::new(Session::new(engine, config)?),
            dialect: config.dialect,
        })
    }
}

impl Driver for SessionDriver {
    fn promises(&self) -> Promises {
        let mut promises = Promises::new(self.dialect.engine());
        promises.order = Orders::Any;
        promises.token = TokenPromise::None;
        promises.ttl = Duration::from_secs(1)..=MAX_TTL;
        promises.wakes = Wakes::Paced;
        promises.loss = Loss::OnNotice;
        promises.death = Death::AtOnce;
        promises
    }

    fn claim(&self, want: Arc<Want>) -> Result<Box<dyn Claim>, DriverError> {
        if self.session.is_closed() {
            return Err(DriverError::closed());
        }
        crate::driver::within(&want, &self.promises())?;
        if want.mode != Mode::Mutex {
            return Err(unsupported("mode=session has mutexes only; use mode=row"));
        }
        if want.order == Order::Fifo {
            return Err(unsupported("mode=session has no fair order; use mode=row"));
        }
        if want.life == Life::Lease {
            return Err(unsupported(
                "mode=session has no leases: a lock ends with its session; use mode=row",
            ));
        }
        Ok(Box::new(SessionClaim {
            session: self.session.clone(),
            name: self.session.engine.namespace().record(&want.key),
            owner: want.owner.to_string(),
            asked: false,
            over: false,
            want,
        }))
    }

    fn renew<'a>(
        &'a self,
        holds: &'a [Hold],
        answer: &'a (dyn Fn(usize, Renewal) + Send + Sync),
    ) -> BoxFuture<'a, ()> {
        // The connection is watched all the time: what it holds is known here.
        let session = &self.session;
        for (i, hold) in holds.iter().enumerate() {
            let name = session.engine.namespace().record(&hold.want.key);
            let held = session.is_held(&name, &hold.want.owner.to_string());
            answer(
                i,
                match held {
                    true => Renewal::Good(session.engine.clock().now() + hold.ttl),
                    false => Renewal::Lost(LostReason::SessionEnded),
                },
            );
        }
        std::future::ready(()).boxed()
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        async {
            self.session.closed.store(true, Ordering::Release);
            let mut guard = self.session.link.lock().await;
            self.session.end(&mut guard);
        }
        .boxed()
    }
}

#[derive(Debug)]
struct SessionClaim {
    session: Arc<Session>,
    want: Arc<Want>,
    name: String,
    owner: String,
    asked: bool,
    over: bool,
}

/// Runs on the engine thread to its end, whether or not the caller still waits: the next call finds what it did.
async fn on_engine<T: Send + 'static>(
    engine: &Engine,
    work: impl Future<Output = Result<T, Fault>> + Send + 'static,
) -> Result<T, DriverError> {
    match engine.spawn(work).await {
        Ok(done) => done.map_err(Fault::into_error),
        Err(_) => Err(DriverError::unavailable(
            Reached::Maybe,
            "the engine thread ended",
        )),
    }
}

#[async_trait]
impl Claim for SessionClaim {
    async fn try_acquire(&mut self) -> Result<Standing, DriverError> {
        if self.over || self.session.is_closed() {
            return Err(DriverError::closed());
        }
        self.asked = true;
        let (session, name, owner) = (self.session.clone(), self.name.clone(), self.owner.clone());
        let bell = self.want.bell.clone();
        let sent = self.session.engine.clock().now();
        let got = on_engine(&self.session.engine, async move {
            session.take(name, owner, bell).await
        })
        .await?;
        if got {
            self.over = true;
            return Ok(Standing::Held(Grant {
                token: None,
                valid_until: sent + self.want.ttl,
                mark: 0,
            }));
        }
        let recheck = Duration::from_millis(rand::rng().random_range(45..65));
        Ok(Standing::Waiting {
            recheck,
            holder: None,
            ahead: None,
        })
    }

    async fn release(&mut self, _keep: Option<Duration>) -> Result<Released, DriverError> {
        self.over = true;
        if !self.asked {
            return Ok(Released::NotHeld);
        }
        let (session, name, owner) = (self.session.clone(), self.name.clone(), self.owner.clone());
        let gave = on_engine(
            &self.session.engine,
            async move { session.give(name, owner).await },
        )
        .await?;
        Ok(if gave { Released::Freed } else { Released::NotHeld })
    }
}
