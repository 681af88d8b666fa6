//! Five memory engines, clients on them, and a clock that is moved by hand.

use std::future::Future;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use distlock_core::clock::{Clock, ManualClock};
use distlock_core::driver::LockInfo;
use distlock_core::memory::{Faults, Memory};
use distlock_core::quorum::{self, Node, Rules};
use distlock_core::{Client, Guard};

pub(crate) const MS: Duration = Duration::from_millis(1);
pub(crate) const TTL: Duration = Duration::from_secs(10);
pub(crate) const KEY: &str = "order:42";

pub(crate) struct World {
    pub(crate) time: ManualClock,
    pub(crate) nodes: Vec<Memory>,
}

impl World {
    pub(crate) fn new() -> Self {
        Self {
            time: ManualClock::seeded(7),
            nodes: (0..5).map(|_| Memory::new()).collect(),
        }
    }

    pub(crate) fn client(&self) -> Client {
        self.client_with(Rules {
            max_ttl: TTL,
            ..Rules::default()
        })
    }

    pub(crate) fn client_with(&self, rules: Rules) -> Client {
        let builder = Client::builder().clock(Clock::Manual(self.time.clone())).ttl(TTL);
        let made = builder.build_now(|engine| {
            let node = |(n, memory): (usize, &Memory)| Node {
                name: format!("node {n}"),
                driver: memory.driver(engine.clone()),
            };
            let nodes = self.nodes.iter().enumerate().map(node).collect();
            quorum::over(engine.clone(), "quorum", nodes, rules)
        });
        made.unwrap()
    }

    pub(crate) fn faults(&self, node: usize) -> Faults {
        self.nodes[node].faults()
    }

    /// Cuts this client off from these nodes only.
    pub(crate) fn cut(&self, client: &Client, nodes: &[usize]) {
        for node in 0..self.nodes.len() {
            self.faults(node).heal(client.id());
        }
        for node in nodes {
            self.faults(*node).partition(client.id());
        }
    }

    /// Runs a future while time passes, millisecond by millisecond.
    pub(crate) async fn run<T>(&self, future: impl Future<Output = T>) -> T {
        let mut future = pin!(future);
        loop {
            if let Poll::Ready(out) = futures_util::poll!(future.as_mut()) {
                return out;
            }
            self.time.settle().await;
            if let Poll::Ready(out) = futures_util::poll!(future.as_mut()) {
                return out;
            }
            self.time.advance(MS).await;
        }
    }

    /// One try that must succeed.
    pub(crate) async fn take(&self, client: &Client) -> Guard {
        let guard = self.run(client.mutex(KEY).try_acquire()).await;
        guard.unwrap().expect("the lock is free")
    }

    /// What each node has of the key, told by nobody but itself.
    pub(crate) async fn kept(&self) -> Vec<LockInfo> {
        let mut kept = Vec::new();
        for memory in &self.nodes {
            let builder = Client::builder().clock(Clock::Manual(self.time.clone()));
            let client = builder.memory(memory).unwrap();
            kept.push(client.inspect(KEY).await.unwrap());
        }
        kept
    }

    /// At which nodes somebody holds the key.
    pub(crate) async fn holding(&self) -> Vec<usize> {
        let kept = self.kept().await;
        (0..kept.len()).filter(|n| !kept[*n].holders.is_empty()).collect()
    }
}
