//! The conformance suite on a standalone server in both layouts, over TLS as an ACL user with the documented rights
//! only, and behind Sentinel.
#![allow(clippy::unwrap_used, missing_docs)]

mod common;

use std::time::Duration;

use distlock_redis::{Config, Layout, ValueFormat};
use distlock_testkit::conformance::{Client, Connected, Deployment};
use distlock_testkit::servers::{Redis, RedisSentinel, or_skip};
use tokio::sync::OnceCell;

/// How to reach a server that all cases share; it ends with the program.
struct Shared(Config);

impl Shared {
    async fn standalone(layout: Layout) -> Option<Self> {
        static SERVER: OnceCell<Option<Redis>> = OnceCell::const_new();
        let server = SERVER.get_or_init(async || or_skip(Redis::start().await)).await;
        let mut config = common::config(&server.as_ref()?.address());
        config.layout = layout;
        Some(Self(config))
    }

    async fn secured() -> Option<Self> {
        static SERVER: OnceCell<Option<Redis>> = OnceCell::const_new();
        let start = async || or_skip(common::secured().start().await);
        Some(Self(common::secured_config(
            SERVER.get_or_init(start).await.as_ref()?,
        )))
    }

    async fn behind_sentinel() -> Option<Self> {
        static GROUP: OnceCell<Option<RedisSentinel>> = OnceCell::const_new();
        let group = GROUP
            .get_or_init(async || or_skip(RedisSentinel::start().await))
            .await;
        Some(Self(common::sentinel_config(group.as_ref()?)))
    }
}

#[async_trait::async_trait]
impl Deployment for Shared {
    async fn client(&self) -> Connected {
        let config = self.0.clone();
        Client::start(async |engine| Ok(distlock_redis::open(engine, config).await?)).await
    }

    fn ttl(&self) -> Duration {
        Duration::from_millis(400)
    }

    fn slack(&self) -> Duration {
        Duration::from_secs(1)
    }
}

macro_rules! conforms {
    ($name:ident, $start:expr) => {
        mod $name {
            use super::*;
            distlock_testkit::conformance!(match $start.await {
                Some(deployment) => deployment,
                None => return,
            });
        }
    };
}

conforms!(redisson, Shared::standalone(Layout::Redisson));
conforms!(
    string,
    Shared::standalone(Layout::String {
        prefix: String::new(),
        value: ValueFormat::Owner,
    })
);
conforms!(tls_and_acl, Shared::secured());
conforms!(sentinel, Shared::behind_sentinel());
