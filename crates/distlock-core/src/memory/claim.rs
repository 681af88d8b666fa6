//! The driver of one client, its claims, and the way of a request to the store.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::{BoxFuture, join_all};
use tokio::sync::oneshot;
use uuid::Uuid;

use super::history::{Answer, Event};
use super::plan::{Call, Fault};
use super::{Name, Store};
use crate::clock::Moment;
use crate::driver::{
    Claim, Driver, DriverError, Hold, Inspect, MAX_TTL, Mode, Orders, Promises, Reached, Refusal, Released,
    Renewal, Standing, TokenPromise, Wakes, Want,
};
use crate::engine::Engine;
use crate::token::FencingToken;

const MIN_TTL: Duration = Duration::from_millis(10);

/// One client of a [`Memory`](super::Memory).
pub(super) struct MemoryDriver(Arc<Client>);

pub(super) struct Client {
    pub(super) store: Arc<Store>,
    pub(super) engine: Engine,
    closed: AtomicBool,
}

impl MemoryDriver {
    pub(super) fn new(store: Arc<Store>, engine: Engine) -> Self {
        Self(Arc::new(Client {
            store,
            engine,
            closed: AtomicBool::new(false),
        }))
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryDriver")
            .field("client", &self.id())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for MemoryDriver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Driver for MemoryDriver {
    fn promises(&self) -> Promises {
        Promises {
            order: Orders::AnyOrFifo,
            shared: true,
            slots: true,
            token: TokenPromise::Durable,
            ttl: MIN_TTL..=MAX_TTL,
            wakes: Wakes::Notified,
            lease_records: true,
            keep: true,
            ..Promises::new("memory")
        }
    }

    fn claim(&self, want: Arc<Want>) -> Result<Box<dyn Claim>, DriverError> {
        self.0.open()?;
        let range = MIN_TTL..=MAX_TTL;
        if !range.contains(&want.ttl) {
            let why = format!("the TTL {:?} is not within {MIN_TTL:?} to {MAX_TTL:?}", want.ttl);
            return Err(DriverError::refused(Refusal::InvalidConfig(why)));
        }
        if want.mode == (Mode::Slot { of: 0 }) {
            let why = "a semaphore has at least 1 permit, not 0";
            return Err(DriverError::refused(Refusal::InvalidConfig(why.into())));
        }
        let request = Request::new(&self.0, want);
        Ok(Box::new(MemoryClaim { request, done: false }))
    }

    fn renew<'a>(
        &'a self,
        holds: &'a [Hold],
        answer: &'a (dyn Fn(usize, Renewal) + Send + Sync),
    ) -> BoxFuture<'a, ()> {
        let one = async move |(at, hold): (usize, &Hold)| {
            let hold = hold.clone();
            let request = Request::new(&self.0, hold.want.clone());
            let renewal = match self.0.open() {
                Ok(()) => request.send(Call::Renew, move |r| r.renew(&hold)).await,
                Err(e) => Err(e),
            };
            answer(at, renewal.unwrap_or_else(Renewal::Unknown));
        };
        Box::pin(async move {
            join_all(holds.iter().enumerate().map(one)).await;
        })
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        self.0.closed.store(true, Ordering::Release);
        Box::pin(std::future::ready(()))
    }

    fn inspect(&self) -> Option<&dyn Inspect> {
        Some(&*self.0)
    }
}

impl Client {
    pub(super) fn id(&self) -> Uuid {
        self.engine.owners().client()
    }

    pub(super) fn now(&self) -> Moment {
        self.engine.clock().now()
    }

    fn open(&self) -> Result<(), DriverError> {
        if self.closed.load(Ordering::Acquire) {
            return Err(DriverError::closed());
        }
        Ok(())
    }

    /// Whether a request that concerns no claim would arrive.
    pub(super) fn reachable(&self) -> Result<(), DriverError> {
        self.open()?;
        if self.store.plan.is_cut_off(self.id(), self.now()) {
            return Err(not_sent());
        }
        Ok(())
    }
}

/// A claim on a lock in memory.
#[derive(Debug)]
struct MemoryClaim {
    request: Request,
    /// Held or released once: a claim serves one hold.
    done: bool,
}

#[async_trait]
impl Claim for MemoryClaim {
    async fn try_acquire(&mut self) -> Result<Standing, DriverError> {
        if self.done {
            return Err(DriverError::closed());
        }
        self.request.client.open()?;
        let standing = self.request.send(Call::Try, |r| r.try_acquire()).await??;
        self.done = matches!(standing, Standing::Held(_));
        Ok(standing)
    }

    async fn release(&mut self, keep: Option<Duration>) -> Result<Released, DriverError> {
        self.done = true;
        self.request.send(Call::Release, move |r| r.release(keep)).await
    }

    fn age(&self) -> Option<Duration> {
        let born = (*super::lock(&self.request.client.store.born))?;
        Some(self.request.client.now().since(born))
    }

    fn time(&self) -> Option<u64> {
        Some(self.request.client.now().as_nanos() / 1000)
    }

    fn propose(&mut self, token: FencingToken) {
        self.request.proposed = Some(token);
    }
}

/// What a contender sends to the store, again and again. Owned, since a late request outlives its caller.
#[derive(Debug, Clone)]
struct Request {
    client: Arc<Client>,
    want: Arc<Want>,
    name: Name,
    proposed: Option<FencingToken>,
}

impl Request {
    fn new(client: &Arc<Client>, want: Arc<Want>) -> Self {
        Self {
            client: client.clone(),
            name: client.store.name(client.engine.namespace(), &want.key),
            want,
            proposed: None,
        }
    }

    fn try_acquire(&self) -> Result<Standing, DriverError> {
        let now = self.client.now();
        self.client.store.with(&self.name, now, |record, rings| {
            let standing = record.try_acquire(&self.want, self.proposed, now, rings);
            self.note(Call::Try, now, || {
                standing.as_ref().map_or_else(Into::into, Into::into)
            });
            standing
        })
    }

    fn release(&self, keep: Option<Duration>) -> Released {
        let now = self.client.now();
        let released = self.client.store.with_existing(&self.name, |record, rings| {
            let released = record.release(self.want.owner, keep, now, rings);
            self.note(Call::Release, now, || (&released).into());
            released
        });
        released.unwrap_or(Released::NotHeld)
    }

    fn renew(&self, hold: &Hold) -> Renewal {
        let now = self.client.now();
        self.client.store.with(&self.name, now, |record, rings| {
            let renewal = record.renew(hold, now, rings);
            self.note(Call::Renew, now, || (&renewal).into());
            renewal
        })
    }

    /// Brings a request to the store and its answer back, or does what a fault says instead.
    async fn send<T: Send + 'static>(
        &self,
        call: Call,
        apply: impl FnOnce(&Self) -> T + Send + 'static,
    ) -> Result<T, DriverError> {
        if !self.client.store.plan.is_armed() {
            return Ok(apply(self));
        }
        // Boxed, so that requests that nothing can strike carry no room for it.
        Box::pin(self.send_under_faults(call, apply)).await
    }

    async fn send_under_faults<T: Send + 'static>(
        &self,
        call: Call,
        apply: impl FnOnce(&Self) -> T + Send + 'static,
    ) -> Result<T, DriverError> {
        let plan = &self.client.store.plan;
        let fault = plan.next(call, self.want.owner, self.client.now());
        if matches!(fault, Some(Fault::NotSent | Fault::Silent)) {
            self.note(call, self.client.now(), || Answer::NotApplied);
        }
        match fault {
            None => Ok(apply(self)),
            Some(Fault::NotSent) => Err(not_sent()),
            Some(Fault::LostReply) => {
                apply(self);
                Err(lost_reply())
            }
            Some(Fault::Slow(delay)) => {
                self.client.engine.clock().sleep(delay).await;
                Ok(apply(self))
            }
            Some(Fault::SlowReply(delay)) => {
                let answer = apply(self);
                self.client.engine.clock().sleep(delay).await;
                Ok(answer)
            }
            Some(Fault::Late(delay)) => self.later(delay, apply).await.map_err(|_| lost_reply()),
            Some(Fault::LateLost(delay)) => {
                drop(self.later(delay, apply));
                Err(lost_reply())
            }
            Some(Fault::Silent) => std::future::pending().await,
            Some(Fault::SilentApplied) => {
                apply(self);
                std::future::pending().await
            }
        }
    }

    /// Applies the request after a while, whether or not anybody still waits for it.
    fn later<T: Send + 'static>(
        &self,
        delay: Duration,
        apply: impl FnOnce(&Self) -> T + Send + 'static,
    ) -> oneshot::Receiver<T> {
        let (answer, answered) = oneshot::channel();
        let request = self.clone();
        let sleep = self.client.engine.clock().sleep(delay);
        self.client.engine.spawn(async move {
            sleep.await;
            // Fails when the caller went away.
            let _ = answer.send(apply(&request));
        });
        answered
    }

    fn note(&self, call: Call, at: Moment, answer: impl FnOnce() -> Answer) {
        self.client.store.plan.note(|| Event {
            at,
            record: self.name.key.text(),
            owner: self.want.owner,
            mode: self.want.mode,
            call,
            answer: answer(),
        });
    }
}

fn not_sent() -> DriverError {
    DriverError::unavailable(Reached::No, "a fault kept the request from being sent")
}

fn lost_reply() -> DriverError {
    DriverError::unavailable(Reached::Maybe, "a fault lost the reply")
}
