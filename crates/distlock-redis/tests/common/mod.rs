//! What the tests of the Redis engine share.
#![allow(dead_code, clippy::unwrap_used, unreachable_pub, missing_docs)]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use distlock_core::bell::Bell;
use distlock_core::clock::Clock;
use distlock_core::driver::{Driver, DriverError, Hold, Life, Line, Mode, Order, Renewal, Standing, Want};
use distlock_core::engine::{Engine, EngineThread};
use distlock_core::{FencingToken, Key, Namespace};
use distlock_redis::{Config, Endpoint, Secret, Tls};
use distlock_testkit::servers::{Redis, RedisOptions, RedisSentinel, Resp};

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

/// One renewal of one hold.
pub async fn renew(peer: &Peer, want: &Arc<Want>, floor: Option<FencingToken>) -> Renewal {
    let hold = Hold {
        want: want.clone(),
        mark: 0,
        ttl: want.ttl,
        floor,
    };
    let said = Mutex::new(None);
    let answer = |_, renewal| *said.lock().unwrap() = Some(renewal);
    peer.driver.renew(&[hold], &answer).await;
    said.into_inner().unwrap().unwrap()
}

/// The least that a user of ours needs, as `docs/engines/redis.md` gives it.
const RULES: &[&str] = &[
    "~distlock:*",
    "~{distlock:*",
    "~redisson_*:{distlock:*",
    "~redisson_*:distlock:*",
    "&redisson_*",
    "&distlock_*",
    "+evalsha",
    "+eval",
    "+@read",
    "+@write",
    "+@hash",
    "+publish",
    "+subscribe",
    "+unsubscribe",
    "+ping",
    "+time",
    "+type",
    "+client|tracking",
    "+client|caching",
    "-@dangerous",
];

/// A server with TLS, and a user who has no more than those rights.
pub fn secured() -> RedisOptions {
    Redis::options()
        .tls()
        .user("app", "secret", RULES.iter().copied())
}

/// How that user reaches it.
pub fn secured_config(redis: &Redis) -> Config {
    let url = redis.tls_url().unwrap();
    let (_, port) = url.trim_end_matches('/').rsplit_once(':').unwrap();
    let mut config = config(&format!("127.0.0.1:{port}"));
    config.user = Some("app".into());
    config.password = Some(Secret::new("secret"));
    config.tls = Some(Tls {
        ca: Some(redis.certificates().unwrap().ca()),
        ..Tls::default()
    });
    config
}

/// How clients reach the master of this group.
pub fn sentinel_config(group: &RedisSentinel) -> Config {
    let sentinels = group.sentinel_addresses();
    let split = |a: &String| {
        let (host, port) = a.rsplit_once(':').unwrap();
        (host.to_owned(), port.parse().unwrap())
    };
    let mut config = Config::new(Endpoint::Sentinel {
        sentinels: sentinels.iter().map(split).collect(),
        master: "mymaster".into(),
    });
    config.timeout = 500 * MS;
    config.connect_timeout = 500 * MS;
    config
}
