//! Every gate, with the tokens of every engine: of a hundred writes of former holders each is refused, and each lands
//! where the gate is passed by.

use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use distlock::sql::tx::{self, MysqlTx, TxError};
use distlock::{ErrorKind, FencingToken, Guard, Locks};
use distlock_etcd::{GuardTxn, Txn};
use distlock_fence::{FenceError, FenceGate, FenceLayer, FencedFile, MemoryGate, header};
use distlock_zookeeper::{GuardMulti, Multi, MultiError};
use http::{Request, Response, StatusCode};
use mysql_async::prelude::Queryable;
use tempfile::TempDir;
use tower::{Layer, ServiceExt, service_fn};

use crate::stores::{self, address, ask_etcd};

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
        "postgres" => gates.push(Box::new(InPostgres::connect(url).await)),
        "mysql" => gates.push(Box::new(InMysql::connect(url).await)),
        "etcd" => gates.push(Box::new(InEtcd(address(url)))),
        "zookeeper" => gates.push(Box::new(InZooKeeper::connect(&address(url)).await)),
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

struct InRedis(redis::aio::MultiplexedConnection);

#[async_trait]
impl Gate for InRedis {
    async fn write(&mut self, ticket: Ticket, content: &str) -> bool {
        let set = distlock_redis::guarded_set(&mut self.0, "data", content.as_bytes(), ticket.token());
        set.await.unwrap().is_ok()
    }

    async fn pass_by(&mut self, content: &str) {
        let set = redis::cmd("SET").arg("data").arg(content).to_owned();
        set.exec_async(&mut self.0).await.unwrap();
    }

    async fn read(&mut self) -> String {
        redis::cmd("GET")
            .arg("data")
            .query_async(&mut self.0)
            .await
            .unwrap()
    }
}

/// The token is checked in the transaction that writes.
struct InPostgres(tokio_postgres::Client);

impl InPostgres {
    async fn connect(url: &str) -> Self {
        let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await.unwrap();
        tokio::spawn(connection);
        let ddl = tx::fence_schema_postgres("fences").unwrap();
        client.batch_execute(&ddl).await.unwrap();
        let table = "CREATE TABLE data (v text NOT NULL); INSERT INTO data VALUES ('')";
        client.batch_execute(table).await.unwrap();
        Self(client)
    }
}

#[async_trait]
impl Gate for InPostgres {
    async fn write(&mut self, ticket: Ticket, content: &str) -> bool {
        let transaction = self.0.transaction().await.unwrap();
        match tx::fence_postgres(&transaction, "fences", "data", ticket.token()).await {
            Ok(()) => {}
            Err(TxError::Stale { .. }) => return false,
            Err(e) => panic!("{e}"),
        }
        transaction
            .execute("UPDATE data SET v = $1", &[&content])
            .await
            .unwrap();
        transaction.commit().await.unwrap();
        true
    }

    async fn pass_by(&mut self, content: &str) {
        self.0
            .execute("UPDATE data SET v = $1", &[&content])
            .await
            .unwrap();
    }

    async fn read(&mut self) -> String {
        self.0.query_one("SELECT v FROM data", &[]).await.unwrap().get(0)
    }
}

struct InMysql {
    connection: mysql_async::Conn,
    gate: MysqlTx,
}

impl InMysql {
    async fn connect(url: &str) -> Self {
        let options = mysql_async::Opts::from_url(url).unwrap();
        let mut connection = mysql_async::Conn::new(options).await.unwrap();
        let gate = MysqlTx::new("tx_locks", "fences").unwrap();
        for ddl in gate.schema() {
            connection.query_drop(ddl).await.unwrap();
        }
        let table = "CREATE TABLE data (id int PRIMARY KEY, v varchar(20) NOT NULL)";
        connection.query_drop(table).await.unwrap();
        connection
            .query_drop("INSERT INTO data VALUES (1, '')")
            .await
            .unwrap();
        Self { connection, gate }
    }
}

#[async_trait]
impl Gate for InMysql {
    async fn write(&mut self, ticket: Ticket, content: &str) -> bool {
        let options = mysql_async::TxOpts::default();
        let mut transaction = self.connection.start_transaction(options).await.unwrap();
        match self.gate.fence(&mut transaction, "data", ticket.token()).await {
            Ok(()) => {}
            Err(TxError::Stale { .. }) => {
                transaction.rollback().await.unwrap();
                return false;
            }
            Err(e) => panic!("{e}"),
        }
        transaction
            .exec_drop("UPDATE data SET v = ?", (content,))
            .await
            .unwrap();
        transaction.commit().await.unwrap();
        true
    }

    async fn pass_by(&mut self, content: &str) {
        self.connection
            .exec_drop("UPDATE data SET v = ?", (content,))
            .await
            .unwrap();
    }

    async fn read(&mut self) -> String {
        self.connection
            .query_first("SELECT v FROM data")
            .await
            .unwrap()
            .unwrap()
    }
}

/// `guard.txn()`; what passes it by goes through the server's JSON gateway.
struct InEtcd(String);

impl InEtcd {
    /// "data", "fresh" and "stale" as JSON for etcd has them.
    const KEY: &str = "ZGF0YQ==";
    const CONTENTS: [(&str, &str); 2] = [(FRESH, "ZnJlc2g="), (STALE, "c3RhbGU=")];

    async fn ask(&self, path: &str, value: &str) -> String {
        ask_etcd(&self.0, path, &format!(r#"{{"key": "{}"{value}}}"#, Self::KEY)).await
    }
}

#[async_trait]
impl Gate for InEtcd {
    fn ticket(&self, guard: &Guard) -> Ticket {
        Ticket::Etcd(guard.txn().unwrap())
    }

    async fn write(&mut self, ticket: Ticket, content: &str) -> bool {
        let Ticket::Etcd(txn) = ticket else {
            panic!("no transaction")
        };
        match txn.put("data", content).commit().await {
            Ok(_) => true,
            Err(e) if e.kind() == ErrorKind::NotHeld => false,
            Err(e) => panic!("{e}"),
        }
    }

    async fn pass_by(&mut self, content: &str) {
        let (_, value) = Self::CONTENTS.iter().find(|(text, _)| *text == content).unwrap();
        self.ask("/v3/kv/put", &format!(r#", "value": "{value}""#)).await;
    }

    async fn read(&mut self) -> String {
        let answer = self.ask("/v3/kv/range", "").await;
        let found = Self::CONTENTS.iter().find(|(_, value)| answer.contains(value));
        found.unwrap().0.to_owned()
    }
}

/// `guard.multi()`; another client of the servers passes it by.
struct InZooKeeper(zookeeper_client::Client);

impl InZooKeeper {
    async fn connect(address: &str) -> Self {
        use zookeeper_client::{Acls, Client, CreateMode};
        let client = Client::connect(address).await.unwrap();
        let options = CreateMode::Persistent.with_acls(Acls::anyone_all());
        client.create("/data", b"", &options).await.unwrap();
        Self(client)
    }
}

#[async_trait]
impl Gate for InZooKeeper {
    fn ticket(&self, guard: &Guard) -> Ticket {
        Ticket::ZooKeeper(guard.multi().unwrap())
    }

    async fn write(&mut self, ticket: Ticket, content: &str) -> bool {
        let Ticket::ZooKeeper(multi) = ticket else {
            panic!("no multi")
        };
        match multi.set("/data", content, None).commit().await {
            Ok(()) => true,
            Err(MultiError::Lock(e)) if e.kind() == ErrorKind::NotHeld => false,
            Err(e) => panic!("{e}"),
        }
    }

    async fn pass_by(&mut self, content: &str) {
        self.0.set_data("/data", content.as_bytes(), None).await.unwrap();
    }

    async fn read(&mut self) -> String {
        String::from_utf8(self.0.get_data("/data").await.unwrap().0).unwrap()
    }
}
