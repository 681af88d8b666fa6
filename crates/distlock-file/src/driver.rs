//! The driver: what a client and its claims share.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use distlock_core::clock::{Clock, Moment};
use distlock_core::driver::{
    Claim, Death, Driver, DriverError, Hold, Inspect, Loss, LostReason, MAX_TTL, Orders, Promises, Renewal,
    TokenPromise, Wakes, Want,
};
use distlock_core::engine::Engine;
use futures_util::future::BoxFuture;

use crate::bells::Bells;
use crate::claim::FileClaim;
use crate::config::Config;
use crate::entry::{self, Me, nanos};
use crate::place::Place;
use crate::protocol::{self, Renew};
use crate::rule::Wake;
use crate::snapshot::Snapshot;
use crate::table::Table;
use crate::trouble::{refused, unavailable};
use crate::update::{Outcome, update};
use crate::vigil::{self, Vigil};

/// The shortest lease: renewals at a third of it must be far from the scheduler's noise.
const MIN_TTL: Duration = Duration::from_millis(100);
/// How long an operation waits for stopped writers before it gives up.
const GIVE_UP: Duration = Duration::from_secs(2);

/// A client of a directory of locks.
#[derive(Debug)]
pub(crate) struct FileDriver(pub(crate) Arc<Shared>);

/// What the driver and its claims share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) engine: Engine,
    config: Config,
    pub(crate) bells: Arc<Bells>,
    place: RwLock<Arc<Place>>,
    pub(crate) me: Me,
    next_claim: AtomicU64,
    pub(crate) vigil: Vigil,
}

impl FileDriver {
    pub(crate) fn open(engine: Engine, config: Config) -> Result<Self, DriverError> {
        let bells = Arc::new(Bells::default());
        let place = Place::open(&engine, &config, &bells)?;
        let shared = Arc::new(Shared {
            engine,
            config,
            bells,
            place: RwLock::new(place),
            me: Me::new(),
            next_claim: AtomicU64::new(1),
            vigil: Vigil::default(),
        });
        vigil::start(&shared);
        Ok(Self(shared))
    }
}

impl Shared {
    pub(crate) fn clock(&self) -> &Clock {
        self.engine.clock()
    }

    pub(crate) fn place(&self) -> Arc<Place> {
        self.place.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The directory was removed: opens it anew, unless another task already has.
    pub(crate) fn reopen(&self, gone: &Arc<Place>) -> Result<Arc<Place>, DriverError> {
        let mut place = self.place.write().unwrap_or_else(PoisonError::into_inner);
        if Arc::ptr_eq(&place, gone) {
            tracing::warn!(dir = %self.config.dir.display(), "the directory of locks was removed; all its locks are lost");
            *place = Place::open(&self.engine, &self.config, &self.bells)?;
        }
        Ok(place.clone())
    }

    /// [`update`], waiting by timer while writers are stopped.
    pub(crate) async fn change<R: Send>(
        &self,
        place: &Place,
        bucket: usize,
        f: &mut (dyn FnMut(&mut Snapshot, Moment) -> (R, bool) + Send),
    ) -> Result<R, DriverError> {
        let mut until = None;
        loop {
            match update(&place.table, bucket, self.clock(), f)? {
                Outcome::Done(answer) => return Ok(answer),
                Outcome::Stuck => {
                    let now = self.clock().now();
                    if now >= *until.get_or_insert(now + GIVE_UP) {
                        return Err(unavailable(format!(
                            "{}: other processes reserved all room for a change and were stopped; continue or \
                             kill them",
                            place.table.path().display()
                        )));
                    }
                    self.pause().await;
                }
            }
        }
    }

    /// Wakes; whoever cannot come (the dead are removed, the stopped passed over) has the next one woken instead.
    pub(crate) async fn wake(
        &self,
        place: &Place,
        bucket: usize,
        mut wakes: Vec<Wake>,
    ) -> Result<(), DriverError> {
        loop {
            let unheard = place.wake(&wakes);
            if unheard.is_empty() {
                return Ok(());
            }
            wakes = self
                .change(place, bucket, &mut |s, now| {
                    let (mut wakes, now) = (Vec::new(), now.as_nanos());
                    let buried = s.bury(&unheard.dead, now, &mut wakes);
                    let passed = s.pass_over(&unheard.stopped, now, &mut wakes);
                    (wakes, buried || passed)
                })
                .await?;
        }
    }

    async fn pause(&self) {
        match self.clock() {
            Clock::Boot(_) => self.clock().sleep(Duration::from_millis(1)).await,
            // All users of a manual clock are in this process, and run while this one yields.
            Clock::Manual(_) => yield_now().await,
        }
    }
}

impl Driver for FileDriver {
    fn promises(&self) -> Promises {
        let mut p = Promises::new("file");
        p.order = Orders::AnyOrFifo;
        p.shared = true;
        p.slots = true;
        p.token = TokenPromise::BestEffort {
            unless: "the table is removed or lost in a power cut while the host's clock is behind its last tokens",
        };
        p.ttl = MIN_TTL..=MAX_TTL;
        p.wakes = Wakes::Notified;
        p.loss = Loss::BeforeRegrant;
        p.death = Death::AtOnce;
        p.lease_records = true;
        p.keep = true;
        p
    }

    fn claim(&self, want: Arc<Want>) -> Result<Box<dyn Claim>, DriverError> {
        if !(MIN_TTL..=MAX_TTL).contains(&want.ttl) {
            return Err(refused(format!(
                "a ttl of {:?} is out of the file engine's range of {MIN_TTL:?} to 366 days",
                want.ttl
            )));
        }
        let id = self.0.next_claim.fetch_add(1, Ordering::Relaxed);
        Ok(Box::new(FileClaim::new(self.0.clone(), want, id)))
    }

    fn renew<'a>(
        &'a self,
        holds: &'a [Hold],
        answer: &'a (dyn Fn(usize, Renewal) + Send + Sync),
    ) -> BoxFuture<'a, ()> {
        Box::pin(self.0.renew(holds, answer))
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            self.0.bells.close();
            self.0.place().close();
        })
    }

    fn inspect(&self) -> Option<&dyn Inspect> {
        Some(&*self.0)
    }

    fn liveness(&self) -> Option<OwnedFd> {
        self.0.place().fifos.copy()
    }
}

impl Shared {
    async fn renew(&self, holds: &[Hold], answer: &(dyn Fn(usize, Renewal) + Send + Sync)) {
        let mut place = self.place();
        let lost =
            |reason: LostReason| (0..holds.len()).for_each(|i| answer(i, Renewal::Lost(reason.clone())));
        if place.table.is_forked() {
            return lost(LostReason::Forked);
        }
        if !place.is_in_place() {
            match self.reopen(&place) {
                Ok(anew) => place = anew,
                Err(_) => return lost(LostReason::Taken),
            }
        }
        let mut buckets: BTreeMap<usize, Vec<(usize, Renew)>> = BTreeMap::new();
        for (i, hold) in holds.iter().enumerate() {
            let mut me = entry::of_key(self.engine.namespace().record(&hold.want.key).into());
            me.owner = hold.want.owner;
            let renew = Renew {
                me,
                ttl: nanos(hold.ttl.clamp(MIN_TTL, MAX_TTL)),
                floor: hold.floor.map_or(0, distlock_core::FencingToken::get),
            };
            buckets
                .entry(Table::bucket(renew.me.hash))
                .or_default()
                .push((i, renew));
        }
        for (bucket, all) in buckets {
            let result = self
                .change(&place, bucket, &mut |s, now| {
                    let mut any = false;
                    let mut wakes = Vec::new();
                    let answers: Vec<_> = all
                        .iter()
                        .map(|(_, r)| {
                            let (answer, changed) = protocol::renew(s, now, r, &mut wakes);
                            any |= changed;
                            answer
                        })
                        .collect();
                    ((answers, wakes), any)
                })
                .await;
            match result {
                Ok((answers, wakes)) => {
                    place.wake(&wakes);
                    for ((i, _), a) in all.iter().zip(answers) {
                        answer(
                            *i,
                            match a {
                                Ok(until) => Renewal::Good(until),
                                Err(reason) => Renewal::Lost(reason),
                            },
                        );
                    }
                }
                Err(e) => {
                    let why = e.to_string();
                    for (i, _) in &all {
                        answer(*i, Renewal::Unknown(unavailable(why.clone())));
                    }
                }
            }
            yield_now().await;
        }
    }
}

/// Lets others run, on any runtime.
async fn yield_now() {
    let mut yielded = false;
    std::future::poll_fn(|cx| {
        if std::mem::replace(&mut yielded, true) {
            return std::task::Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        std::task::Poll::Pending
    })
    .await;
}
