//! A complete engine in about a hundred lines: the place to start from when you write one.
//!
//! It keeps mutexes in a map of this process, each with an owner, an expiry and a token; waiters are not notified but
//! asked to look again. It promises little, and keeps what it promises: the conformance suite runs at the end.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use distlock_core::clock::Moment;
use distlock_core::driver::{
    Claim, Driver, DriverError, Grant, Hold, Life, LostReason, Mode, Order, Promises, Refusal, Released,
    Renewal, Standing, TokenPromise, Want,
};
use distlock_core::engine::Engine;
use distlock_core::{FencingToken, OwnerId};
use distlock_testkit::conformance::{Client, Connected, Deployment};
use futures_util::future::{BoxFuture, ready};

/// One lock: who holds it until when. The entry stays when the lock is free, so that tokens grow.
#[derive(Debug)]
struct Record {
    owner: Option<OwnerId>,
    until: Moment,
    token: u64,
}

/// Where the locks are. A real engine has a server here; whatever it is, each of the three operations below is one
/// atomic step on it.
#[derive(Debug, Clone, Default)]
struct Toy(Arc<Mutex<HashMap<String, Record>>>);

impl Toy {
    fn records(&self) -> MutexGuard<'_, HashMap<String, Record>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug)]
struct ToyDriver {
    toy: Toy,
    engine: Engine,
    closed: Arc<AtomicBool>,
}

impl Driver for ToyDriver {
    fn promises(&self) -> Promises {
        let mut promises = Promises::new("toy");
        promises.token = TokenPromise::BestEffort {
            unless: "the process ends",
        };
        promises
    }

    fn claim(&self, want: Arc<Want>) -> Result<Box<dyn Claim>, DriverError> {
        // What is not promised is refused, before anything is asked of the engine.
        if want.mode != Mode::Mutex || want.order == Order::Fifo || want.life == Life::Lease {
            let why = "anything but a mutex without order, held by its process".into();
            return Err(DriverError::refused(Refusal::Unsupported(why)));
        }
        let ttl = self.promises().ttl;
        if !ttl.contains(&want.ttl) {
            let why = format!(
                "ttl {:?} is not in {:?} to {:?}",
                want.ttl,
                ttl.start(),
                ttl.end()
            );
            return Err(DriverError::refused(Refusal::InvalidConfig(why)));
        }
        let record = self.engine.namespace().record(&want.key);
        Ok(Box::new(ToyClaim {
            toy: self.toy.clone(),
            engine: self.engine.clone(),
            closed: self.closed.clone(),
            want,
            record,
            done: false,
        }))
    }

    fn renew<'a>(
        &'a self,
        holds: &'a [Hold],
        answer: &'a (dyn Fn(usize, Renewal) + Send + Sync),
    ) -> BoxFuture<'a, ()> {
        for (i, hold) in holds.iter().enumerate() {
            // Law 6: the moment is taken before the engine is asked.
            let now = self.engine.clock().now();
            let mut records = self.toy.records();
            let record = records.get_mut(&self.engine.namespace().record(&hold.want.key));
            // Law 4: only what is still ours, and not yet over, is renewed.
            let renewal = match record.filter(|r| r.owner == Some(hold.want.owner) && r.until > now) {
                Some(record) => {
                    record.until = now + hold.ttl;
                    Renewal::Good(record.until)
                }
                None => Renewal::Lost(LostReason::Taken),
            };
            drop(records);
            answer(i, renewal);
        }
        Box::pin(ready(()))
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        self.closed.store(true, Ordering::Release);
        Box::pin(ready(()))
    }
}

#[derive(Debug)]
struct ToyClaim {
    toy: Toy,
    engine: Engine,
    closed: Arc<AtomicBool>,
    want: Arc<Want>,
    record: String,
    /// Held once, or released: a claim serves one hold.
    done: bool,
}

#[async_trait]
impl Claim for ToyClaim {
    async fn try_acquire(&mut self) -> Result<Standing, DriverError> {
        if self.done || self.closed.load(Ordering::Acquire) {
            return Err(DriverError::closed());
        }
        let now = self.engine.clock().now();
        let mut records = self.toy.records();
        let new = || Record {
            owner: None,
            until: Moment::START,
            token: 0,
        };
        let record = records.entry(self.record.clone()).or_insert_with(new);
        if record.owner.is_some() && record.until > now {
            return Ok(Standing::Waiting {
                recheck: Duration::from_millis(5),
                holder: None,
                ahead: None,
            });
        }
        *record = Record {
            owner: Some(self.want.owner),
            until: now + self.want.ttl,
            token: record.token + 1,
        };
        self.done = true;
        let token = Some(FencingToken::new(record.token));
        Ok(Standing::Held(Grant {
            token,
            valid_until: record.until,
            mark: 0,
        }))
    }

    async fn release(&mut self, _keep: Option<Duration>) -> Result<Released, DriverError> {
        self.done = true;
        let now = self.engine.clock().now();
        let mut records = self.toy.records();
        let ours = records
            .get_mut(&self.record)
            .filter(|r| r.owner == Some(self.want.owner));
        let Some(record) = ours else {
            return Ok(Released::NotHeld);
        };
        record.owner = None;
        Ok(if record.until > now {
            Released::Freed
        } else {
            Released::NotHeld
        })
    }
}

struct ToyDeployment(Toy);

#[async_trait]
impl Deployment for ToyDeployment {
    async fn client(&self) -> Connected {
        Client::start(async |engine| {
            Ok(Arc::new(ToyDriver {
                toy: self.0.clone(),
                engine,
                closed: Arc::default(),
            }) as Arc<dyn Driver>)
        })
        .await
    }

    fn ttl(&self) -> Duration {
        Duration::from_millis(200)
    }
}

distlock_testkit::conformance!(ToyDeployment(Toy::default()));
