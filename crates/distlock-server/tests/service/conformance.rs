//! The engine `http://` passes the conformance suite over a gateway on each of these engines.

use std::time::Duration;

use distlock_testkit::conformance::{BoxError, Client, Connected, Deployment};
use distlock_testkit::servers::{Etcd, Postgres, Redis, or_skip};
use tempfile::TempDir;
use tokio::sync::OnceCell;

use crate::gateway::Gateway;

/// One gateway for the clients of a case.
struct Through {
    engine: String,
    ttl: Duration,
    slack: Duration,
    gateway: OnceCell<Gateway>,
    _dir: Option<TempDir>,
}

impl Through {
    fn new(engine: impl Into<String>, ttl: Duration, slack: Duration) -> Self {
        Self {
            engine: engine.into(),
            ttl,
            slack,
            gateway: OnceCell::new(),
            _dir: None,
        }
    }

    fn file() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let engine = format!("file://{}/locks", dir.path().display());
        Self {
            _dir: Some(dir),
            ..Self::new(engine, Duration::from_millis(500), Duration::from_secs(2))
        }
    }
}

#[async_trait::async_trait]
impl Deployment for Through {
    async fn client(&self) -> Connected {
        let gateway = self.gateway.get_or_init(|| Gateway::on(&self.engine)).await;
        let at = gateway.at.to_string();
        Client::start(async |engine| -> Result<_, BoxError> {
            Ok(distlock_http::open(engine, distlock_http::Config::new([at])).await?)
        })
        .await
    }

    fn ttl(&self) -> Duration {
        self.ttl
    }

    fn slack(&self) -> Duration {
        self.slack
    }
}

mod memory {
    use std::time::Duration;
    distlock_testkit::conformance!(super::Through::new(
        "memory:",
        Duration::from_millis(500),
        Duration::from_secs(2)
    ));
}

mod file {
    distlock_testkit::conformance!(super::Through::file());
}

/// The suite over a real server, which all cases share; it ends with the program.
macro_rules! over {
    ($module:ident, $server:ident, $start:expr, $ttl:expr, $slack:expr) => {
        mod $module {
            use super::*;

            async fn through() -> Option<Through> {
                static SERVER: OnceCell<Option<$server>> = OnceCell::const_new();
                let server = SERVER.get_or_init(|| async { or_skip($start.await) }).await;
                let url = server.as_ref()?.url();
                Some(Through::new(
                    url,
                    Duration::from_millis($ttl),
                    Duration::from_millis($slack),
                ))
            }

            distlock_testkit::conformance!(match super::$module::through().await {
                Some(through) => through,
                None => return,
            });
        }
    };
}

over!(redis, Redis, Redis::start(), 500, 2000);
over!(etcd, Etcd, Etcd::start(1), 1000, 4000);
over!(postgres, Postgres, Postgres::start(), 500, 2000);
