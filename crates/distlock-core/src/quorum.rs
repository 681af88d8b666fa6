//! A lock on a majority of independent stores: the Redlock rule over any [drivers](crate::driver).
//!
//! An attempt asks all nodes at once. It is granted when a majority said yes and, after a second phase, some of the
//! lease is left: `ttl − elapsed − drift`, where the drift is 1 % of the TTL and 2 ms. A refused attempt leaves every
//! node where something of it may be, those that did not answer in time included, before it says that it waits; the
//! next one is made after a random time, since two contenders may have split the votes. A renewal needs a majority.
//! The algorithm is Redlock (S. Sanfilippo, "Distributed locks with Redis"); two things are added.
//!
//! **The token.** Each node mints its own, so the largest over the grant is taken, and the second phase raises the
//! stored token to it on a majority, owner-checked, before the grant is given; where a majority stored the same, which
//! a proposed token makes usual, there is nothing to raise. The majority of any later grant shares
//! a node with that one, so its token is larger: as long as the nodes keep what they stored.
//!
//! **Restarted nodes.** A node that came back without its data has forgotten the holds it was asked to keep, and
//! could give a second majority. A node whose store is younger than the longest lease has no vote until it is that
//! old ([`Claim::age`]). When a majority is that young, a new deployment and a mass loss look alike: grants go on
//! with a warning, unless the [guard is strict](RestartGuard::Strict).
//!
//! What is left is what M. Kleppmann showed ("How to do distributed locking", 2016): a holder that is paused past its
//! lease does not know it, and a node whose clock jumps forgets early. The fencing token is what protects the data
//! then; the model in this crate's tests finds those counter-examples, and finds none at a store that checks tokens.

mod claim;
mod inspect;
mod newborn;
mod proposal;
mod renew;
mod round;
mod vote;

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::{BoxFuture, join_all};
use tokio::sync::Notify;

use self::claim::QuorumClaim;
use self::newborn::Newborns;
use self::proposal::Proposals;
use crate::clock::Clock;
#[cfg(doc)]
use crate::driver::Claim;
use crate::driver::{
    Claim as ClaimOf, Driver, DriverError, Hold, Inspect, Mode, Order, Orders, Promises, Refusal, Renewal,
    TokenPromise, Wakes, Want,
};
use crate::engine::Engine;
use crate::owner::OwnerId;

/// One of the independent stores.
#[derive(Debug, Clone)]
pub struct Node {
    /// Its name in votes and errors: an address, without secrets.
    pub name: String,
    /// Its driver, made with the same [`Engine`] as the others. Its grants must need no [mark](crate::driver::Grant).
    pub driver: Arc<dyn Driver>,
}

/// The rules of a quorum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    /// How long one node may take to answer; the others do not wait for it.
    pub node_timeout: Duration,
    /// The longest lease. A node that restarted empty has no vote for that long.
    pub max_ttl: Duration,
    /// What to do when a majority restarted empty.
    pub restart_guard: RestartGuard,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            node_timeout: Duration::from_millis(50),
            max_ttl: Duration::from_secs(60),
            restart_guard: RestartGuard::Warn,
        }
    }
}

/// What to do when a majority of the nodes is younger than the longest lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RestartGuard {
    /// Take it for a new deployment: grant, with a warning in the log.
    #[default]
    Warn,
    /// Wait until a majority is old enough, or somebody vouched for the deployment.
    Strict,
}

/// The fewest nodes of which a majority survives the loss of one.
const FEWEST: usize = 3;

/// A driver whose locks are held on a majority of these nodes.
///
/// It has mutexes, and read/write locks where all nodes have them. It has no order of waiters
/// ([`Order::Fifo`] is unsupported) and no semaphores: what a majority of counters allows is not their number.
///
/// # Errors
/// [`Refusal::InvalidConfig`] for fewer than three nodes, or rules out of range.
pub fn over(
    engine: Engine,
    name: &'static str,
    nodes: Vec<Node>,
    rules: Rules,
) -> Result<Arc<dyn Driver>, DriverError> {
    let invalid = |why| Err(DriverError::refused(Refusal::InvalidConfig(why)));
    if nodes.len() < FEWEST {
        return invalid(format!(
            "a quorum of {} nodes: at least {FEWEST} are needed",
            nodes.len()
        ));
    }
    let promises = promises(name, &nodes, &rules);
    if promises.ttl.is_empty() {
        let (floor, most) = promises.ttl.into_inner();
        return invalid(format!(
            "max_ttl {most:?} is shorter than the nodes' shortest ttl, {floor:?}"
        ));
    }
    if rules.node_timeout.is_zero() || rules.node_timeout > rules.max_ttl {
        return invalid(format!(
            "node_timeout {:?}: it must be between 1ms and max_ttl ({:?})",
            rules.node_timeout, rules.max_ttl
        ));
    }
    Ok(Arc::new(Quorum(Arc::new(Shared {
        newborns: Newborns::new(nodes.len()),
        nodes,
        rules,
        promises,
        engine,
        closed: AtomicBool::new(false),
        proposals: Proposals::default(),
        leaving: Leaving::default(),
        marks: Mutex::default(),
    }))))
}

fn promises(name: &'static str, nodes: &[Node], rules: &Rules) -> Promises {
    let all: Vec<Promises> = nodes.iter().map(|n| n.driver.promises()).collect();
    let floor = all.iter().map(|p| *p.ttl.start()).max().unwrap_or_default();
    let most = all.iter().map(|p| *p.ttl.end()).min().unwrap_or_default();
    let mut promises = Promises::new(name);
    promises.order = Orders::Any;
    promises.shared = all.iter().all(|p| p.shared);
    promises.token = match all.iter().any(|p| p.token == TokenPromise::None) {
        true => TokenPromise::None,
        false => TokenPromise::BestEffort {
            unless: "a majority of the nodes loses its data, or nodes that lost theirs also have clocks that are behind",
        },
    };
    promises.ttl = floor..=most.min(rules.max_ttl);
    promises.wakes = Wakes::Paced;
    promises.lease_records = all.iter().all(|p| p.lease_records);
    promises.keep = all.iter().all(|p| p.keep);
    promises
}

/// The driver.
#[derive(Debug)]
struct Quorum(Arc<Shared>);

/// What claims, renewals and inspection share.
struct Shared {
    nodes: Vec<Node>,
    rules: Rules,
    promises: Promises,
    engine: Engine,
    closed: AtomicBool,
    newborns: Newborns,
    proposals: Proposals,
    leaving: Leaving,
    /// Under which owner a lease that changes hands is stored; see [`round`].
    marks: Mutex<HashMap<OwnerId, u64>>,
}

/// Counts the nodes that have not answered that we left them.
#[derive(Debug, Default)]
struct Leaving {
    count: AtomicUsize,
    done: Notify,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Quorum")
            .field("nodes", &self.nodes.iter().map(|n| &n.name).collect::<Vec<_>>())
            .field("rules", &self.rules)
            .finish_non_exhaustive()
    }
}

impl Shared {
    fn clock(&self) -> &Clock {
        self.engine.clock()
    }

    /// The number of nodes that is a majority.
    fn majority(&self) -> usize {
        self.nodes.len() / 2 + 1
    }

    fn marks(&self) -> MutexGuard<'_, HashMap<OwnerId, u64>> {
        self.marks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn open(&self) -> Result<(), DriverError> {
        if self.closed.load(Ordering::Acquire) {
            return Err(DriverError::closed());
        }
        Ok(())
    }
}

/// How much a lease may be shorter at a node than here, for clocks whose rates differ and whole milliseconds.
fn drift(ttl: Duration) -> Duration {
    ttl / 100 + Duration::from_millis(2)
}

impl Driver for Quorum {
    fn promises(&self) -> Promises {
        self.0.promises.clone()
    }

    fn claim(&self, want: Arc<Want>) -> Result<Box<dyn ClaimOf>, DriverError> {
        self.0.open()?;
        let refused = |refusal| Err(DriverError::refused(refusal));
        let promises = &self.0.promises;
        if !promises.ttl.contains(&want.ttl) {
            let (floor, most) = (promises.ttl.start(), promises.ttl.end());
            return refused(Refusal::InvalidConfig(format!(
                "ttl {:?}: it must be {floor:?} to {most:?} (max_ttl: a node that restarts empty has no vote for that long)",
                want.ttl
            )));
        }
        if want.order == Order::Fifo {
            return refused(Refusal::Unsupported("a quorum has no order of waiters".into()));
        }
        if matches!(want.mode, Mode::Slot { .. }) {
            let why = "a quorum has no semaphores: a majority of counters does not count to their number";
            return refused(Refusal::Unsupported(why.into()));
        }
        Ok(Box::new(QuorumClaim::new(self.0.clone(), want)?))
    }

    fn renew<'a>(
        &'a self,
        holds: &'a [Hold],
        answer: &'a (dyn Fn(usize, Renewal) + Send + Sync),
    ) -> BoxFuture<'a, ()> {
        Box::pin(self.0.renew(holds, answer))
    }

    fn inspect(&self) -> Option<&dyn Inspect> {
        let can = self.0.nodes.iter().all(|n| n.driver.inspect().is_some());
        can.then_some(&*self.0 as &dyn Inspect)
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        self.0.closed.store(true, Ordering::Release);
        Box::pin(async {
            let shared = &self.0;
            shared
                .clock()
                .timeout(shared.rules.node_timeout * 2, shared.leaving.drained())
                .await;
            join_all(shared.nodes.iter().map(|n| n.driver.close())).await;
        })
    }
}

impl Leaving {
    /// Resolves when every node was left.
    async fn drained(&self) {
        loop {
            let done = self.done.notified();
            if self.count.load(Ordering::Acquire) == 0 {
                return;
            }
            done.await;
        }
    }
}
