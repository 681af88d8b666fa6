//! The watchdog: renews holds before their time, and tells the loss when that is not possible.
//!
//! One keeper per client, on its engine thread. It indexes holds by the moment when something is due for them; what
//! it does then is decided by [`HoldState`]'s own facts. It never touches a claim, and never holds its lock while
//! it asks the engine.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tracing::debug;

use crate::clock::{Clock, Moment};
use crate::driver::{Driver, Hold, LostReason, Renewal};
use crate::hold::HoldState;
use crate::observe::{Observe, Renewed};
use crate::pace::{Backoff, grid, renew_after};
use crate::schedule::{Schedule, Ticket};

/// The keeper's notes on one hold.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    /// Its place, from [`Keeper::watch`] to [`Keeper::forget`].
    ticket: Ticket,
    renew_at: AtomicU64,
    in_flight: AtomicBool,
    /// Rung again while a renewal was in flight: ask once more.
    again: AtomicBool,
    backoff: Mutex<Option<Box<Backoff>>>,
}

/// The watchdog of one client.
#[derive(Debug)]
pub(crate) struct Keeper {
    clock: Clock,
    schedule: Schedule<Arc<HoldState>>,
    observe: Arc<Observe>,
    /// Whether an unanswered renewal ends the hold at once (`on_disconnect=stop`).
    stop_on_disconnect: bool,
}

impl Keeper {
    pub(crate) fn new(clock: Clock, observe: Arc<Observe>, stop_on_disconnect: bool) -> Arc<Self> {
        Arc::new(Self {
            clock,
            schedule: Schedule::default(),
            observe,
            stop_on_disconnect,
        })
    }

    /// How many holds are watched.
    pub(crate) fn len(&self) -> usize {
        self.schedule.len()
    }

    /// All holds that are watched.
    pub(crate) fn holds(&self) -> Vec<Arc<HoldState>> {
        self.schedule.values()
    }

    /// Starts to watch a hold that was granted just now.
    pub(crate) fn watch(&self, hold: &Arc<HoldState>, now: Moment) {
        let first = if hold.renews {
            renewal_due(hold, now)
        } else {
            Moment::FAR
        };
        hold.watch.renew_at.store(first.as_nanos(), Ordering::Relaxed);
        self.schedule
            .add(&hold.watch.ticket, next_due(hold), hold.clone());
        if hold.want.bell.belongs_to(hold) {
            self.renew_at(hold, now);
        }
    }

    /// Stops watching.
    pub(crate) fn forget(&self, hold: &HoldState) {
        self.schedule.remove(&hold.watch.ticket);
    }

    /// Asks the engine about this hold now.
    pub(crate) fn poke(&self, hold: &Arc<HoldState>) {
        if hold.watch.in_flight.load(Ordering::Acquire) {
            hold.watch.again.store(true, Ordering::Release);
        }
        self.renew_at(hold, self.clock.now());
    }

    /// Asks the engine about all holds now.
    pub(crate) fn poke_all(&self) {
        for hold in self.holds() {
            self.poke(&hold);
        }
    }

    /// Moves the next renewal; nothing if the hold is no longer watched.
    fn renew_at(&self, hold: &Arc<HoldState>, at: Moment) {
        hold.watch.renew_at.store(at.as_nanos(), Ordering::Relaxed);
        self.schedule.change(&hold.watch.ticket, || next_due(hold));
    }

    /// Runs the watchdog, for ever.
    pub(crate) async fn run(self: Arc<Self>, driver: Arc<dyn Driver>) {
        self.adopt_recorder();
        loop {
            match self.schedule.alarm() {
                None => self.schedule.kicked().await,
                Some(alarm) if alarm > self.clock.now() => tokio::select! {
                    biased;
                    () = self.clock.sleep_until(alarm) => {}
                    () = self.schedule.kicked() => continue,
                },
                Some(_) => {}
            }
            self.round(&driver).await;
        }
    }

    fn adopt_recorder(&self) {
        // With the host's clock this is the engine thread, for which no test or task has set a recorder of its own.
        if matches!(self.clock, Clock::Boot(_)) {
            self.observe.adopt();
        }
    }

    /// Handles everything that is due.
    async fn round(self: &Arc<Self>, driver: &Arc<dyn Driver>) {
        self.adopt_recorder();
        loop {
            let now = self.clock.now();
            let (due, more) = self.schedule.take(now);
            let mut renew = Vec::new();
            for hold in due {
                if self.look(&hold, now) {
                    renew.push(hold);
                }
            }
            if !renew.is_empty() {
                let keeper = self.clone();
                let driver = driver.clone();
                // Not awaited: an engine that hangs must not keep us from telling others of their loss.
                tokio::spawn(async move { keeper.renew(&*driver, renew).await });
            }
            tokio::task::yield_now().await;
            if !more {
                return;
            }
        }
    }

    /// Tells the hold's losses and warnings; says whether it is to be renewed now. Puts it back into the index.
    fn look(&self, hold: &Arc<HoldState>, now: Moment) -> bool {
        if hold.max_hold.is_some_and(|max| now >= max) {
            hold.lose(LostReason::MaxHold);
            return false;
        }
        if now >= hold.valid_until() {
            hold.lose(LostReason::Expired);
            return false;
        }
        hold.warn(now);
        let renew_at = Moment::from_nanos(hold.watch.renew_at.load(Ordering::Relaxed));
        let renew = now >= renew_at && !hold.watch.in_flight.swap(true, Ordering::AcqRel);
        if renew {
            hold.watch.again.store(false, Ordering::Release);
        }
        self.schedule.put_back(&hold.watch.ticket, || next_due(hold));
        renew
    }

    /// One renewal call for these holds.
    async fn renew(&self, driver: &dyn Driver, holds: Vec<Arc<HoldState>>) {
        let asked: Vec<Hold> = holds.iter().map(|hold| hold.hold()).collect();
        let answered: Vec<AtomicBool> = holds.iter().map(|_| AtomicBool::new(false)).collect();
        let answer = |i: usize, renewal: Renewal| {
            if !answered[i].swap(true, Ordering::AcqRel) {
                self.answer(&holds[i], asked[i].ttl, renewal);
            }
        };
        // An engine that hangs is asked again while the lease lasts.
        let limit = asked
            .iter()
            .map(|hold| renew_after(hold.ttl))
            .min()
            .unwrap_or_default();
        self.clock.timeout(limit, driver.renew(&asked, &answer)).await;
        for (hold, answered) in holds.iter().zip(&answered) {
            if !answered.load(Ordering::Acquire) {
                self.unknown(hold);
            }
        }
    }

    fn answer(&self, hold: &Arc<HoldState>, ttl: Duration, renewal: Renewal) {
        let observe = &hold.client.observe;
        match renewal {
            Renewal::Good(until) => {
                observe.renewal(Renewed::Ok);
                hold.renewed(until, ttl);
                if let Some(backoff) = hold
                    .watch
                    .backoff
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .as_mut()
                {
                    backoff.reset();
                }
                let next = if hold.watch.again.swap(false, Ordering::AcqRel) {
                    self.clock.now()
                } else if hold.renews {
                    renewal_due(hold, self.clock.now())
                } else {
                    Moment::FAR
                };
                hold.watch.in_flight.store(false, Ordering::Release);
                self.renew_at(hold, next);
            }
            Renewal::Lost(reason) => {
                observe.renewal(Renewed::Lost);
                hold.watch.in_flight.store(false, Ordering::Release);
                hold.lose(reason);
            }
            Renewal::Unknown(e) => {
                debug!(target: "distlock", key = %hold.want.key, error = %e, "a renewal was not answered");
                self.unknown(hold);
            }
        }
    }

    /// Unknown is not lost: asked again, paced, until the guard's own deadline.
    fn unknown(&self, hold: &Arc<HoldState>) {
        hold.client.observe.renewal(Renewed::Unknown);
        hold.watch.in_flight.store(false, Ordering::Release);
        if self.stop_on_disconnect {
            hold.lose(LostReason::Disconnected);
            return;
        }
        let pause = {
            let mut backoff = hold.watch.backoff.lock().unwrap_or_else(PoisonError::into_inner);
            backoff
                .get_or_insert_with(|| Box::new(Backoff::within(hold.ttl())))
                .pause(self.clock.unit())
        };
        self.renew_at(hold, self.clock.now() + pause);
    }
}

/// A third of the TTL after the last renewal's basis, on a grid so that batches form.
fn renewal_due(hold: &HoldState, now: Moment) -> Moment {
    let ttl = hold.ttl();
    let due = now + renew_after(ttl);
    let step = u64::try_from(grid(ttl).as_nanos()).unwrap_or(u64::MAX).max(1);
    Moment::from_nanos(due.as_nanos() / step * step)
}

/// The moment when something is next due for the hold.
fn next_due(hold: &HoldState) -> Moment {
    let mut due = hold.valid_until();
    if let Some(max) = hold.max_hold {
        due = due.min(max);
    }
    if let Some(warning) = hold.next_warning() {
        due = due.min(warning);
    }
    if !hold.watch.in_flight.load(Ordering::Acquire) {
        due = due.min(Moment::from_nanos(hold.watch.renew_at.load(Ordering::Relaxed)));
    }
    due
}
