//! The handle by which tests order faults.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::history::Event;
use super::plan::{Call, Cut, Fault, Rule, Who};
use super::record::Record;
use super::{Rings, Shard, Store, lock};
use crate::bell::Bell;
use crate::clock::Moment;
use crate::driver::{Kind, Life, Line, Mode, Order, Want};
use crate::key::{Key, Namespace};
use crate::owner::Owners;
use crate::token::FencingToken;

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

    /// Forgets everything, tokens included, as a server does that restarts without its data: like Redis', its next
    /// tokens are above its clock in microseconds. From now on it says how [old](crate::driver::Claim::age) it is.
    pub fn restart_empty(&self) {
        let now = self.store.clock().now();
        for shard in &self.store.shards {
            *lock(shard) = Shard {
                floor: now.as_nanos() / 1000,
                ..Shard::default()
            };
        }
        *lock(&self.store.born) = Some(now);
    }

    /// Vouches for the store: it has forgotten nothing that anybody holds.
    pub fn vouch(&self) {
        *lock(&self.store.born) = None;
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
