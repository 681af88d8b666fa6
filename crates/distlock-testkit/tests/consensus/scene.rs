//! Servers, and worker processes that share locks at them.

use std::cell::Cell;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use distlock_core::driver::Mode;
use distlock_testkit::history::Recorder;
use distlock_testkit::servers::{Data, Etcd, Net, Process, StartError, ZooKeeper, eventually, or_skip};
use distlock_testkit::store::Store;
use distlock_testkit::worker::{Answer, Ask, Do, Fleet, Worker};
use tempfile::TempDir;

const SLACK: Duration = Duration::from_secs(1);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Engine {
    Etcd,
    ZooKeeper,
}

#[derive(Debug)]
enum Servers {
    Etcd(Etcd),
    ZooKeeper(ZooKeeper),
}

/// The servers, and what workers need.
pub(crate) struct Scene {
    pub(crate) fleet: Fleet,
    pub(crate) ttl: Duration,
    servers: Servers,
    /// The leader that something was done to.
    struck: Option<usize>,
    /// How long there was no leader at most.
    outage: Cell<Duration>,
    _store: Store,
    _dir: TempDir,
}

impl Scene {
    /// `ttl`: of the locks, and of the sessions. `None`: the server is not installed.
    pub(crate) async fn start(engine: Engine, servers: usize, ttl: Duration) -> Option<Self> {
        let started = match engine {
            Engine::Etcd => Etcd::start(servers).await.map(Servers::Etcd),
            Engine::ZooKeeper => ZooKeeper::start(servers).await.map(Servers::ZooKeeper),
        };
        Self::with(started, ttl)
    }

    /// Three servers, each on a host of its own.
    pub(crate) async fn start_on_hosts(engine: Engine, ttl: Duration) -> Option<Self> {
        let net = or_skip(Net::new(3))?;
        let started = match engine {
            Engine::Etcd => Etcd::start_on(net, 3).await.map(Servers::Etcd),
            Engine::ZooKeeper => ZooKeeper::start_on(net, 3).await.map(Servers::ZooKeeper),
        };
        Self::with(started, ttl)
    }

    fn with(started: Result<Servers, StartError>, ttl: Duration) -> Option<Self> {
        let servers = or_skip(started)?;
        let dir = TempDir::with_prefix("distlock-consensus-").unwrap();
        let recorder = Arc::new(Recorder::open(&dir.path().join("harness.jsonl"), 0).unwrap());
        let store = Store::start(&dir.path().join("store.sock"), recorder.clone()).unwrap();
        let mut fleet = Fleet::new(
            Path::new(env!("CARGO_BIN_EXE_distlock-worker")).to_owned(),
            String::new(),
            dir.path().to_owned(),
            store.path().to_owned(),
            recorder,
        );
        fleet.namespace = servers.net().map(Net::clients);
        let mut scene = Self {
            fleet,
            ttl,
            servers,
            struck: None,
            outage: Cell::default(),
            _store: store,
            _dir: dir,
        };
        scene.fleet.url = scene.url(None);
        Some(scene)
    }

    /// Names all servers, or this one.
    pub(crate) fn url(&self, only: Option<usize>) -> String {
        let (scheme, all, query) = match &self.servers {
            Servers::Etcd(etcd) => ("etcd", etcd.addresses(), String::new()),
            Servers::ZooKeeper(servers) => {
                let session = format!("/?session_timeout={}s", self.ttl.as_secs());
                ("zk", servers.addresses(), session)
            }
        };
        let named = match only {
            Some(n) => all[n].clone(),
            None => all.join(","),
        };
        format!("{scheme}://{named}{query}")
    }

    pub(crate) fn worker(&self) -> Worker {
        self.fleet.start().unwrap()
    }

    pub(crate) fn net(&self) -> &Net {
        self.servers.net().unwrap()
    }

    pub(crate) fn server(&mut self, n: usize) -> &mut Process {
        match &mut self.servers {
            Servers::Etcd(etcd) => etcd.member(n),
            Servers::ZooKeeper(servers) => servers.server(n),
        }
    }

    pub(crate) async fn restart(&mut self, n: usize) {
        match &mut self.servers {
            Servers::Etcd(etcd) => etcd.restart(n, Data::Keep).await,
            Servers::ZooKeeper(servers) => servers.restart(n, Data::Keep).await,
        }
        .unwrap();
    }

    pub(crate) async fn leader(&self) -> usize {
        let leader = eventually(Duration::from_secs(20), async || match &self.servers {
            Servers::Etcd(etcd) => etcd.leader().await,
            Servers::ZooKeeper(servers) => servers.leader().await,
        });
        leader.await.unwrap()
    }

    /// The leader, to which something will be done.
    pub(crate) async fn strike(&mut self) -> usize {
        let leader = self.leader().await;
        self.struck = Some(leader);
        leader
    }

    /// Resolves when there is a leader, and another one than the one that was struck.
    async fn led(&self) {
        while self.struck == Some(self.leader().await) {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// How long a dead holder can be in the way, `failover`: when the servers have lost their leader, too.
    pub(crate) fn recovery(&self, failover: bool) -> Duration {
        const ELECTION: Duration = Duration::from_millis(300);
        let session = match (&self.servers, failover) {
            (Servers::Etcd(_), false) => self.ttl + Duration::from_secs(1),
            // A new leader starts every lease anew.
            (Servers::Etcd(_), true) => self.ttl * 2 + ELECTION * 3 + Duration::from_secs(1),
            (Servers::ZooKeeper(_), false) => self.ttl + Duration::from_millis(200),
            (Servers::ZooKeeper(_), true) => self.ttl + Duration::from_millis(2400),
        };
        session + SLACK
    }

    /// What is asked for in these tests.
    pub(crate) fn ask(&self) -> Ask {
        Ask {
            key: "k".into(),
            mode: Mode::Mutex,
            fifo: true,
            ttl_ms: self.ttl.as_millis().try_into().unwrap(),
            wait_ms: None,
            renew: true,
        }
    }

    /// Takes the lock.
    pub(crate) async fn take(&self, worker: &Worker) -> (u64, u64) {
        granted(worker.ask(Do::Acquire(self.ask())).await.unwrap())
    }

    /// Takes a lock that nobody has, in time: on ZooKeeper, whose session client doubles its pauses, a client may come
    /// back later than the servers do, by as long as there was no leader.
    pub(crate) async fn serves(&self, worker: &Worker, within: Duration) {
        let start = Instant::now();
        let ask = Ask {
            key: "another".into(),
            ..self.ask()
        };
        let mut asked = std::pin::pin!(worker.ask(Do::Acquire(ask)));
        let answer = tokio::select! {
            answer = &mut asked => answer,
            () = self.led() => {
                self.outage.set(self.outage.get().max(start.elapsed()));
                asked.await
            }
        };
        let (hold, _) = granted(answer.unwrap());
        let took = start.elapsed();
        let later = match self.servers {
            Servers::Etcd(_) => Duration::ZERO,
            Servers::ZooKeeper(_) => self.outage.get(),
        };
        assert!(
            took < within + later,
            "served after {took:?}, {later:?} without a leader"
        );
        // "No" when the answer was lost with its connection: the core says `Unsure` then.
        release(worker, hold).await;
    }
}

impl Servers {
    fn net(&self) -> Option<&Net> {
        match self {
            Self::Etcd(etcd) => etcd.net(),
            Self::ZooKeeper(servers) => servers.net(),
        }
    }
}

#[track_caller]
pub(crate) fn granted(answer: Answer) -> (u64, u64) {
    match answer {
        Answer::Granted { hold, token } => (hold, token.unwrap()),
        other => panic!("not granted: {other:?}"),
    }
}

pub(crate) async fn release(worker: &Worker, hold: u64) -> Answer {
    worker.ask(Do::Release { hold }).await.unwrap()
}

pub(crate) async fn is_held(worker: &Worker, hold: u64) -> bool {
    worker.ask(Do::Held { hold }).await.unwrap() == Answer::Yes
}

/// Looks at a hold for so long: it must be there.
pub(crate) async fn stays_held(worker: &Worker, hold: u64, time: Duration) {
    let end = Instant::now() + time;
    while Instant::now() < end {
        assert!(is_held(worker, hold).await, "lost");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Waits for the loss of a hold; when it was told.
pub(crate) async fn loss(worker: &Worker, hold: u64) -> Instant {
    let answer = worker.ask(Do::Lost { hold }).await.unwrap();
    assert!(matches!(answer, Answer::Failed { .. }), "{answer:?}");
    Instant::now()
}

/// Each of these cells on both engines.
macro_rules! on_both {
    ($($cell:ident)*) => {
        mod etcd {
            use crate::scene::Engine;
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $cell() {
                super::$cell(Engine::Etcd).await;
            })*
        }
        mod zookeeper {
            use crate::scene::Engine;
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $cell() {
                super::$cell(Engine::ZooKeeper).await;
            })*
        }
    };
}
pub(crate) use on_both;
