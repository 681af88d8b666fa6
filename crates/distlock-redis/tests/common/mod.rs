//! What the tests of the Redis engine share.
#![allow(dead_code, clippy::unwrap_used, unreachable_pub, missing_docs)]

use std::sync::Arc;
use std::time::Duration;

use distlock_core::bell::Bell;
use distlock_core::clock::Clock;
use distlock_core::driver::{Driver, DriverError, Life, Line, Mode, Order, Standing, Want};
use distlock_core::engine::{Engine, EngineThread};
use distlock_core::{FencingToken, Key, Namespace};
use distlock_redis::Config;
use distlock_testkit::servers::{Redis, Resp};

pub const MS: Duration = Duration::from_millis(1);

pub fn config(address: &str) -> Config {
    let (host, port) = address.rsplit_once(':').unwrap();
    let mut config = Config::tcp(host, port.parse().unwrap());
    config.timeout = 500 * MS;
    config.connect_timeout = 500 * MS;
    config
}

/// One client at the level of the engine port.
pub struct Peer {
    pub driver: Arc<dyn Driver>,
    pub engine: Engine,
    _thread: EngineThread,
}

impl Peer {
    pub async fn new(config: Config) -> Self {
        Self::open(config).await.unwrap()
    }

    pub async fn open(config: Config) -> Result<Self, DriverError> {
        let label = Some(Arc::from("tester"));
        let (engine, thread) = Engine::start(Clock::boot(), Namespace::default(), label).unwrap();
        let driver = distlock_redis::open(engine.clone(), config).await?;
        Ok(Self {
            driver,
            engine,
            _thread: thread,
        })
    }

    pub fn want(&self, key: &str) -> Want {
        Want {
            key: Key::new(key).unwrap(),
            owner: self.engine.owners().next(),
            mode: Mode::Mutex,
            order: Order::Any,
            line: Line::Join,
            life: Life::Process,
            ttl: 5000 * MS,
            label: self.engine.label().cloned(),
            reason: None,
            bell: Bell::new(),
        }
    }
}

pub fn token(standing: &Standing) -> Option<FencingToken> {
    match standing {
        Standing::Held(grant) => grant.token,
        Standing::Waiting { .. } => None,
    }
}

pub fn is_held(standing: &Standing) -> bool {
    matches!(standing, Standing::Held(_))
}

/// Asks until it is true; fails after 10 s.
pub async fn until(what: &str, mut look: impl AsyncFnMut() -> bool) {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(10);
    while !look().await {
        assert!(tokio::time::Instant::now() < deadline, "not within 10 s: {what}");
        tokio::time::sleep(10 * MS).await;
    }
}

pub async fn int(redis: &Redis, words: &[&str]) -> i64 {
    match redis.command(words).await.unwrap() {
        Resp::Int(n) => n,
        other => panic!("{words:?} gave {other:?}"),
    }
}

pub async fn keys(redis: &Redis, pattern: &str) -> Vec<String> {
    let found = redis.command(&["KEYS", pattern]).await.unwrap();
    found
        .items()
        .iter()
        .filter_map(|k| k.text().map(str::to_owned))
        .collect()
}

/// A client as users have it.
pub async fn client(config: Config) -> distlock_core::Client {
    let open = move |engine| async move { distlock_redis::open(engine, config).await };
    distlock_core::Client::builder()
        .label("tester")
        .build(open)
        .await
        .unwrap()
}
