//! Which server is the master now: one fixed server, or what the sentinels say.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use distlock_core::clock::Clock;
use distlock_core::driver::{DriverError, Reached};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use redis::{Cmd, FromRedisValue, PushInfo, PushKind, Value};
use tokio::sync::{Notify, watch};

use crate::config::{Config, Endpoint};
use crate::dial::{Dialer, Link, Node, show};

/// The present master. Its epoch grows whenever connections to it must be made anew.
#[derive(Debug)]
pub(crate) struct Site {
    spot: watch::Sender<Spot>,
    sentinels: Option<Sentinels>,
    clock: Clock,
    patience: Duration,
}

#[derive(Debug, Clone)]
struct Spot {
    epoch: u64,
    node: Option<Node>,
}

#[derive(Debug)]
struct Sentinels {
    nodes: Vec<Node>,
    group: String,
    dialer: Dialer,
}

/// What one sentinel says.
#[derive(Debug, PartialEq, Eq)]
struct Saying {
    config_epoch: u64,
    node: Node,
}

/// After the first sentinel's answer, others have this long to contradict it.
const SECOND_OPINION: Duration = Duration::from_millis(100);
/// How often the supervisor asks, besides listening.
const ROUND: Duration = Duration::from_secs(1);

impl Site {
    pub(crate) fn new(config: &Config, dialer: &Dialer, clock: Clock) -> Self {
        let (node, sentinels) = match &config.endpoint {
            Endpoint::Tcp { host, port } => (Some(Node::Tcp(host.clone(), *port)), None),
            Endpoint::Unix(path) => (Some(Node::Unix(path.clone())), None),
            // Each of its nodes has a site of its own.
            Endpoint::Cluster { .. } => (None, None),
            Endpoint::Sentinel { sentinels, master } => {
                let nodes = sentinels
                    .iter()
                    .map(|(host, port)| Node::Tcp(host.clone(), *port));
                let sentinels = Sentinels {
                    nodes: nodes.collect(),
                    group: master.clone(),
                    dialer: dialer.for_sentinels(config),
                };
                (None, Some(sentinels))
            }
        };
        Self {
            spot: watch::Sender::new(Spot { epoch: 1, node }),
            sentinels,
            clock,
            patience: config.timeout,
        }
    }

    /// The epoch in which connections are good.
    pub(crate) fn epoch(&self) -> u64 {
        self.spot.borrow().epoch
    }

    /// The master and its epoch.
    pub(crate) async fn master(&self) -> Result<(u64, Node), DriverError> {
        let Spot { epoch, node } = self.spot.borrow().clone();
        if let Some(node) = node {
            return Ok((epoch, node));
        }
        let Some(sentinels) = &self.sentinels else {
            return Err(DriverError::unavailable(Reached::No, "no server is configured"));
        };
        let node = sentinels.ask_all(&self.clock, self.patience).await?;
        self.spot.send_modify(|spot| {
            spot.node.get_or_insert(node);
        });
        let spot = self.spot.borrow();
        match &spot.node {
            Some(node) => Ok((spot.epoch, node.clone())),
            None => Err(DriverError::unavailable(
                Reached::No,
                "the master changed just now",
            )),
        }
    }

    /// Whether the server at the other end may serve us: behind sentinels it must say itself that it is the master.
    pub(crate) async fn admit(&self, epoch: u64, link: &Link) -> Result<(), DriverError> {
        if self.sentinels.is_none() {
            return Ok(());
        }
        let mut role = Cmd::new();
        role.arg("ROLE");
        let role = link
            .ask(&role, self.patience)
            .await
            .map_err(|fault| DriverError {
                reached: Reached::No,
                ..fault.error
            })?;
        let is_master = matches!(&role, Value::Array(words)
            if words.first().is_some_and(|w| String::from_redis_value_ref(w).is_ok_and(|w| w == "master")));
        if is_master {
            return Ok(());
        }
        self.suspect(epoch);
        Err(DriverError::unavailable(
            Reached::No,
            "the sentinels name a server that is not the master (yet)",
        ))
    }

    /// The server of that epoch does not serve us: ask the sentinels again.
    pub(crate) fn suspect(&self, epoch: u64) {
        if self.sentinels.is_some() {
            self.spot.send_if_modified(|spot| {
                let current = spot.epoch == epoch && spot.node.is_some();
                if current {
                    *spot = Spot {
                        epoch: epoch + 1,
                        node: None,
                    };
                }
                current
            });
        }
    }

    /// Resolves when the epoch is another one.
    pub(crate) async fn moved(&self, epoch: u64) {
        let mut spot = self.spot.subscribe();
        if spot.wait_for(|spot| spot.epoch != epoch).await.is_err() {
            std::future::pending().await
        }
    }

    /// What the sentinels know of the group, for the doctor.
    pub(crate) async fn facts(&self) -> Option<HashMap<String, String>> {
        let sentinels = self.sentinels.as_ref()?;
        for node in &sentinels.nodes {
            if let Ok(link) = sentinels.dialer.dial(node, |_| ()).await
                && let Ok(facts) = sentinels.facts(&link, self.patience).await
            {
                return Some(facts);
            }
        }
        None
    }

    fn turn_to(&self, node: Node) {
        self.spot.send_if_modified(|spot| {
            let moved = spot.node.as_ref().is_some_and(|present| *present != node);
            if moved {
                tracing::info!(master = show(&node), "the sentinels have a new master");
                *spot = Spot {
                    epoch: spot.epoch + 1,
                    node: Some(node),
                };
            }
            moved
        });
    }

    /// Follows the sentinels until the site is dropped. For the engine thread; ends at once without sentinels.
    pub(crate) async fn supervise(site: Weak<Site>) {
        for turn in 0_usize.. {
            let Some(site) = site.upgrade() else { return };
            let Some(sentinels) = &site.sentinels else { return };
            let node = &sentinels.nodes[turn % sentinels.nodes.len()];
            if let Err(e) = site.follow(sentinels, node).await {
                tracing::debug!(sentinel = show(node), error = %e, "sentinel");
            }
            site.clock.sleep(ROUND / 4).await;
        }
    }

    async fn follow(&self, sentinels: &Sentinels, node: &Node) -> Result<(), DriverError> {
        let news = Arc::new(Notify::new());
        let ring = news.clone();
        let push = move |info: PushInfo| {
            if matches!(info.kind, PushKind::Message | PushKind::Disconnection) {
                ring.notify_one();
            }
        };
        let link = sentinels.dialer.dial(node, push).await?;
        let subscribed = link
            .subscribe(&["+switch-master".to_owned()], self.patience)
            .await;
        subscribed.map_err(|fault| fault.error)?;
        loop {
            let saying = sentinels.ask(&link, self.patience).await?;
            self.turn_to(saying.node);
            self.clock.timeout(ROUND, news.notified()).await;
            if link.is_over() {
                return Ok(());
            }
        }
    }
}

impl Sentinels {
    /// Asks all sentinels; the answer of the highest configuration epoch wins.
    async fn ask_all(&self, clock: &Clock, patience: Duration) -> Result<Node, DriverError> {
        let mut asked: FuturesUnordered<_> = self
            .nodes
            .iter()
            .map(async |node| {
                let link = self.dialer.dial(node, |_| ()).await?;
                self.ask(&link, patience).await
            })
            .collect();
        let mut best: Option<Saying> = None;
        let mut trouble = DriverError::unavailable(Reached::No, "no sentinel is configured");
        loop {
            let next = match &best {
                None => asked.next().await,
                Some(_) => clock.timeout(SECOND_OPINION, asked.next()).await.flatten(),
            };
            match next {
                Some(Ok(saying)) if best.as_ref().is_none_or(|b| b.config_epoch < saying.config_epoch) => {
                    best = Some(saying);
                }
                Some(Ok(_)) => {}
                Some(Err(e)) => trouble = e,
                None => return best.map(|b| b.node).ok_or(trouble),
            }
        }
    }

    async fn ask(&self, link: &Link, patience: Duration) -> Result<Saying, DriverError> {
        let facts = self.facts(link, patience).await?;
        let fact = |name: &str| facts.get(name).map(String::as_str);
        match (fact("ip"), fact("port").and_then(|p| p.parse().ok())) {
            (Some(ip), Some(port)) => Ok(Saying {
                config_epoch: fact("config-epoch").and_then(|e| e.parse().ok()).unwrap_or(0),
                node: Node::Tcp(ip.to_owned(), port),
            }),
            _ => Err(DriverError::unavailable(
                Reached::No,
                format!("a sentinel does not know the master {:?}", self.group),
            )),
        }
    }

    async fn facts(&self, link: &Link, patience: Duration) -> Result<HashMap<String, String>, DriverError> {
        let mut cmd = Cmd::new();
        cmd.arg("SENTINEL").arg("MASTER").arg(&self.group);
        let answer = link.ask(&cmd, patience).await.map_err(|fault| DriverError {
            reached: Reached::No,
            ..fault.error
        })?;
        Ok(HashMap::from_redis_value(answer).unwrap_or_default())
    }
}
