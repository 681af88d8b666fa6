//! Every gate, with the tokens of every engine: of a hundred writes of former holders each is refused, and each lands
//! where the gate is passed by.

mod consensus;
mod databases;

use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use distlock::{FencingToken, Guard, Locks};
use distlock_etcd::Txn;
use distlock_fence::{FenceError, FenceGate, FenceLayer, FencedFile, MemoryGate, header};
use distlock_zookeeper::Multi;
use http::{Request, Response, StatusCode};
use tempfile::TempDir;
use tower::{Layer, ServiceExt, service_fn};

use crate::stores;
use consensus::{EtcdByToken, EtcdByTxn, InEtcd, InZooKeeper, ZooKeeperByMulti, ZooKeeperByToken};
use databases::{InMysql, InPostgres, InRedis};

const FRESH: &str = "fresh";
const STALE: &str = "stale";

/// What a holder has in its hands when it writes, perhaps much later.
enum Ticket {
    Token(FencingToken),
    Etcd(Txn),
    ZooKeeper(Multi),
}

impl Ticket {
    fn token(&self) -> FencingToken {
        match self {
            Self::Token(token) => *token,
            _ => panic!("a transaction of the store"),
        }
    }
}

/// Data, and the gate in front of it.
#[async_trait]
trait Gate: Send {
    fn ticket(&self, guard: &Guard) -> Ticket {
        Ticket::Token(guard.token().unwrap())
    }

    /// Whether it was admitted.
    async fn write(&mut self, ticket: Ticket, content: &str) -> bool;

    /// Writes past the gate.
    async fn pass_by(&mut self, content: &str);

    async fn read(&mut self) -> String;
}

pub(crate) async fn refuse_stale_writes(url: &str, a: &Locks, b: &Locks) {
    let mut gates: Vec<Box<dyn Gate>> = vec![
        Box::new(Memory::default()),
        Box::new(Service::default()),
        Box::new(File::new()),
    ];
    match a.capabilities().engine {
        "redis" => gates.push(Box::new(InRedis(stores::redis(url).await))),
        "redis-cluster" => gates.push(Box::new(InRedis(stores::redis_cluster(url).await))),
        "postgres" => gates.push(Box::new(InPostgres::connect(url).await)),
        "mysql" => gates.push(Box::new(InMysql::connect(url).await)),
        "etcd" => {
            gates.push(Box::new(EtcdByTxn(InEtcd::at(url, "ZGF0YQ=="))));
            gates.push(Box::new(EtcdByToken::connect(url).await));
        }
        "zookeeper" => {
            gates.push(Box::new(ZooKeeperByMulti(
                InZooKeeper::connect(url, "/data").await,
            )));
            gates.push(Box::new(ZooKeeperByToken::connect(url).await));
        }
        _ => {}
    }
    let mut former: Vec<Ticket> = Vec::new();
    let (mut refused, mut landed) = (0, 0);
    for n in 0..=100 {
        let locks = if n % 2 == 0 { a } else { b };
        let guard = locks.mutex("fenced").fenced().acquire().await.unwrap();
        for gate in &mut gates {
            assert!(gate.write(gate.ticket(&guard), FRESH).await);
        }
        // Former holders, who were stopped between their last look and their write.
        for (gate, ticket) in gates.iter_mut().zip(former) {
            refused += usize::from(!gate.write(ticket, STALE).await);
            assert_eq!(gate.read().await, FRESH);
            gate.pass_by(STALE).await;
            landed += usize::from(gate.read().await == STALE);
        }
        former = gates.iter().map(|gate| gate.ticket(&guard)).collect();
        guard.release().await.unwrap();
    }
    assert_eq!((refused, landed), (100 * gates.len(), 100 * gates.len()));
}

fn admitted<T>(done: Result<T, FenceError>) -> bool {
    match done {
        Ok(_) => true,
        Err(e) if e.is_stale() => false,
        Err(e) => panic!("{e}"),
    }
}

#[derive(Default)]
struct Memory {
    gate: MemoryGate,
    data: Arc<Mutex<String>>,
}

#[async_trait]
impl Gate for Memory {
    async fn write(&mut self, ticket: Ticket, content: &str) -> bool {
        let write = || content.clone_into(&mut self.data.lock().unwrap());
        admitted(self.gate.pass("data", ticket.token(), write).await)
    }

    async fn pass_by(&mut self, content: &str) {
        content.clone_into(&mut self.data.lock().unwrap());
    }

    async fn read(&mut self) -> String {
        self.data.lock().unwrap().clone()
    }
}

/// An HTTP service, and the layer that checks the header.
#[derive(Default)]
struct Service {
    gate: MemoryGate,
    data: Arc<Mutex<String>>,
}

#[async_trait]
impl Gate for Service {
    async fn write(&mut self, ticket: Ticket, content: &str) -> bool {
        let data = self.data.clone();
        let service = service_fn(move |request: Request<String>| {
            request.body().clone_into(&mut data.lock().unwrap());
            std::future::ready(Ok::<_, Infallible>(Response::new(String::new())))
        });
        let request = Request::put("/data").header(header::NAME, ticket.token().to_string());
        let layer = FenceLayer::new(self.gate.clone());
        let answer = layer
            .layer(service)
            .oneshot(request.body(content.to_owned()).unwrap())
            .await
            .unwrap();
        match answer.status() {
            StatusCode::OK => true,
            StatusCode::PRECONDITION_FAILED => false,
            other => panic!("{other}"),
        }
    }

    async fn pass_by(&mut self, content: &str) {
        content.clone_into(&mut self.data.lock().unwrap());
    }

    async fn read(&mut self) -> String {
        self.data.lock().unwrap().clone()
    }
}

struct File {
    path: PathBuf,
    gate: FencedFile,
    _dir: TempDir,
}

impl File {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("data");
        Self {
            gate: FencedFile::new(&path),
            path,
            _dir: dir,
        }
    }
}

#[async_trait]
impl Gate for File {
    async fn write(&mut self, ticket: Ticket, content: &str) -> bool {
        admitted(self.gate.replace(ticket.token(), content))
    }

    async fn pass_by(&mut self, content: &str) {
        std::fs::write(&self.path, content).unwrap();
    }

    async fn read(&mut self) -> String {
        std::fs::read_to_string(&self.path).unwrap()
    }
}
