//! Locks taken on behalf of others: what a gateway needs, which holds nothing itself.
//!
//! A gateway takes a lock in the name of whoever asked it, lets go of the guard ([`Guard::detach`](crate::Guard::detach))
//! and hands out the [`Lease`]; renewals and the release come as leases again, to this or to another gateway.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use uuid::Uuid;

use crate::client::Client;
use crate::driver::{Hold, Holder, Released, Renewal};
use crate::error::{Error, ErrorKind};
use crate::guard::renew_all;
use crate::lease::Lease;
use crate::lock::Lock;
use crate::pace;
use crate::settings::{check_ttl, saying};

/// What a contender learns each time it looked and found that it has to wait.
#[derive(Debug, Clone)]
pub struct Waiting {
    /// Its place at the engine, as a lease that [`Client::release_lease`] gives up; `None` while it is in line inside
    /// this process.
    pub place: Option<Lease>,
    /// Who is in the way, where known.
    pub holder: Option<Holder>,
    /// How many are ahead in the engine's line, where known.
    pub ahead: Option<u32>,
}

/// Who is told of the wait.
#[derive(Clone)]
pub(crate) struct Listener(Arc<dyn Fn(&Waiting) + Send + Sync>);

impl Listener {
    pub(crate) fn tell(&self, waiting: &Waiting) {
        (self.0)(waiting);
    }
}

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Listener")
    }
}

/// Locks for others.
impl Lock {
    /// Who takes the lock, for people who look, in place of the client's own label. At most 1 KiB of it is kept.
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.settings.label = Some(saying(label.into()));
        self
    }

    /// Takes the lock in the name of another client: its identity is the first part of the owner, the second part is
    /// random, so that several gateways can act for one client without ever sharing an owner.
    pub fn on_behalf_of(mut self, client: Uuid) -> Self {
        self.settings.behalf = Some(client);
        self
    }

    /// Calls `tell` at each look that finds the lock taken, in the task that acquires; it must not block.
    pub fn on_waiting(mut self, tell: impl Fn(&Waiting) + Send + Sync + 'static) -> Self {
        self.settings.listener = Some(Listener(Arc::new(tell)));
        self
    }
}

impl Client {
    /// Renews leases, each for its own TTL from now on, in one batch and without guards. Never acquires.
    ///
    /// The answers are in the order of `leases`: for how long each is held if no renewal follows, margin taken off.
    ///
    /// # Errors
    /// For each by itself: [`ErrorKind::NotHeld`] with the [reason](Error::lost_reason) when it is over;
    /// [`ErrorKind::InvalidConfig`] for a TTL out of the engine's range; [`ErrorKind::Unavailable`] or
    /// [`ErrorKind::OutcomeUnknown`], in which case it is held until its last known end.
    ///
    /// # Cancel safety
    /// Safe: the leases may have been renewed.
    pub async fn renew_leases(&self, leases: &[Lease]) -> Vec<Result<Duration, Error>> {
        let engine = self.0.observe.engine();
        let name = |lease: &Lease, e: Error| e.with_key(lease.key()).with_engine(engine);
        let checked: Vec<_> = leases
            .iter()
            .map(|lease| {
                self.0
                    .check_open()
                    .and_then(|()| check_ttl(lease.ttl(), &self.0.promises))
            })
            .collect();
        let holds: Vec<Hold> = leases
            .iter()
            .zip(&checked)
            .filter(|(_, checked)| checked.is_ok())
            .map(|(lease, _)| lease.hold())
            .collect();
        let client = self.0.clone();
        let asked = async move { renew_all(&*client.driver, &holds).await };
        let mut answers = match self.0.on_runtime(asked).await {
            Ok(answers) => answers.into_iter(),
            Err(_) => Vec::new().into_iter(),
        };
        let now = self.0.now();
        leases
            .iter()
            .zip(checked)
            .map(|(lease, checked)| {
                let ttl = checked.map_err(|e| name(lease, e))?;
                let answer = answers.next().flatten();
                let left = answer_to(answer).map_err(|e| name(lease, e))?;
                let left = left.before(pace::margin(ttl)).since(now);
                if left.is_zero() {
                    let why = "the renewal was answered too late";
                    return Err(name(lease, Error::new(ErrorKind::OutcomeUnknown, why)));
                }
                Ok(left)
            })
            .collect()
    }

    /// Gives a lease back, or a place in line; says whether it was held.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] or [`ErrorKind::OutcomeUnknown`] when the engine did not answer: call again, or the
    /// lease ends when its TTL has run out.
    ///
    /// # Cancel safety
    /// Safe: the lease may have been released; call again.
    pub async fn release_lease(&self, lease: &Lease) -> Result<bool, Error> {
        self.0.check_open()?;
        let name = |e: Error| e.with_key(lease.key()).with_engine(self.0.observe.engine());
        let claim = self.0.driver.claim(lease.hold().want);
        let mut claim = claim.map_err(|e| name(Error::from_driver(e)))?;
        let released = self.0.on_runtime(async move { claim.release(None).await });
        match released.await? {
            Ok(Released::Freed) => Ok(true),
            Ok(Released::NotHeld) => Ok(false),
            Err(e) => Err(name(Error::from_driver(e))),
        }
    }
}

/// Until when a lease is held, or why not.
pub(crate) fn answer_to(answer: Option<Renewal>) -> Result<crate::clock::Moment, Error> {
    match answer {
        Some(Renewal::Good(until)) => Ok(until),
        Some(Renewal::Lost(reason)) => {
            let why = format!("the lease is over: {reason}");
            Err(Error::new(ErrorKind::NotHeld, why).with_reason(reason))
        }
        Some(Renewal::Unknown(e)) => Err(Error::from_driver(e)),
        None => Err(Error::new(ErrorKind::OutcomeUnknown, "the engine did not answer")),
    }
}
