//! A lease of this client, kept alive on the engine thread, and the claims that depend on it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use distlock_core::bell::Bell;
use distlock_core::clock::{Clock, Moment};
use distlock_core::driver::{DriverError, LostReason, Reached};
use tokio::sync::{Notify, watch};

use crate::client::Client;
use crate::heart::{Beat, Heart};
use crate::numbers::Numbers;
use crate::wire::LeaseRevokeRequest;

/// How long a shared lease that nobody uses is kept.
const IDLE: Duration = Duration::from_secs(120);

/// How a lease is, as far as we know.
#[derive(Debug, Clone)]
pub(crate) struct Health {
    /// Before the latest answered keepalive was sent.
    pub(crate) sent: Moment,
    /// `sent` and the TTL that was granted.
    pub(crate) valid_until: Moment,
    /// Why it is over. Final.
    pub(crate) over: Option<LostReason>,
}

/// A lease.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) id: i64,
    pub(crate) ttl: Duration,
    /// The key of its own record; none on a lease of one claim alone. See [`crate::ask`].
    pub(crate) record: Option<String>,
    clock: Clock,
    health: watch::Sender<Health>,
    /// Rung when the lease is over.
    bells: Mutex<HashMap<u64, Bell>>,
    /// Asks the task to beat now: something looks as if the lease were gone.
    doubt: Notify,
    /// Renewed by its holder alone, no longer by the task.
    by_hand: AtomicBool,
    pub(crate) numbers: Numbers,
    /// The version of that record, as far as we know.
    pub(crate) joins: AtomicI64,
}

impl Session {
    /// A lease that was granted for `ttl`, asked for at `sent`.
    pub(crate) fn new(
        id: i64,
        ttl: Duration,
        sent: Moment,
        record: Option<String>,
        clock: Clock,
    ) -> Arc<Self> {
        let health = Health {
            sent,
            valid_until: sent + ttl,
            over: None,
        };
        Arc::new(Self {
            id,
            ttl,
            record,
            clock,
            health: watch::Sender::new(health),
            bells: Mutex::default(),
            doubt: Notify::new(),
            by_hand: AtomicBool::new(false),
            numbers: Numbers::default(),
            joins: AtomicI64::new(0),
        })
    }

    fn bells(&self) -> MutexGuard<'_, HashMap<u64, Bell>> {
        self.bells.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Rings this bell when the lease is over.
    pub(crate) fn register(&self, n: u64, bell: &Bell) {
        self.bells().insert(n, bell.clone());
        if self.over().is_some() {
            bell.ring();
        }
    }

    pub(crate) fn forget(&self, n: u64) {
        self.bells().remove(&n);
    }

    pub(crate) fn valid_until(&self) -> Moment {
        self.health.borrow().valid_until
    }

    /// Why the lease is over, by the server's word or by our own clock.
    pub(crate) fn over(&self) -> Option<LostReason> {
        let health = self.health.borrow();
        if health.over.is_none() && self.clock.now() >= health.valid_until {
            return Some(LostReason::Expired);
        }
        health.over.clone()
    }

    /// The lease is over; whoever depends on it is told.
    pub(crate) fn end(&self, why: LostReason) {
        let first = self.health.send_if_modified(|health| {
            let first = health.over.is_none();
            health.over.get_or_insert(why);
            first
        });
        if first {
            for bell in self.bells().values() {
                bell.ring();
            }
        }
    }

    /// A keepalive that was sent at `sent` was granted `ttl`; says until when the lease is good.
    pub(crate) fn renewed(&self, sent: Moment, ttl: Duration) -> Moment {
        let mut valid_until = sent + ttl;
        self.health.send_modify(|health| {
            if health.over.is_none() {
                health.sent = health.sent.max(sent);
                health.valid_until = health.valid_until.max(sent + ttl);
            }
            valid_until = health.valid_until;
        });
        valid_until
    }

    /// Asks the server now whether the lease lives.
    pub(crate) fn doubt(&self) {
        self.doubt.notify_one();
    }

    /// From now on the holder renews it.
    pub(crate) fn by_hand(&self) {
        self.by_hand.store(true, Ordering::Release);
        self.doubt();
    }

    /// Waits until a keepalive of the last half TTL was answered; says until when the lease is good.
    ///
    /// # Errors
    /// [`Fresh::Over`] when the lease is over, [`Fresh::Unknown`] when nothing was heard within a sixth of the TTL.
    pub(crate) async fn fresh(&self) -> Result<Moment, Fresh> {
        let recent = |health: &Health| health.over.is_some() || self.clock.now() < health.sent + self.ttl / 2;
        let mut health = self.health.subscribe();
        let heard = self.clock.timeout(self.ttl / 6, health.wait_for(recent)).await;
        if let Some(why) = self.over() {
            return Err(Fresh::Over(why));
        }
        match heard {
            Some(Ok(health)) => Ok(health.valid_until),
            _ => Err(Fresh::Unknown(DriverError::unavailable(
                Reached::No,
                "no keepalive of the etcd lease was answered lately",
            ))),
        }
    }
}

/// Why a lease is not known to be good.
#[derive(Debug)]
pub(crate) enum Fresh {
    /// It is over.
    Over(LostReason),
    /// Nobody answered.
    Unknown(DriverError),
}

/// How long to wait for one keepalive's answer.
pub(crate) fn patience(ttl: Duration) -> Duration {
    (ttl / 6).clamp(Duration::from_millis(100), Duration::from_secs(3))
}

/// Keeps a lease alive until it is over, renewed by hand, or unused. `shared`: one more handle, not a user, is kept
/// where the next claim finds it.
pub(crate) async fn keep_alive(session: Arc<Session>, heart: Heart, client: Arc<Client>, shared: bool) {
    let clock = client.clock().clone();
    let ttl = session.ttl;
    let (handles, patience_with_idle) = if shared {
        (2, IDLE.max(ttl * 2))
    } else {
        (1, Duration::ZERO)
    };
    let mut unused_since = None;
    let mut next = session.health.borrow().sent + ttl / 3;
    let why = loop {
        tokio::select! { () = clock.sleep_until(next) => {}, () = session.doubt.notified() => {} }
        if session.by_hand.load(Ordering::Acquire) || session.health.borrow().over.is_some() {
            return;
        }
        if Arc::strong_count(&session) > handles {
            unused_since = None;
        } else if clock.now().since(*unused_since.get_or_insert(clock.now())) >= patience_with_idle {
            break LostReason::SessionEnded;
        }
        let valid_until = session.valid_until();
        let beat = clock
            .deadline(valid_until, heart.beat(session.id, patience(ttl)))
            .await;
        match beat {
            Some(Ok(Beat::Alive { sent, ttl })) if clock.now() < valid_until => {
                session.renewed(sent, ttl);
                next = sent + ttl / 3;
            }
            Some(Ok(Beat::Gone)) => {
                session.end(LostReason::SessionEnded);
                return;
            }
            Some(Err(_)) if clock.now() < valid_until => {
                next = clock.now() + (ttl / 40).clamp(Duration::from_millis(25), Duration::from_secs(1));
            }
            _ => break LostReason::Expired,
        }
    };
    session.end(why);
    // The server may still have it; what is ours there must not stay.
    let _ = client.call(LeaseRevokeRequest { id: session.id }).await;
}
