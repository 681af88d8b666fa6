//! A master with two replicas and three Sentinels that watch them.

use std::fs;
use std::io;

use tempfile::TempDir;

use super::super::find::find;
use super::super::port::Port;
use super::super::process::Process;
use super::super::program::{Program, StartError};
use super::{Redis, RedisOptions, Resp, RespClient};

/// The name by which the Sentinels know the master.
const MASTER: &str = "mymaster";

/// Redis with replicas and Sentinels. A lost master is replaced after about 2.3 s (down-after 1 s).
#[derive(Debug)]
pub struct RedisSentinel {
    nodes: Vec<Redis>,
    sentinels: Vec<(Process, Port)>,
    _dir: TempDir,
}

impl RedisSentinel {
    /// Starts all six and waits until every Sentinel knows every replica and the replicas are in step.
    ///
    /// # Errors
    /// [`StartError`].
    pub async fn start() -> Result<Self, StartError> {
        let program = match find("redis-sentinel") {
            Ok(path) => (path, None),
            Err(_) => (find("redis-server")?, Some("--sentinel")),
        };
        let options = RedisOptions::default().args([
            "--repl-diskless-sync-delay",
            "0",
            "--repl-ping-replica-period",
            "1",
        ]);
        let master = options.clone().start().await?;
        let port = master.port().to_string();
        let mut nodes = vec![master];
        for _ in 0..2 {
            let replica = options.clone().args(["--replicaof", "127.0.0.1", &port]);
            nodes.push(replica.start().await?);
        }
        let dir = TempDir::with_prefix("distlock-sentinel-")?;
        let mut sentinels = Vec::new();
        for n in 0..3 {
            let own = dir.path().join(n.to_string());
            fs::create_dir(&own)?;
            let listen = Port::free()?;
            let config = own.join("keep-sentinel.conf");
            fs::write(
                &config,
                format!(
                    "port {}\nbind 127.0.0.1\ndir {}\nsentinel monitor {MASTER} 127.0.0.1 {port} 2\n\
                     sentinel down-after-milliseconds {MASTER} 1000\nsentinel failover-timeout {MASTER} 5000\n\
                     sentinel parallel-syncs {MASTER} 1\n",
                    listen.number(),
                    own.display(),
                ),
            )?;
            let start = Program::new(&program.0, &own).args([config]).args(program.1);
            sentinels.push((Process::start(start)?, listen));
        }
        let mut this = Self {
            nodes,
            sentinels,
            _dir: dir,
        };
        this.ready().await?;
        Ok(this)
    }

    async fn ready(&mut self) -> Result<(), StartError> {
        for (sentinel, port) in &mut self.sentinels {
            let address = port.address();
            sentinel
                .ready(async || {
                    let Ok(state) = ask(&address, &["SENTINEL", "MASTER", MASTER]).await else {
                        return false;
                    };
                    let field = |name: &str| {
                        let at = state.items().iter().position(|r| r.text() == Some(name))?;
                        state.items().get(at + 1)?.text()
                    };
                    field("num-slaves") == Some("2") && field("num-other-sentinels") == Some("2")
                })
                .await?;
        }
        let address = self.nodes[0].address();
        self.nodes[0]
            .process()
            .ready(async || {
                ask(&address, &["INFO", "replication"]).await.is_ok_and(|info| {
                    info.text()
                        .is_some_and(|t| t.matches("state=online").count() == 2)
                })
            })
            .await
    }

    /// `redis+sentinel://h1,h2,h3/mymaster`.
    pub fn url(&self) -> String {
        format!(
            "redis+sentinel://{}/{MASTER}",
            self.sentinel_addresses().join(",")
        )
    }

    /// Where the Sentinels listen.
    pub fn sentinel_addresses(&self) -> Vec<String> {
        self.sentinels.iter().map(|(_, port)| port.address()).collect()
    }

    /// The index of the node that the Sentinels now call master; `None` if none of them answers.
    pub async fn master(&self) -> Option<usize> {
        for (_, port) in &self.sentinels {
            let asked = ask(&port.address(), &["SENTINEL", "GET-MASTER-ADDR-BY-NAME", MASTER]).await;
            if let Ok(Resp::Array(answer)) = asked {
                let port: u16 = answer.get(1)?.text()?.parse().ok()?;
                return self.nodes.iter().position(|node| node.port() == port);
            }
        }
        None
    }

    /// One of the three data nodes; number 0 is the first master.
    pub fn node(&mut self, n: usize) -> &mut Redis {
        &mut self.nodes[n]
    }

    /// All data nodes.
    pub fn nodes(&self) -> &[Redis] {
        &self.nodes
    }

    /// One of the three Sentinel processes.
    pub fn sentinel(&mut self, n: usize) -> &mut Process {
        &mut self.sentinels[n].0
    }
}

async fn ask(address: &str, words: &[&str]) -> io::Result<Resp> {
    RespClient::connect(address).await?.command(words).await
}
