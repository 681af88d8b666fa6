//! A Redis Cluster: three masters with one replica each.

use std::sync::Arc;

use super::super::find::find;
use super::super::port::Port;
use super::super::program::{Program, StartError};
use super::super::tls::Certificates;
use super::{Redis, RedisOptions, Resp};

/// A Redis Cluster of three masters and three replicas; a lost master is replaced after about 2.2 s (node timeout
/// 1 s).
#[derive(Debug)]
pub struct RedisCluster {
    nodes: Vec<Redis>,
    _bus: Vec<Port>,
}

impl RedisCluster {
    /// Starts the nodes, joins them, and waits until every node sees all slots served and all replicas in step.
    ///
    /// # Errors
    /// [`StartError`].
    pub async fn start() -> Result<Self, StartError> {
        Self::start_with(&RedisOptions::default()).await
    }

    /// The same, with TLS among the nodes and for the clients that want it: [`tls_url`](Self::tls_url).
    ///
    /// # Errors
    /// [`StartError`].
    pub async fn start_tls() -> Result<Self, StartError> {
        let options = RedisOptions::default()
            .certificates(Arc::new(Certificates::new()?))
            .args(["--tls-cluster", "yes", "--tls-replication", "yes"]);
        Self::start_with(&options).await
    }

    async fn start_with(options: &RedisOptions) -> Result<Self, StartError> {
        let join = find("redis-cli")?;
        let (mut nodes, mut bus) = (Vec::new(), Vec::new());
        for _ in 0..6 {
            // The bus port would be the port plus 10,000, which may be taken.
            let port = Port::free()?;
            let number = port.number().to_string();
            let node = options
                .clone()
                .args(["--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf"])
                .args(["--cluster-port", &number, "--cluster-node-timeout", "1000"])
                .args([
                    "--repl-diskless-sync-delay",
                    "0",
                    "--cluster-replica-validity-factor",
                    "0",
                ]);
            nodes.push(node.start().await?);
            bus.push(port);
        }
        Program::new(join, nodes[0].dir())
            .args(["--cluster", "create"])
            .args(nodes.iter().map(Redis::address))
            .args(["--cluster-replicas", "1", "--cluster-yes"])
            .run()
            .await?;
        let mut this = Self { nodes, _bus: bus };
        this.ready().await?;
        Ok(this)
    }

    async fn ready(&mut self) -> Result<(), StartError> {
        let addresses: Vec<String> = self.nodes.iter().map(Redis::address).collect();
        for (node, address) in self.nodes.iter_mut().zip(&addresses) {
            node.process()
                .ready(async || {
                    let Ok(mut client) = super::connect(address, false).await else {
                        return false;
                    };
                    let state = client.command(&["CLUSTER", "INFO"]).await;
                    let role = client.command(&["INFO", "replication"]).await;
                    let (Ok(Resp::Text(state)), Ok(Resp::Text(role))) = (state, role) else {
                        return false;
                    };
                    state.contains("cluster_state:ok")
                        && state.contains("cluster_known_nodes:6")
                        && (role.contains("role:master") && role.contains("connected_slaves:1")
                            || role.contains("role:slave") && role.contains("master_link_status:up"))
                })
                .await?;
        }
        Ok(())
    }

    /// `redis+cluster://h1,h2,…`.
    pub fn url(&self) -> String {
        let addresses: Vec<String> = self.nodes.iter().map(Redis::address).collect();
        format!("redis+cluster://{}", addresses.join(","))
    }

    /// `rediss+cluster://h1,h2,…`, if TLS was asked for.
    pub fn tls_url(&self) -> Option<String> {
        let urls: Option<Vec<String>> = self.nodes.iter().map(Redis::tls_url).collect();
        let hosts: Vec<String> = urls?
            .iter()
            .map(|url| {
                url.trim_start_matches("rediss://")
                    .trim_end_matches('/')
                    .to_owned()
            })
            .collect();
        Some(format!("rediss+cluster://{}", hosts.join(",")))
    }

    /// One of the six nodes.
    pub fn node(&mut self, n: usize) -> &mut Redis {
        &mut self.nodes[n]
    }

    /// All nodes.
    pub fn nodes(&self) -> &[Redis] {
        &self.nodes
    }

    /// The index of the master that serves this key now, as the first node that answers sees it.
    pub async fn master_of(&self, key: &str) -> Option<usize> {
        for node in &self.nodes {
            if let Some(master) = self.master_seen_by(node, key).await {
                return Some(master);
            }
        }
        None
    }

    /// As [`master_of`](Self::master_of), if all nodes that answer see the same one. After a slot has moved they may
    /// contradict each other for some rounds of their gossip.
    pub async fn agreed_master_of(&self, key: &str) -> Option<usize> {
        let mut agreed = None;
        for node in &self.nodes {
            let Some(master) = self.master_seen_by(node, key).await else {
                continue;
            };
            if *agreed.get_or_insert(master) != master {
                return None;
            }
        }
        agreed
    }

    async fn master_seen_by(&self, node: &Redis, key: &str) -> Option<usize> {
        let slot = node.command(&["CLUSTER", "KEYSLOT", key]).await.ok()?.int()?;
        let ranges = node.command(&["CLUSTER", "SLOTS"]).await.ok()?;
        for range in ranges.items() {
            let [from, to, master, ..] = range.items() else {
                continue;
            };
            if (from.int()?..=to.int()?).contains(&slot) {
                let port = master.items().get(1)?.int()?;
                return self.nodes.iter().position(|n| i64::from(n.port()) == port);
            }
        }
        None
    }
}
