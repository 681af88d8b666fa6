//! One hold: what the guard, its views and the keeper share.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::client::ClientInner;
use crate::clock::Moment;
use crate::driver::{Claim, Grant, Hold, Holder, LostReason, Want};
use crate::error::Error;
use crate::pace;
use crate::queue::Permit;
use crate::settings::Settings;
use crate::token::FencingToken;

/// A granted lock. The guards own it; the keeper watches it until it is lost or released.
pub(crate) struct HoldState {
    pub(crate) client: Arc<ClientInner>,
    pub(crate) want: Arc<Want>,
    pub(crate) token: Option<FencingToken>,
    pub(crate) since: Moment,
    mark: u64,
    /// Whether an attempt of this claim was never answered: its release is followed by a chase.
    pub(crate) unresolved: bool,
    /// Whether the watchdog renews it.
    pub(crate) renews: bool,
    pub(crate) max_hold: Option<Moment>,
    min_hold: AtomicU64,
    expect: Duration,
    ttl: AtomicU64,
    /// The end of the lease, margin taken off. It only grows, and only while the hold is not lost.
    valid_until: AtomicU64,
    lost: AtomicBool,
    /// Commits under this lock of which nobody knows whether they happened.
    undecided: AtomicU32,
    /// How many warnings about `expect` were given.
    warned: AtomicU8,
    custody: Mutex<Custody>,
    pub(crate) watch: crate::keeper::Watch,
}

/// A claim that was granted, with what came along.
pub(crate) struct Held {
    pub(crate) claim: Box<dyn Claim>,
    pub(crate) permit: Option<Permit>,
    pub(crate) unresolved: bool,
}

/// What changes hands when the hold ends.
struct Custody {
    claim: Option<Box<dyn Claim>>,
    permit: Option<Permit>,
    /// Guards of this hold: one, and one more for each explicit re-entry.
    guards: u32,
    cancel: Option<CancellationToken>,
    lost: Option<LostReason>,
    /// Whoever follows `valid_until` (the command's guardian).
    deadline: Option<tokio::sync::watch::Sender<Moment>>,
}

impl fmt::Debug for HoldState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hold")
            .field("key", &self.want.key)
            .field("mode", &self.want.mode)
            .field("token", &self.token)
            .field("held", &self.is_held())
            .finish_non_exhaustive()
    }
}

impl HoldState {
    pub(crate) fn new(
        client: Arc<ClientInner>,
        want: Arc<Want>,
        held: Held,
        grant: Grant,
        since: Moment,
        settings: &Settings,
    ) -> Arc<Self> {
        let ttl = want.ttl;
        let valid_until = grant.valid_until.before(pace::margin(ttl));
        let hold = Arc::new(Self {
            renews: settings.renews(),
            max_hold: settings.max_hold.map(|d| since + d),
            min_hold: AtomicU64::new(settings.min_hold.as_nanos() as u64),
            expect: settings.expect.unwrap_or(ttl),
            ttl: AtomicU64::new(ttl.as_nanos() as u64),
            valid_until: AtomicU64::new(valid_until.as_nanos()),
            lost: AtomicBool::new(false),
            undecided: AtomicU32::new(0),
            warned: AtomicU8::new(0),
            custody: Mutex::new(Custody {
                claim: Some(held.claim),
                permit: None,
                guards: 1,
                cancel: None,
                lost: None,
                deadline: None,
            }),
            watch: crate::keeper::Watch::default(),
            unresolved: held.unresolved,
            token: grant.token,
            mark: grant.mark,
            client,
            want,
            since,
        });
        if let Some(mut permit) = held.permit {
            permit.holds(&hold);
            hold.lock().permit = Some(permit);
        }
        hold
    }

    fn lock(&self) -> MutexGuard<'_, Custody> {
        self.custody.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn ttl(&self) -> Duration {
        Duration::from_nanos(self.ttl.load(Ordering::Relaxed))
    }

    pub(crate) fn valid_until(&self) -> Moment {
        Moment::from_nanos(self.valid_until.load(Ordering::Acquire))
    }

    /// The truth by our own clock: also when the keeper has not come round yet.
    pub(crate) fn is_held(&self) -> bool {
        !self.lost.load(Ordering::Acquire) && self.client.now() < self.end()
    }

    /// When the hold ends if nothing renews it.
    fn end(&self) -> Moment {
        let valid = self.valid_until();
        self.max_hold.map_or(valid, |max| valid.min(max))
    }

    pub(crate) fn valid_for(&self) -> Duration {
        if self.lost.load(Ordering::Acquire) {
            Duration::ZERO
        } else {
            self.end().since(self.client.now())
        }
    }

    /// Why the hold is over, if it is.
    pub(crate) fn lost(&self) -> Option<LostReason> {
        self.lost_at(self.client.now())
    }

    /// As [`lost`](Self::lost), for those who have just looked at the clock.
    pub(crate) fn lost_at(&self, now: Moment) -> Option<LostReason> {
        if !self.is_lost() && now < self.end() {
            return None;
        }
        if let Some(reason) = self.lock().lost.clone() {
            return Some(reason);
        }
        let by_max = self.max_hold.is_some_and(|max| now >= max);
        Some(if by_max {
            LostReason::MaxHold
        } else {
            LostReason::Expired
        })
    }

    /// Whether it was not released yet.
    pub(crate) fn is_claimed(&self) -> bool {
        self.lock().claim.is_some()
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Acquire)
    }

    /// Rung by the engine: it is asked at once.
    pub(crate) fn rung(self: &Arc<Self>) {
        self.client.keeper.poke(self);
    }

    /// Ends the hold: tells everybody, frees the local queue. The record stays for the guard to release.
    pub(crate) fn lose(&self, reason: LostReason) {
        {
            let mut c = self.lock();
            if c.claim.is_none() || c.lost.is_some() {
                return;
            }
            c.lost = Some(reason.clone());
            self.lost.store(true, Ordering::Release);
            let (cancel, permit) = (c.cancel.clone(), c.permit.take());
            c.deadline = None;
            drop(c);
            drop(permit);
            if let Some(cancel) = cancel {
                cancel.cancel();
            }
        }
        self.client.keeper.forget(self);
        self.client.observe.lost(&self.want.key, &reason);
        self.ended(self.client.now());
    }

    fn ended(&self, now: Moment) {
        let held = now.since(self.since);
        self.client
            .observe
            .ended(&self.want.key, held, self.ttl(), self.renews);
    }

    /// Takes a confirmed renewal, unless the hold is already over by what its guard may have been told.
    pub(crate) fn renewed(&self, good_until: Moment, ttl: Duration) {
        let end = good_until.before(pace::margin(ttl));
        let c = self.lock();
        if c.lost.is_some() || self.client.now() >= self.valid_until() {
            return;
        }
        self.valid_until.fetch_max(end.as_nanos(), Ordering::AcqRel);
        if let Some(deadline) = &c.deadline {
            deadline.send_replace(self.valid_until());
        }
    }

    pub(crate) fn set_ttl(&self, ttl: Duration) {
        self.ttl.store(ttl.as_nanos() as u64, Ordering::Relaxed);
    }

    /// A token that is cancelled at the loss, never at a release.
    pub(crate) fn cancel_token(&self) -> CancellationToken {
        let over = self.lost().is_some();
        let mut c = self.lock();
        let token = c.cancel.get_or_insert_with(CancellationToken::new).clone();
        if over || c.lost.is_some() {
            token.cancel();
        }
        token
    }

    /// The moments until which the hold is known to be valid, from now on; closed at loss or release.
    pub(crate) fn deadlines(&self) -> tokio::sync::watch::Receiver<Moment> {
        let mut c = self.lock();
        if c.lost.is_some() || c.claim.is_none() {
            return tokio::sync::watch::channel(self.valid_until()).1;
        }
        let sender = c
            .deadline
            .get_or_insert_with(|| tokio::sync::watch::channel(self.valid_until()).0);
        sender.subscribe()
    }

    /// The hold as drivers see it.
    pub(crate) fn hold(&self) -> Hold {
        Hold {
            want: self.want.clone(),
            mark: self.mark,
            ttl: self.ttl(),
            floor: None,
        }
    }

    /// Names the lock and the engine in an error.
    pub(crate) fn name(&self, e: Error) -> Error {
        e.with_key(&self.want.key)
            .with_engine(self.client.observe.engine())
    }

    /// A commit under this lock begins; until [`decided`](Self::decided) nothing may release the lock.
    pub(crate) fn undecided(&self) {
        self.undecided.fetch_add(1, Ordering::AcqRel);
    }

    /// It is known what became of a commit.
    pub(crate) fn decided(&self) {
        self.undecided.fetch_sub(1, Ordering::AcqRel);
    }

    /// The moment before which the lock may not be released, because of a commit that may still arrive.
    pub(crate) fn kept_until(&self) -> Option<Moment> {
        let undecided = self.undecided.load(Ordering::Acquire) > 0;
        undecided.then(|| self.valid_until() + pace::margin(self.ttl()))
    }

    /// How much of `min_hold` is left: the record shall stay that long.
    pub(crate) fn keep(&self, now: Moment) -> Option<Duration> {
        let held = now.since(self.since);
        let min_hold = Duration::from_nanos(self.min_hold.load(Ordering::Relaxed));
        min_hold.checked_sub(held).filter(|left| !left.is_zero())
    }

    /// Raises `min_hold`.
    pub(crate) fn keep_for(&self, min_hold: Duration) {
        self.min_hold
            .fetch_max(min_hold.as_nanos() as u64, Ordering::Relaxed);
    }

    /// One more guard of this hold, for a re-entry by owner.
    pub(crate) fn add_guard(&self) -> bool {
        let mut c = self.lock();
        let alive = c.claim.is_some();
        if alive {
            c.guards += 1;
        }
        alive
    }

    /// One guard goes. The last one gets what there is to release.
    pub(crate) fn take(&self, now: Moment) -> Option<(Box<dyn Claim>, Option<Permit>)> {
        let (claim, permit) = {
            let mut c = self.lock();
            c.guards = c.guards.saturating_sub(1);
            if c.guards > 0 {
                return None;
            }
            c.deadline = None;
            (c.claim.take()?, c.permit.take())
        };
        self.client.keeper.forget(self);
        if !self.is_lost() {
            self.ended(now);
        }
        Some((claim, permit))
    }

    /// The hold as other waiters of this process are told of it.
    pub(crate) fn holder(&self) -> Holder {
        let mut h = Holder::new(self.want.owner.to_string(), self.want.mode);
        h.token = self.token;
        h.label = self.want.label.as_deref().map(str::to_owned);
        h.reason = self.want.reason.as_deref().map(str::to_owned);
        h.pid = Some(std::process::id());
        h.since = SystemTime::now().checked_sub(self.client.now().since(self.since));
        h.expires_in = Some(self.valid_for());
        h.here = true;
        h
    }

    /// When the next warning about the expected time of the work is due.
    pub(crate) fn next_warning(&self) -> Option<Moment> {
        match self.warned.load(Ordering::Relaxed) {
            0 => Some(self.since + self.expect.mul_f64(0.8)),
            1 => Some(self.since + self.expect),
            _ => None,
        }
    }

    /// Gives the warnings that are due.
    pub(crate) fn warn(&self, now: Moment) {
        while self.next_warning().is_some_and(|due| now >= due) {
            let percent = ["80", "100"][usize::from(self.warned.fetch_add(1, Ordering::Relaxed)).min(1)];
            self.client.observe.overdue(percent);
            let (key, expect) = (&self.want.key, self.expect);
            warn!(target: "distlock", %key, engine = self.client.observe.engine(), ?expect,
                "the lock has been held for {percent} % of the expected time");
        }
    }
}
