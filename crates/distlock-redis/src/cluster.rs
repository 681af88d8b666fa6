//! Redis Cluster: each lock lives on the master of its slot.
//!
//! All keys of a lock share one slot, so one lock is a lock on one server: a node of the cluster is a
//! [`RedisDriver`](crate::driver::RedisDriver) of its own, with its own connections, subscriptions and renewals, and
//! this finds the node. A node that says that the slot has moved is believed, and one that does not answer has the
//! slots asked for again; the core's own retries do the rest. A sick node delays nobody whose locks are elsewhere.

mod claim;
mod course;
mod doctor;
mod inspect;
mod map;
mod node;
mod renew;
mod topology;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use distlock_core::Key;
use distlock_core::driver::{Claim, Driver, DriverError, Hold, Inspect, Promises, Refusal, Renewal, Want};
use distlock_core::engine::Engine;
use futures_util::future::BoxFuture;

use self::claim::ClusterClaim;
use self::node::Address;
use self::renew::Followed;
use self::topology::Topology;
use crate::config::Config;
use crate::dial::Dialer;
use crate::driver::{accepts, promised};
use crate::names::Names;
use crate::rights;
use crate::slot::slot;

/// Opens the engine: finds the nodes, and asks one whether the user may do what is needed.
///
/// # Errors
/// [`Refusal::InvalidConfig`] for a setting that does not work; otherwise when no node can be reached.
pub(crate) async fn open(
    engine: Engine,
    mut config: Config,
    seeds: Vec<Address>,
) -> Result<Arc<dyn Driver>, DriverError> {
    let dialer = Dialer::new(&config, engine.clock().clone())?;
    if config.sharded.is_none() {
        config.sharded = Some(node::have_shards(&dialer, &seeds, config.timeout).await?);
    }
    let topology = Topology::new(engine.clone(), config.clone(), dialer, seeds);
    topology.ask().await?;
    let cluster = Cluster {
        followed: Followed::default(),
        closed: AtomicBool::new(false),
        topology,
        engine,
        config,
    };
    let probe = rights::probe(&cluster.engine, 0)?;
    let node = cluster.topology.serving(slot(&cluster.stored(&probe)))?;
    rights::check_at(&node.driver.0, &probe).await?;
    Ok(Arc::new(ClusterDriver(Arc::new(cluster))))
}

#[derive(Debug)]
struct ClusterDriver(Arc<Cluster>);

/// What claims, renewals and inspection share.
#[derive(Debug)]
struct Cluster {
    engine: Engine,
    config: Config,
    topology: Arc<Topology>,
    followed: Followed,
    closed: AtomicBool,
}

impl Cluster {
    fn stored(&self, key: &Key) -> String {
        self.config.stored(self.engine.namespace(), key)
    }
}

impl Driver for ClusterDriver {
    fn promises(&self) -> Promises {
        promised("redis-cluster", &self.0.config)
    }

    fn claim(&self, want: Arc<Want>) -> Result<Box<dyn Claim>, DriverError> {
        if self.0.closed.load(Ordering::Acquire) {
            return Err(DriverError::closed());
        }
        accepts(&self.0.config, &want)?;
        let stored = self.0.stored(&want.key);
        if !Names(&stored).are_in_one_slot() {
            let why = format!(
                "{stored:?} has a malformed hash tag: the keys of the lock would be in different slots of the cluster"
            );
            return Err(DriverError::refused(Refusal::InvalidKey(why)));
        }
        Ok(Box::new(ClusterClaim::new(self.0.clone(), want, slot(&stored))))
    }

    fn renew<'a>(
        &'a self,
        holds: &'a [Hold],
        answer: &'a (dyn Fn(usize, Renewal) + Send + Sync),
    ) -> BoxFuture<'a, ()> {
        Box::pin(self.0.renew(holds, answer))
    }

    fn inspect(&self) -> Option<&dyn Inspect> {
        Some(&*self.0)
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        self.0.closed.store(true, Ordering::Release);
        Box::pin(self.0.topology.close())
    }
}
