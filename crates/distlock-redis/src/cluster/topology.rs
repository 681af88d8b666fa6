//! The nodes of the cluster and who serves what, kept up to date.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use distlock_core::driver::{Driver, DriverError, Reached};
use distlock_core::engine::Engine;
use futures_util::FutureExt;
use futures_util::future::join_all;
use tokio::sync::{Notify, watch};

use super::map::{Map, agree, redirection};
use super::node::{Address, Node};
use crate::config::{Config, Endpoint};
use crate::dial::Dialer;
use crate::driver::RedisDriver;
use crate::fault::{Elsewhere, elsewhere};
use crate::slot::slot;

/// The slots are asked for at most this often, however many requests fail.
const PACE: Duration = Duration::from_millis(100);
/// How often they are asked for while nothing fails: the nodes that are known must not all be gone one day.
const ROUND: Duration = Duration::from_secs(60);

/// What to do with a request that a node sent elsewhere.
#[derive(Debug)]
pub(super) enum Next {
    /// The map was corrected: ask the node that serves the slot now.
    Again,
    /// The slot is on its way to this node, and what the request is about has arrived there.
    Asking(Arc<Node>),
    /// The slot is on its way: ask again a little later.
    Later,
}

/// The nodes, and the map of the slots.
#[derive(Debug)]
pub(super) struct Topology {
    engine: Engine,
    /// What all nodes have in common.
    config: Config,
    dialer: Dialer,
    seeds: Vec<Address>,
    nodes: Mutex<Nodes>,
    map: watch::Sender<Arc<Map>>,
    /// One asks for the slots at a time.
    asking: tokio::sync::Mutex<()>,
    doubt: Arc<Notify>,
}

#[derive(Debug, Default)]
struct Nodes {
    known: HashMap<Address, Arc<Node>>,
    count: u64,
}

impl Topology {
    pub(super) fn new(engine: Engine, config: Config, dialer: Dialer, seeds: Vec<Address>) -> Arc<Self> {
        let this = Arc::new(Self {
            seeds,
            dialer,
            nodes: Mutex::default(),
            map: watch::Sender::new(Arc::new(Map::empty())),
            asking: tokio::sync::Mutex::new(()),
            doubt: Arc::default(),
            engine,
            config,
        });
        this.engine
            .spawn(Self::supervise(Arc::downgrade(&this), this.doubt.clone()));
        this
    }

    pub(super) fn map(&self) -> Arc<Map> {
        self.map.borrow().clone()
    }

    /// The node that serves the slot of a stored name.
    pub(super) fn serving(&self, stored: &str) -> Result<Arc<Node>, DriverError> {
        let slot = slot(stored);
        if let Some(node) = self.map.borrow().master(slot) {
            return Ok(node.clone());
        }
        self.suspect();
        let why = format!("no node of the cluster serves slot {slot} now");
        Err(DriverError::unavailable(Reached::No, why))
    }

    fn node(&self, address: &Address) -> Arc<Node> {
        let mut nodes = self.lock();
        if let Some(node) = nodes.known.get(address) {
            return node.clone();
        }
        nodes.count += 1;
        let (host, port) = address.clone();
        let config = Config {
            endpoint: Endpoint::Tcp { host, port },
            ..self.config.clone()
        };
        let node = Arc::new(Node {
            id: nodes.count,
            address: address.clone(),
            driver: RedisDriver::with(self.engine.clone(), config, self.dialer.clone()),
        });
        nodes.known.insert(address.clone(), node.clone());
        node
    }

    fn lock(&self) -> MutexGuard<'_, Nodes> {
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks the nodes for the slots, unless somebody else did since the map was `seen`.
    pub(super) async fn ask(&self, seen: u64) -> Result<(), DriverError> {
        let _turn = self.asking.lock().await;
        let before = self.map();
        if before.version > seen {
            return Ok(());
        }
        let mut addresses = before.nodes.clone();
        addresses.extend(self.seeds.iter().cloned());
        addresses.sort_unstable();
        addresses.dedup();
        let views = addresses.iter().map(|address| {
            let node = self.node(address);
            async move { node.view().await }.boxed()
        });
        let view = agree(self.engine.clock(), self.config.timeout, views.collect()).await?;
        self.turn_to(Map::of(view, before.version + 1, |address| self.node(address)));
        self.forget_strangers();
        Ok(())
    }

    /// Whoever has a lock in a slot that is elsewhere now looks there at once.
    fn turn_to(&self, map: Map) {
        let (before, now) = (self.map(), Arc::new(map));
        self.map.send_replace(now.clone());
        for node in before.masters() {
            node.driver.0.hub.part_with(|name| {
                let slot = slot(name);
                let same = |map: &Map| map.master(slot).is_some_and(|master| Arc::ptr_eq(master, node));
                same(&before) && !same(&now)
            });
        }
    }

    /// Ends the connections to servers that are no nodes any more.
    fn forget_strangers(&self) {
        let map = self.map();
        self.lock().known.retain(|address, node| {
            let stays = map.nodes.contains(address) || self.seeds.contains(address);
            if !stays {
                node.driver.0.hub.close();
            }
            stays
        });
    }

    /// What to do when `node` refused a request with this; `None` if it did not send it elsewhere.
    pub(super) fn redirected(&self, node: &Node, e: &DriverError) -> Option<Next> {
        let at = |to: &str| redirection(to, &node.address).map(|address| self.node(&address));
        Some(match elsewhere(e)? {
            Elsewhere::Moved(to) => {
                self.suspect();
                match to.and_then(|(slot, to)| Some((slot, at(&to)?))) {
                    Some((slot, to)) => {
                        let map = self.map();
                        if map.master(slot).is_none_or(|known| !Arc::ptr_eq(known, &to)) {
                            self.turn_to(map.with(slot, to));
                        }
                        Next::Again
                    }
                    None => Next::Later,
                }
            }
            Elsewhere::Ask(to) => at(&to).map_or(Next::Later, Next::Asking),
            Elsewhere::Later => Next::Later,
        })
    }

    /// A node did not answer, or sent us elsewhere: the slots are asked for in the background.
    pub(super) fn suspect(&self) {
        self.doubt.notify_one();
    }

    async fn supervise(topology: Weak<Self>, doubt: Arc<Notify>) {
        loop {
            let Some(clock) = topology.upgrade().map(|this| this.engine.clock().clone()) else {
                return;
            };
            let doubted = clock.timeout(ROUND, doubt.notified()).await.is_some();
            if doubted {
                clock.sleep(PACE).await;
            }
            let Some(this) = topology.upgrade() else { return };
            if let Err(e) = this.ask(this.map().version).await {
                tracing::debug!(error = %e, "no node of the cluster says who serves what");
                // Whatever failed before fails still: those who wait for it do not have to say so again.
                this.suspect();
            }
        }
    }

    pub(super) async fn close(&self) {
        self.doubt.notify_one();
        let nodes: Vec<Arc<Node>> = self.lock().known.values().cloned().collect();
        join_all(nodes.iter().map(|node| node.driver.close())).await;
    }
}
