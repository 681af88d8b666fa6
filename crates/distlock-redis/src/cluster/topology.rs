//! The nodes of the cluster and who serves what, kept up to date.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, Weak};
use std::time::Duration;

use distlock_core::driver::{Driver, DriverError, Reached};
use distlock_core::engine::Engine;
use futures_util::FutureExt;
use futures_util::future::join_all;
use tokio::sync::Notify;

use super::map::{Map, agree, redirection};
use super::node::{Address, Node};
use crate::config::{Config, Endpoint};
use crate::dial::Dialer;
use crate::driver::RedisDriver;
use crate::fault::{Elsewhere, elsewhere};
use crate::slot::slot;

/// How long after a request failed the slots are asked for, however many fail: this, and longer each time while nothing
/// new comes of it.
const PACE: Duration = Duration::from_millis(100);
const LONGEST_PACE: Duration = Duration::from_secs(1);
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
    map: RwLock<Arc<Map>>,
    doubt: Arc<Notify>,
    closed: AtomicBool,
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
            map: RwLock::new(Arc::new(Map::empty())),
            doubt: Arc::default(),
            closed: AtomicBool::new(false),
            engine,
            config,
        });
        this.engine
            .spawn(Self::supervise(Arc::downgrade(&this), this.doubt.clone()));
        this
    }

    pub(super) fn map(&self) -> Arc<Map> {
        self.map.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The node that serves a slot.
    pub(super) fn serving(&self, slot: u16) -> Result<Arc<Node>, DriverError> {
        if let Some(node) = self.map().master(slot) {
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

    /// Asks the nodes for the slots; says whether that is news.
    pub(super) async fn ask(&self) -> Result<bool, DriverError> {
        let before = self.map();
        let mut addresses = before.nodes.clone();
        addresses.extend(self.seeds.iter().cloned());
        addresses.sort_unstable();
        addresses.dedup();
        let views = addresses.iter().map(|address| {
            let node = self.node(address);
            async move { node.view().await }.boxed()
        });
        let view = agree(self.engine.clock(), self.config.timeout, views.collect()).await?;
        let map = Map::of(view, |address| self.node(address));
        let news = !map.agrees_with(&before);
        self.turn_to(map);
        self.forget_strangers();
        Ok(news)
    }

    /// Whoever has a lock in a slot that is elsewhere now looks there at once.
    fn turn_to(&self, map: Map) {
        let now = Arc::new(map);
        let before = {
            let mut map = self.map.write().unwrap_or_else(PoisonError::into_inner);
            std::mem::replace(&mut *map, now.clone())
        };
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
        let mut pace = PACE;
        loop {
            let Some(clock) = topology.upgrade().map(|this| this.engine.clock().clone()) else {
                return;
            };
            let since = clock.now();
            let doubted = clock.timeout(ROUND, doubt.notified()).await.is_some();
            if clock.now().since(since) > LONGEST_PACE {
                pace = PACE;
            }
            if doubted {
                clock.sleep(pace).await;
            }
            let Some(this) = topology.upgrade() else { return };
            if this.closed.load(Ordering::Acquire) {
                return;
            }
            match this.ask().await {
                Ok(true) => pace = PACE,
                Ok(false) => pace = (pace * 2).min(LONGEST_PACE),
                Err(e) => {
                    tracing::debug!(error = %e, "no node of the cluster says who serves what");
                    pace = (pace * 2).min(LONGEST_PACE);
                    // Those who wait for it do not have to fail once more.
                    this.suspect();
                }
            }
        }
    }

    pub(super) async fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.doubt.notify_one();
        let nodes: Vec<Arc<Node>> = self.lock().known.values().cloned().collect();
        join_all(nodes.iter().map(|node| node.driver.close())).await;
    }
}
