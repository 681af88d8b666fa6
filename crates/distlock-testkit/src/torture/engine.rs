//! The engines that can be tortured, each with its bounds.

use std::io;
use std::time::Duration;

use rand::RngExt;
use rand::rngs::StdRng;
use tempfile::TempDir;
use tokio::sync::Mutex;
use tokio::time::sleep;

use super::service::{self, Service};
use super::trouble;
use crate::check::Bounds;
use crate::history::{Recorder, What};
use crate::proxy::Proxy;
use crate::servers::{Data, Etcd, MariaDb, Postgres, Process, Redis, RedisOptions, StartError, ZooKeeper};
use crate::worker::LoadKey;

/// A waiter in a fair queue of Redis keeps its place for three rechecks, of two seconds for the first ones.
const REDIS_GHOST: Duration = Duration::from_secs(7);

/// An engine with its servers, if it has any.
#[derive(Debug)]
pub struct EngineUnderTest {
    name: &'static str,
    url: String,
    servers: Mutex<Servers>,
}

#[derive(Debug)]
enum Servers {
    Directory(TempDir),
    Redis(Box<Redis>, Proxy),
    Etcd(Etcd),
    ZooKeeper(ZooKeeper),
    Postgres(#[allow(dead_code, reason = "kept alive")] Postgres),
    MariaDb(#[allow(dead_code, reason = "kept alive")] MariaDb),
    Service(Box<Service>),
}

impl EngineUnderTest {
    /// The names that [`start`](Self::start) knows.
    pub const NAMES: [&str; 7] = [
        "file",
        "redis",
        "etcd",
        "zookeeper",
        "postgres",
        "mysql",
        "service",
    ];

    /// Starts the engine's servers.
    ///
    /// # Errors
    /// [`StartError`]; an unknown name is [`StartError::Missing`].
    pub async fn start(name: &str) -> Result<Self, StartError> {
        let (name, url, servers) = match name {
            "file" => {
                let dir = TempDir::with_prefix("distlock-torture-file-")?;
                let url = format!("file://{}", dir.path().join("locks").display());
                ("file", url, Servers::Directory(dir))
            }
            "redis" => {
                let redis = RedisOptions::default().durable().start().await?;
                let proxy = Proxy::start(redis.address()).await?;
                let url = format!("redis://{}/", proxy.address());
                ("redis", url, Servers::Redis(Box::new(redis), proxy))
            }
            "etcd" => {
                let etcd = Etcd::start(3).await?;
                ("etcd", etcd.url(), Servers::Etcd(etcd))
            }
            "zookeeper" => {
                let zookeeper = ZooKeeper::start(3).await?;
                ("zookeeper", zookeeper.url(), Servers::ZooKeeper(zookeeper))
            }
            "postgres" => {
                let postgres = Postgres::start().await?;
                ("postgres", postgres.url(), Servers::Postgres(postgres))
            }
            "mysql" => {
                let mariadb = MariaDb::start().await?;
                ("mysql", mariadb.url(), Servers::MariaDb(mariadb))
            }
            "service" => {
                let service = Service::start().await?;
                (
                    "service",
                    service.url.clone(),
                    Servers::Service(Box::new(service)),
                )
            }
            other => return Err(StartError::Missing(format!("an engine named {other:?}"))),
        };
        Ok(Self {
            name,
            url,
            servers: Mutex::new(servers),
        })
    }

    /// Its name.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Where the workers connect.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Where workers connect that are killed: a dead process keeps its locks on ZooKeeper for its session, not for the
    /// lease that it asked for.
    pub(super) fn mortal_url(&self) -> String {
        match self.name {
            "zookeeper" => format!("{}?session_timeout=2s", self.url),
            _ => self.url.clone(),
        }
    }

    /// The shortest lease that is sensible for torture.
    pub fn ttl(&self) -> Duration {
        match self.name {
            "file" | "redis" => Duration::from_millis(300),
            "etcd" | "zookeeper" => Duration::from_secs(2),
            _ => Duration::from_secs(1),
        }
    }

    /// How often the servers are struck, where the locks are to outlive that.
    pub fn strike_every(&self) -> Option<Duration> {
        match self.name {
            "etcd" => Some(Duration::from_secs(10)),
            // Its servers take seconds to start and to agree; with fewer in between, nobody gets to work.
            "zookeeper" => Some(Duration::from_secs(20)),
            "redis" | "service" => Some(Duration::from_secs(4)),
            _ => None,
        }
    }

    /// Kills the leader, or a gateway, and starts it again, or stops it for a while; on Redis, one kind of trouble. Says
    /// so in the history.
    ///
    /// # Errors
    /// When the server cannot be struck or started, or the history cannot be written.
    pub async fn strike(&self, random: &mut StdRng, recorder: &Recorder) -> io::Result<()> {
        let mut servers = self.servers.lock().await;
        if let Servers::Redis(redis, proxy) = &mut *servers {
            return trouble::strike(redis, proxy, random, recorder).await;
        }
        let victim = match &*servers {
            Servers::Service(_) => Some(random.random_range(0..service::GATEWAYS)),
            servers => servers.leader().await,
        };
        let Some(victim) = victim else {
            return Ok(());
        };
        let stop = random.random_bool(0.5);
        let class = if stop { "server stopped" } else { "server killed" };
        let (class, target) = (class.to_owned(), format!("server {victim}"));
        recorder.record(What::Fault {
            class: class.clone(),
            target: target.clone(),
        })?;
        if stop {
            let length = Duration::from_millis(random.random_range(500..3000));
            servers.process(victim)?.pause()?;
            sleep(length).await;
            servers.process(victim)?.resume()?;
        } else {
            servers.process(victim)?.kill9()?;
            servers.restart(victim).await.map_err(io::Error::other)?;
        }
        recorder.record(What::Healed { class, target })
    }

    /// The times within which it must do things, with a second for a busy machine.
    pub fn bounds(&self, ttl: Duration) -> Bounds {
        let slack = Duration::from_secs(1);
        // A new leader may start every lease anew; until there is one nothing is handed on, and a stopped one is
        // noticed by time-outs only.
        let failover = match self.strike_every() {
            Some(_) if self.name == "redis" => trouble::LONGEST + trouble::NOTICED,
            // What a gateway took for a client that never heard of it ends with its lease; its waiters are ghosts in
            // the line of Redis until they have missed three rechecks.
            Some(_) if self.name == "service" => ttl + REDIS_GHOST + Duration::from_secs(2),
            Some(_) => ttl + Duration::from_secs(5),
            None => Duration::ZERO,
        };
        Bounds {
            // The record outlives the validity by the margin, and is found expired by the next look.
            takeover: slack + ttl / 10 + failover,
            death_at_once: self.name == "file",
            dead_waiter: match self.name {
                "file" => Duration::ZERO,
                "redis" => REDIS_GHOST + failover,
                _ => ttl + failover,
            },
            handoff: slack + ttl / 10 + failover,
            told: slack,
        }
    }

    /// Looks, after the last client has gone and its leases have run out, whether anything is left.
    ///
    /// # Errors
    /// When the engine cannot be asked.
    pub async fn scan(&self, recorder: &Recorder, keys: &[LoadKey]) -> io::Result<()> {
        let servers = self.servers.lock().await;
        let redis = match &*servers {
            Servers::Redis(redis, _) => Some(&**redis),
            Servers::Service(service) => Some(&service.redis),
            _ => None,
        };
        match (&*servers, redis) {
            (Servers::Directory(dir), _) => {
                // The pipes of processes that ended in good order are gone; those of killed ones are swept later.
                let locks = dir.path().join("locks");
                let stray =
                    std::fs::read_dir(&locks)?.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
                for name in stray.filter(|name| name.starts_with(".new-")) {
                    recorder.record(What::Left {
                        thing: format!("file {name}"),
                    })?;
                }
            }
            (_, Some(redis)) => {
                for LoadKey { key, .. } in keys {
                    let gone = async || {
                        let reply = redis
                            .command(&["EXISTS", &format!("distlock:{key}")])
                            .await
                            .ok()?;
                        (reply.int() == Some(0)).then_some(())
                    };
                    if crate::servers::eventually(self.ttl() * 3, gone).await.is_none() {
                        recorder.record(What::Left {
                            thing: format!("record of {key}"),
                        })?;
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }
}

impl Servers {
    async fn leader(&self) -> Option<usize> {
        match self {
            Self::Etcd(etcd) => etcd.leader().await,
            Self::ZooKeeper(servers) => servers.leader().await,
            _ => None,
        }
    }

    fn process(&mut self, n: usize) -> io::Result<&mut Process> {
        match self {
            Self::Etcd(etcd) => Ok(etcd.member(n)),
            Self::ZooKeeper(servers) => Ok(servers.server(n)),
            Self::Service(service) => Ok(service.gateway(n)),
            _ => Err(io::Error::other("an engine without a leader")),
        }
    }

    async fn restart(&mut self, n: usize) -> Result<(), StartError> {
        match self {
            Self::Etcd(etcd) => etcd.restart(n, Data::Keep).await,
            Self::ZooKeeper(servers) => servers.restart(n, Data::Keep).await,
            Self::Service(service) => service.restart(n).await,
            _ => Ok(()),
        }
    }
}
