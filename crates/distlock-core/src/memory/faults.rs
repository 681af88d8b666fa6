//! Faults to order: what goes wrong with the requests to a store, and with its records.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use uuid::Uuid;

use super::history::Event;
use super::record::Record;
use super::{Rings, Store, lock};
use crate::bell::Bell;
use crate::clock::Moment;
use crate::driver::{Kind, Life, Line, Mode, Order, Want};
use crate::key::{Key, Namespace};
use crate::owner::{OwnerId, Owners};
use crate::token::FencingToken;

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

    /// All requests, until [`Faults::clear`].
    pub fn always(self) -> Self {
        self.times(u32::MAX)
    }
}

/// Whose requests do not arrive, and until when.
#[derive(Debug)]
struct Cut {
    who: Who,
    until: Moment,
}

/// The faults that await those who ask for them.
#[derive(Default)]
pub(super) struct Plan {
    /// Whether there is anything to look for; spares the lock when there is not.
    armed: AtomicBool,
    orders: Mutex<Orders>,
}

#[derive(Debug, Default)]
struct Orders {
    rules: Vec<Rule>,
    cuts: Vec<Cut>,
    history: Option<Vec<Event>>,
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

    fn change<T>(&self, f: impl FnOnce(&mut Orders) -> T) -> T {
        let mut orders = lock(&self.orders);
        let out = f(&mut orders);
        let armed = !orders.rules.is_empty() || !orders.cuts.is_empty() || orders.history.is_some();
        self.armed.store(armed, Ordering::Release);
        out
    }
}

/// Orders faults on a [`Memory`](super::Memory).
///
/// Faults on *requests* ([`queue`](Faults::queue), [`add`](Faults::add)) wait for the next matching request; when
/// several match, the one that was added first strikes. Faults on *records* happen at once.
///
/// ```
/// use std::time::Duration;
/// use distlock_core::memory::{Call, Fault, Memory, Rule};
///
/// let memory = Memory::new();
/// let faults = memory.faults();
/// faults.queue(Call::Release, Fault::LostReply);
/// // The second and third renewals arrive five seconds late.
/// faults.add(Rule::new(Call::Renew, Fault::Late(Duration::from_secs(5))).skip(1).times(2));
/// assert_eq!(faults.pending(), 2);
/// faults.clear();
/// ```
#[derive(Clone)]
pub struct Faults {
    store: Arc<Store>,
    namespace: Namespace,
}

impl fmt::Debug for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Faults")
            .field("namespace", &self.namespace)
            .field("orders", &*lock(&self.store.plan.orders))
            .finish()
    }
}

impl Faults {
    pub(super) fn new(store: Arc<Store>) -> Self {
        Self {
            store,
            namespace: Namespace::default(),
        }
    }

    /// The same store, with keys of this namespace. Faults on requests strike in every namespace.
    pub fn in_namespace(&self, namespace: Namespace) -> Self {
        Self {
            store: self.store.clone(),
            namespace,
        }
    }

    /// Strikes the next request of this kind that no earlier fault strikes.
    pub fn queue(&self, call: Call, fault: Fault) {
        self.add(Rule::new(call, fault));
    }

    /// Strikes the requests that the rule names.
    pub fn add(&self, rule: Rule) {
        self.store.plan.change(|orders| orders.rules.push(rule));
    }

    /// How many rules have not yet struck as often as they should.
    pub fn pending(&self) -> usize {
        lock(&self.store.plan.orders).rules.len()
    }

    /// Withdraws all rules and heals all partitions. The history goes on.
    pub fn clear(&self) {
        self.store.plan.change(|orders| {
            orders.rules.clear();
            orders.cuts.clear();
        });
    }

    /// Cuts a client (or one contender) off: all its requests fail unsent until it is [healed](Faults::heal).
    /// Requests that are already on their way arrive.
    pub fn partition(&self, who: impl Into<Who>) {
        let who = who.into();
        self.cut(who, Moment::FAR);
    }

    /// Cuts a client (or one contender) off for this long.
    pub fn partition_for(&self, who: impl Into<Who>, time: Duration) {
        self.cut(who.into(), self.store.clock().now() + time);
    }

    fn cut(&self, who: Who, until: Moment) {
        self.store
            .plan
            .change(|orders| orders.cuts.push(Cut { who, until }));
    }

    /// Ends the partitions that were ordered for exactly this client or contender.
    pub fn heal(&self, who: impl Into<Who>) {
        let who = who.into();
        self.store
            .plan
            .change(|orders| orders.cuts.retain(|cut| cut.who != who));
    }

    /// Ends the leases of all holders of a key now; says how many there were.
    pub fn expire(&self, key: &Key) -> usize {
        self.on_record(key, |record, rings| record.drop_holders(rings))
    }

    /// Deletes a key's record: its holders and those who wait. The next token is still larger than all before.
    /// Says how many places were lost.
    pub fn delete(&self, key: &Key) -> usize {
        self.on_record(key, |record, rings| record.clear(rings))
    }

    fn on_record(&self, key: &Key, f: impl FnOnce(&mut Record, &mut Rings) -> usize) -> usize {
        self.store
            .with_existing(&self.store.name(&self.namespace, key), f)
            .unwrap_or(0)
    }

    /// Puts a stranger in the place of the holders, for this long, whether or not the key was held. Says the
    /// stranger's token, if its hold has one.
    pub fn steal(&self, key: &Key, ttl: Duration) -> Option<FencingToken> {
        let now = self.store.clock().now();
        self.store
            .with(&self.store.name(&self.namespace, key), now, |record, rings| {
                let mode = match record.kind() {
                    None | Some(Kind::Mutex) => Mode::Mutex,
                    Some(Kind::ReadWrite) => Mode::Write,
                    Some(Kind::Semaphore { of }) => Mode::Slot { of },
                };
                let thief = Want {
                    key: key.clone(),
                    owner: Owners::new().next(),
                    mode,
                    order: Order::Any,
                    line: Line::Never,
                    life: Life::Lease,
                    ttl,
                    label: Some("a thief".into()),
                    reason: None,
                    bell: Bell::new(),
                };
                record.steal(&Arc::new(thief), now, rings).token
            })
    }

    /// Starts to record all requests.
    pub fn record(&self) {
        self.store
            .plan
            .change(|orders| _ = orders.history.get_or_insert_default());
    }

    /// The requests since [`record`](Faults::record), in the order in which each record saw them.
    pub fn history(&self) -> Vec<Event> {
        lock(&self.store.plan.orders).history.clone().unwrap_or_default()
    }
}
