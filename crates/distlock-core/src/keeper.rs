//! The watchdog: renews holds before their time, and tells the loss when that is not possible.
//!
//! One keeper per client, on its engine thread. It indexes holds by the moment when something is due for them; what
//! it does then is decided by [`HoldState`]'s own facts. It never touches a claim, and never holds its lock while
//! it asks the engine.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tracing::debug;

use crate::clock::{Clock, Moment};
use crate::driver::{Driver, Hold, LostReason, Renewal};
use crate::hold::HoldState;
use crate::observe::Renewed;
use crate::pace::{Backoff, grid, renew_after};

/// How many holds one renewal call carries, and after how many the keeper lets others run.
const BATCH: usize = 256;

/// The keeper's notes on one hold.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    /// From [`Keeper::watch`] to [`Keeper::forget`]; the hold may be out of the index for a moment meanwhile.
    live: AtomicBool,
    id: AtomicU64,
    /// The key under which the hold stands in the index; 0 if it does not.
    due: AtomicU64,
    renew_at: AtomicU64,
    in_flight: AtomicBool,
    /// Rung again while a renewal was in flight: ask once more.
    again: AtomicBool,
    backoff: Mutex<Option<Backoff>>,
}

/// The watchdog of one client.
#[derive(Debug)]
pub(crate) struct Keeper {
    clock: Clock,
    index: Mutex<Index>,
    kick: Notify,
    /// Whether an unanswered renewal ends the hold at once (`on_disconnect=stop`).
    stop_on_disconnect: bool,
}

#[derive(Debug, Default)]
struct Index {
    by_due: BTreeMap<(Moment, u64), Arc<HoldState>>,
    next_id: u64,
    /// When the keeper will wake. Never put off before it has passed: short holds that come and go would
    /// otherwise wake the thread each time.
    alarm: Option<Moment>,
}

impl Keeper {
    pub(crate) fn new(clock: Clock, stop_on_disconnect: bool) -> Arc<Self> {
        Arc::new(Self {
            clock,
            index: Mutex::default(),
            kick: Notify::new(),
            stop_on_disconnect,
        })
    }

    fn lock(&self) -> MutexGuard<'_, Index> {
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many holds are watched.
    pub(crate) fn len(&self) -> usize {
        self.lock().by_due.len()
    }

    /// All holds that are watched.
    pub(crate) fn holds(&self) -> Vec<Arc<HoldState>> {
        self.lock().by_due.values().cloned().collect()
    }

    /// Starts to watch a hold.
    pub(crate) fn watch(&self, hold: &Arc<HoldState>) {
        let first = if hold.renews {
            self.renewal_due(hold)
        } else {
            Moment::FAR
        };
        hold.watch.renew_at.store(first.as_nanos(), Ordering::Relaxed);
        let mut index = self.lock();
        index.next_id += 1;
        hold.watch.id.store(index.next_id, Ordering::Relaxed);
        hold.watch.live.store(true, Ordering::Relaxed);
        self.schedule(&mut index, hold);
        drop(index);
        if hold.arm() {
            self.renew_at(hold, self.clock.now());
        }
    }

    /// Stops watching. The bell goes quiet for the keeper.
    pub(crate) fn forget(&self, hold: &HoldState) {
        let mut index = self.lock();
        hold.watch.live.store(false, Ordering::Relaxed);
        let due = hold.watch.due.swap(0, Ordering::Relaxed);
        index
            .by_due
            .remove(&(Moment::from_nanos(due), hold.watch.id.load(Ordering::Relaxed)));
        drop(index);
        hold.want.bell.listen(std::task::Waker::noop());
    }

    /// Asks the engine about this hold now.
    pub(crate) fn poke(&self, hold: &Arc<HoldState>) {
        // Armed first: a ring after this pokes again, one before it is answered by the renewal that follows.
        hold.arm();
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
        let mut index = self.lock();
        let due = hold.watch.due.load(Ordering::Relaxed);
        if due != 0
            && index
                .by_due
                .remove(&(Moment::from_nanos(due), hold.watch.id.load(Ordering::Relaxed)))
                .is_some()
        {
            self.schedule(&mut index, hold);
        }
    }

    /// Puts the hold into the index at the moment when something is next due for it.
    fn schedule(&self, index: &mut Index, hold: &Arc<HoldState>) {
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
        // Zero means "not in the index".
        let due = due.max(Moment::from_nanos(1));
        hold.watch.due.store(due.as_nanos(), Ordering::Relaxed);
        index
            .by_due
            .insert((due, hold.watch.id.load(Ordering::Relaxed)), hold.clone());
        if index.alarm.is_none_or(|alarm| due < alarm) {
            index.alarm = Some(due);
            self.kick.notify_one();
        }
    }

    /// A third of the TTL after the last renewal's basis, on a grid so that batches form.
    fn renewal_due(&self, hold: &HoldState) -> Moment {
        let ttl = hold.ttl();
        let due = self.clock.now() + renew_after(ttl);
        let step = u64::try_from(grid(ttl).as_nanos()).unwrap_or(u64::MAX).max(1);
        Moment::from_nanos(due.as_nanos() / step * step)
    }

    /// Runs the watchdog, for ever.
    pub(crate) async fn run(self: Arc<Self>, driver: Arc<dyn Driver>) {
        loop {
            let kicked = self.kick.notified();
            let alarm = self.lock().alarm;
            match alarm {
                None => kicked.await,
                Some(alarm) if alarm > self.clock.now() => {
                    tokio::select! { biased; () = self.clock.sleep_until(alarm) => {}, () = kicked => continue }
                }
                Some(_) => {}
            }
            self.round(&driver).await;
        }
    }

    /// Handles everything that is due.
    async fn round(self: &Arc<Self>, driver: &Arc<dyn Driver>) {
        loop {
            let now = self.clock.now();
            let due = self.take_due(now);
            if due.is_empty() {
                return;
            }
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
        }
    }

    /// Takes up to a batch of what is due out of the index, and sets the alarm for the rest.
    fn take_due(&self, now: Moment) -> Vec<Arc<HoldState>> {
        let mut index = self.lock();
        let mut due = Vec::new();
        while due.len() < BATCH
            && let Some(first) = index.by_due.first_entry()
            && first.key().0 <= now
        {
            let hold = first.remove();
            hold.watch.due.store(0, Ordering::Relaxed);
            due.push(hold);
        }
        index.alarm = index.by_due.keys().next().map(|(due, _)| *due);
        due
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
        let mut index = self.lock();
        if hold.watch.live.load(Ordering::Relaxed) {
            self.schedule(&mut index, hold);
        }
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
                    self.renewal_due(hold)
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
                .get_or_insert_with(|| Backoff::within(hold.ttl()))
                .pause(self.clock.unit())
        };
        self.renew_at(hold, self.clock.now() + pause);
    }
}
