//! Which faults await which requests.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use uuid::Uuid;

use super::history::Event;
use super::lock;
use crate::clock::Moment;
use crate::owner::{OwnerId, Owners};

/// The requests that faults can strike.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Call {
    /// [`Claim::try_acquire`](crate::driver::Claim::try_acquire).
    Try,
    /// One hold of a [`Driver::renew`](crate::driver::Driver::renew).
    Renew,
    /// [`Claim::release`](crate::driver::Claim::release).
    Release,
}

/// What goes wrong with one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// Not applied; the caller is told so (`Unavailable`, [`Reached::No`](crate::driver::Reached::No)).
    NotSent,
    /// Applied; the caller is told that nobody knows (`Unavailable`,
    /// [`Reached::Maybe`](crate::driver::Reached::Maybe)).
    LostReply,
    /// Applied and answered after this time, unless the caller goes away before.
    Slow(Duration),
    /// Applied at once, answered after this time.
    SlowReply(Duration),
    /// Applied after this time although the caller may have gone away, or released, in between; answered if it
    /// still waits.
    Late(Duration),
    /// The caller is told at once that nobody knows; applied after this time.
    LateLost(Duration),
    /// Never applied, never answered.
    Silent,
    /// Applied, never answered.
    SilentApplied,
}

/// Whom a fault strikes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Who {
    /// Every client.
    Everyone,
    /// One client ([`Owners::client`]).
    Client(Uuid),
    /// One contender.
    Owner(OwnerId),
}

impl Who {
    fn includes(self, owner: OwnerId) -> bool {
        match self {
            Self::Everyone => true,
            Self::Client(client) => owner.client == client,
            Self::Owner(one) => owner == one,
        }
    }
}

impl From<Uuid> for Who {
    fn from(client: Uuid) -> Self {
        Self::Client(client)
    }
}

impl From<&Owners> for Who {
    fn from(owners: &Owners) -> Self {
        Self::Client(owners.client())
    }
}

impl From<OwnerId> for Who {
    fn from(owner: OwnerId) -> Self {
        Self::Owner(owner)
    }
}

/// Which requests a fault strikes: by default the next one of its kind, whoever sends it.
#[derive(Debug, Clone)]
#[must_use = "a rule does nothing until it is added with `Faults::add`"]
pub struct Rule {
    call: Call,
    fault: Fault,
    who: Who,
    skip: u32,
    times: u32,
}

impl Rule {
    /// Strikes the next request of this kind.
    pub fn new(call: Call, fault: Fault) -> Self {
        Self {
            call,
            fault,
            who: Who::Everyone,
            skip: 0,
            times: 1,
        }
    }

    /// Only requests of this client or contender.
    pub fn of(mut self, who: impl Into<Who>) -> Self {
        self.who = who.into();
        self
    }

    /// Only after that many requests that it would have struck.
    pub fn skip(mut self, requests: u32) -> Self {
        self.skip = requests;
        self
    }

    /// That many requests instead of one.
    pub fn times(mut self, requests: u32) -> Self {
        self.times = requests;
        self
    }

    /// All requests, until [`Faults::clear`](super::Faults::clear).
    pub fn always(self) -> Self {
        self.times(u32::MAX)
    }
}

/// Whose requests do not arrive, and until when.
#[derive(Debug)]
pub(super) struct Cut {
    pub(super) who: Who,
    pub(super) until: Moment,
}

/// The faults that await those who ask for them.
#[derive(Default)]
pub(super) struct Plan {
    /// Whether there is anything to look for; spares the lock when there is not.
    armed: AtomicBool,
    pub(super) orders: Mutex<Orders>,
}

#[derive(Debug, Default)]
pub(super) struct Orders {
    pub(super) rules: Vec<Rule>,
    pub(super) cuts: Vec<Cut>,
    pub(super) history: Option<Vec<Event>>,
}

impl Plan {
    pub(super) fn is_armed(&self) -> bool {
        self.armed.load(Ordering::Acquire)
    }

    /// The fault that strikes this request.
    pub(super) fn next(&self, call: Call, owner: OwnerId, now: Moment) -> Option<Fault> {
        self.change(|orders| {
            orders.cuts.retain(|cut| cut.until > now);
            if orders.cuts.iter().any(|cut| cut.who.includes(owner)) {
                return Some(Fault::NotSent);
            }
            for at in 0..orders.rules.len() {
                let rule = &mut orders.rules[at];
                if rule.call != call || !rule.who.includes(owner) {
                    continue;
                }
                if rule.skip > 0 {
                    rule.skip -= 1;
                    continue;
                }
                let fault = rule.fault;
                match rule.times {
                    u32::MAX => {}
                    0 | 1 => drop(orders.rules.remove(at)),
                    _ => rule.times -= 1,
                }
                return Some(fault);
            }
            None
        })
    }

    /// Whether requests of this client that concern no contender are lost.
    pub(super) fn is_cut_off(&self, client: Uuid, now: Moment) -> bool {
        self.is_armed()
            && lock(&self.orders).cuts.iter().any(|cut| {
                cut.until > now && matches!(cut.who, Who::Everyone | Who::Client(_)) && {
                    cut.who.includes(OwnerId { client, n: 0 })
                }
            })
    }

    /// Adds to the history, if it is being recorded.
    pub(super) fn note(&self, event: impl FnOnce() -> Event) {
        if self.is_armed()
            && let Some(history) = &mut lock(&self.orders).history
        {
            history.push(event());
        }
    }

    pub(super) fn change<T>(&self, f: impl FnOnce(&mut Orders) -> T) -> T {
        let mut orders = lock(&self.orders);
        let out = f(&mut orders);
        let armed = !orders.rules.is_empty() || !orders.cuts.is_empty() || orders.history.is_some();
        self.armed.store(armed, Ordering::Release);
        out
    }
}
