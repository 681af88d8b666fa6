//! The engines that can be tortured, each with its bounds.

use std::io;
use std::time::Duration;

use tempfile::TempDir;

use crate::check::Bounds;
use crate::history::{Recorder, What};
use crate::servers::{Etcd, MariaDb, Postgres, Redis, RedisOptions, StartError, ZooKeeper};
use crate::worker::LoadKey;

/// An engine with its servers, if it has any.
#[derive(Debug)]
pub struct EngineUnderTest {
    name: &'static str,
    url: String,
    servers: Servers,
}

#[derive(Debug)]
enum Servers {
    Directory(TempDir),
    Redis(Redis),
    Etcd(#[allow(dead_code, reason = "kept alive")] Etcd),
    ZooKeeper(#[allow(dead_code, reason = "kept alive")] ZooKeeper),
    Postgres(#[allow(dead_code, reason = "kept alive")] Postgres),
    MariaDb(#[allow(dead_code, reason = "kept alive")] MariaDb),
}

impl EngineUnderTest {
    /// The names that [`start`](Self::start) knows.
    pub const NAMES: [&str; 6] = ["file", "redis", "etcd", "zookeeper", "postgres", "mysql"];

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
                ("redis", redis.url(), Servers::Redis(redis))
            }
            "etcd" => {
                let etcd = Etcd::start(1).await?;
                ("etcd", etcd.url(), Servers::Etcd(etcd))
            }
            "zookeeper" => {
                let zookeeper = ZooKeeper::start(1).await?;
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
            other => return Err(StartError::Missing(format!("an engine named {other:?}"))),
        };
        Ok(Self { name, url, servers })
    }

    /// Its name.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Where the workers connect.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The shortest lease that is sensible for torture.
    pub fn ttl(&self) -> Duration {
        match self.servers {
            Servers::Directory(_) | Servers::Redis(_) => Duration::from_millis(300),
            Servers::Etcd(_) => Duration::from_secs(2),
            _ => Duration::from_secs(1),
        }
    }

    /// The times within which it must do things, with a second for a busy machine.
    pub fn bounds(&self, ttl: Duration) -> Bounds {
        let slack = Duration::from_secs(1);
        Bounds {
            // The record outlives the validity by the margin, and is found expired by the next look.
            takeover: slack + ttl / 10,
            death_at_once: matches!(self.servers, Servers::Directory(_)),
            dead_waiter: match self.servers {
                Servers::Directory(_) => Duration::ZERO,
                // A waiter in a fair queue keeps its place for three rechecks, of two seconds for the first ones.
                Servers::Redis(_) => Duration::from_secs(7),
                _ => ttl,
            },
            handoff: slack + ttl / 10,
            told: slack,
        }
    }

    /// Looks, after the last client has gone and its leases have run out, whether anything is left.
    ///
    /// # Errors
    /// When the engine cannot be asked.
    pub async fn scan(&self, recorder: &Recorder, keys: &[LoadKey]) -> io::Result<()> {
        match &self.servers {
            Servers::Directory(dir) => {
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
            Servers::Redis(redis) => {
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
