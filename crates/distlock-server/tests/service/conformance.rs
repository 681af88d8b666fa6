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

mod redis {
    use super::*;

    async fn through() -> Option<Through> {
        static SERVER: OnceCell<Option<Redis>> = OnceCell::const_new();
        let server = SERVER
            .get_or_init(|| async { or_skip(Redis::start().await) })
            .await;
        let url = server.as_ref()?.url();
        Some(Through::new(
            url,
            Duration::from_millis(500),
            Duration::from_secs(2),
        ))
    }

    distlock_testkit::conformance!(match super::redis::through().await {
        Some(through) => through,
        None => return,
    });
}

mod etcd {
    use super::*;

    async fn through() -> Option<Through> {
        static SERVER: OnceCell<Option<Etcd>> = OnceCell::const_new();
        let server = SERVER
            .get_or_init(|| async { or_skip(Etcd::start(1).await) })
            .await;
        let url = server.as_ref()?.url();
        Some(Through::new(url, Duration::from_secs(1), Duration::from_secs(4)))
    }

    distlock_testkit::conformance!(match super::etcd::through().await {
        Some(through) => through,
        None => return,
    });
}

mod postgres {
    use super::*;

    async fn through() -> Option<Through> {
        static SERVER: OnceCell<Option<Postgres>> = OnceCell::const_new();
        let server = SERVER
            .get_or_init(|| async { or_skip(Postgres::start().await) })
            .await;
        let url = server.as_ref()?.url();
        Some(Through::new(
            url,
            Duration::from_millis(500),
            Duration::from_secs(2),
        ))
    }

    distlock_testkit::conformance!(match super::postgres::through().await {
        Some(through) => through,
        None => return,
    });
}
