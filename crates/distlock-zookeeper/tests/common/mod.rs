//! What the tests of the ZooKeeper engine share.
#![allow(dead_code, clippy::unwrap_used, unreachable_pub, missing_docs)]

use std::sync::Arc;
use std::time::Duration;

use distlock_core::bell::Bell;
use distlock_core::clock::Clock;
use distlock_core::driver::{Driver, Hold, Life, Line, Mode, Order, Renewal, Want};
use distlock_core::engine::{Engine, EngineThread};
use distlock_core::{Client, Key, Namespace};
use distlock_zookeeper::Config;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

pub const MS: Duration = Duration::from_millis(1);

pub fn config(hosts: &[String], session: Duration) -> Config {
    let mut config = Config::new(hosts);
    config.session_timeout = session;
    config.connect_timeout = 20_000 * MS;
    config
}

/// A client as users have it.
pub async fn client(config: Config) -> Client {
    let open = move |engine| async move { distlock_zookeeper::open(engine, config).await };
    Client::builder().label("tester").build(open).await.unwrap()
}

/// One client at the level of the engine port.
pub struct Peer {
    pub driver: Arc<dyn Driver>,
    pub engine: Engine,
    _thread: EngineThread,
}

impl Peer {
    pub async fn new(config: Config) -> Self {
        Self::in_namespace(config, Namespace::default()).await
    }

    pub async fn in_namespace(config: Config, namespace: Namespace) -> Self {
        let (engine, thread) = Engine::start(Clock::boot(), namespace, Some("tester".into())).unwrap();
        let driver = distlock_zookeeper::open(engine.clone(), config).await.unwrap();
        Self {
            driver,
            engine,
            _thread: thread,
        }
    }

    pub fn want(&self, key: &str, mode: Mode) -> Arc<Want> {
        Arc::new(Want {
            key: Key::new(key).unwrap(),
            owner: self.engine.owners().next(),
            mode,
            order: Order::Any,
            line: Line::Join,
            life: Life::Process,
            ttl: *self.driver.promises().ttl.end(),
            label: self.engine.label().cloned(),
            reason: None,
            bell: Bell::new(),
        })
    }

    pub async fn renew(&self, want: &Arc<Want>) -> Renewal {
        let holds = [Hold {
            want: want.clone(),
            mark: 0,
            ttl: want.ttl,
            floor: None,
        }];
        let answers = std::sync::Mutex::new(Vec::new());
        self.driver
            .renew(&holds, &|_, renewal| answers.lock().unwrap().push(renewal))
            .await;
        answers.into_inner().unwrap().pop().unwrap()
    }
}

/// Asks until it is true; fails after 30 s.
pub async fn until(what: &str, mut look: impl AsyncFnMut() -> bool) {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(30);
    while !look().await {
        assert!(tokio::time::Instant::now() < deadline, "not within 30 s: {what}");
        tokio::time::sleep(10 * MS).await;
    }
}

/// The session that owns the first ephemeral node under `path`, as the server's `dump` tells it.
pub fn owner_of(dump: &str, path: &str) -> Option<i64> {
    let mut session = None;
    for line in dump.lines() {
        if let Some(id) = line.strip_prefix("0x") {
            session = u64::from_str_radix(id.trim_end_matches(':'), 16).ok();
        } else if line.trim().starts_with(path) {
            return session.map(u64::cast_signed);
        }
    }
    None
}

/// Closes somebody's session as an administrator can: a session's password is the start of `java.util.Random`'s
/// sequence for its number and a constant of the server (`SessionTrackerImpl`).
pub async fn kill_session(server: &str, id: i64) {
    let mut seed = ((id ^ 0xB341_5C00) ^ 0x5_DEEC_E66D) & ((1 << 48) - 1);
    let mut password = Vec::new();
    while password.len() < 16 {
        seed = seed.wrapping_mul(0x5_DEEC_E66D).wrapping_add(0xB) & ((1 << 48) - 1);
        let word = (seed >> 16) as i32;
        password.extend(word.to_le_bytes());
    }
    let mut hello = Vec::new();
    hello.extend(0_i32.to_be_bytes()); // protocol
    hello.extend(0_i64.to_be_bytes()); // last zxid seen
    hello.extend(10_000_i32.to_be_bytes()); // timeout
    hello.extend(id.to_be_bytes());
    hello.extend(16_i32.to_be_bytes());
    hello.extend(password);
    hello.push(0); // not read-only
    let close = [1_i32.to_be_bytes(), (-11_i32).to_be_bytes()].concat();
    let both = [framed(&hello), framed(&close)].concat();
    // On the server of its owner, this one may throw us out before we are answered.
    until("the session is closed", async || {
        let mut stream = TcpStream::connect(server).await.unwrap();
        if stream.write_all(&both).await.is_err() {
            return false;
        }
        let Some(answer) = receive(&mut stream).await else {
            return false;
        };
        let given = i64::from_be_bytes(answer[8..16].try_into().unwrap());
        // Not given: it does not exist any more.
        given != id || receive(&mut stream).await.is_some()
    })
    .await;
}

fn framed(body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len()).unwrap().to_be_bytes();
    [&length, body].concat()
}

async fn receive(stream: &mut TcpStream) -> Option<Vec<u8>> {
    let length = stream.read_u32().await.ok()?;
    let mut body = vec![0; length as usize];
    stream.read_exact(&mut body).await.ok()?;
    Some(body)
}
