//! The gates of etcd and ZooKeeper: by the guard itself, and by a token of any engine.

use async_trait::async_trait;
use distlock::{ErrorKind, Guard};
use distlock_etcd::{EtcdGate, GuardTxn};
use distlock_fence::FenceGate;
use distlock_zookeeper::{GuardMulti, MultiError, ZooKeeperGate};

use super::{FRESH, Gate, STALE, Ticket, admitted};
use crate::stores::{address, ask_etcd};

/// A key of etcd, past every gate: by the server's JSON gateway.
pub(super) struct InEtcd {
    address: String,
    key: &'static str,
}

impl InEtcd {
    /// "fresh" and "stale" as JSON for etcd has them.
    const CONTENTS: [(&str, &str); 2] = [(FRESH, "ZnJlc2g="), (STALE, "c3RhbGU=")];

    pub(super) fn at(url: &str, key: &'static str) -> Self {
        let address = address(url);
        Self { address, key }
    }

    async fn ask(&self, path: &str, value: &str) -> String {
        let body = format!(r#"{{"key": "{}"{value}}}"#, self.key);
        ask_etcd(&self.address, path, &body).await
    }

    async fn put(&self, content: &str) {
        let (_, value) = Self::CONTENTS.iter().find(|(text, _)| *text == content).unwrap();
        self.ask("/v3/kv/put", &format!(r#", "value": "{value}""#)).await;
    }

    async fn get(&self) -> String {
        let answer = self.ask("/v3/kv/range", "").await;
        let found = Self::CONTENTS.iter().find(|(_, value)| answer.contains(value));
        found.unwrap().0.to_owned()
    }
}

/// `guard.txn()`.
pub(super) struct EtcdByTxn(pub(super) InEtcd);

#[async_trait]
impl Gate for EtcdByTxn {
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
        self.0.put(content).await;
    }

    async fn read(&mut self) -> String {
        self.0.get().await
    }
}

pub(super) struct EtcdByToken {
    gate: EtcdGate,
    data: InEtcd,
}

impl EtcdByToken {
    pub(super) async fn connect(url: &str) -> Self {
        let config = distlock_etcd::Config::new([address(url)]);
        let gate = EtcdGate::connect(&config, "fence/").await.unwrap();
        let data = InEtcd::at(url, "Z2F0ZWQ=");
        Self { gate, data }
    }
}

#[async_trait]
impl Gate for EtcdByToken {
    async fn write(&mut self, ticket: Ticket, content: &str) -> bool {
        let writes = distlock_etcd::Writes::new().put("gated", content);
        admitted(self.gate.pass("gated", ticket.token(), writes).await)
    }

    async fn pass_by(&mut self, content: &str) {
        self.data.put(content).await;
    }

    async fn read(&mut self) -> String {
        self.data.get().await
    }
}

/// A node of ZooKeeper, past every gate: by another client of the servers.
pub(super) struct InZooKeeper {
    client: zookeeper_client::Client,
    node: &'static str,
}

impl InZooKeeper {
    pub(super) async fn connect(url: &str, node: &'static str) -> Self {
        use zookeeper_client::{Acls, Client, CreateMode};
        let client = Client::connect(&address(url)).await.unwrap();
        let options = CreateMode::Persistent.with_acls(Acls::anyone_all());
        client.create(node, b"", &options).await.unwrap();
        Self { client, node }
    }

    async fn set(&self, content: &str) {
        let content = content.as_bytes();
        self.client.set_data(self.node, content, None).await.unwrap();
    }

    async fn get(&self) -> String {
        String::from_utf8(self.client.get_data(self.node).await.unwrap().0).unwrap()
    }
}

/// `guard.multi()`.
pub(super) struct ZooKeeperByMulti(pub(super) InZooKeeper);

#[async_trait]
impl Gate for ZooKeeperByMulti {
    fn ticket(&self, guard: &Guard) -> Ticket {
        Ticket::ZooKeeper(guard.multi().unwrap())
    }

    async fn write(&mut self, ticket: Ticket, content: &str) -> bool {
        let Ticket::ZooKeeper(multi) = ticket else {
            panic!("no multi")
        };
        match multi.set(self.0.node, content, None).commit().await {
            Ok(()) => true,
            Err(MultiError::Lock(e)) if e.kind() == ErrorKind::NotHeld => false,
            Err(e) => panic!("{e}"),
        }
    }

    async fn pass_by(&mut self, content: &str) {
        self.0.set(content).await;
    }

    async fn read(&mut self) -> String {
        self.0.get().await
    }
}

pub(super) struct ZooKeeperByToken {
    gate: ZooKeeperGate,
    data: InZooKeeper,
}

impl ZooKeeperByToken {
    pub(super) async fn connect(url: &str) -> Self {
        let config = distlock_zookeeper::Config::new([address(url)]);
        let gate = ZooKeeperGate::connect(config, "/fence").await.unwrap();
        let data = InZooKeeper::connect(url, "/gated").await;
        Self { gate, data }
    }
}

#[async_trait]
impl Gate for ZooKeeperByToken {
    async fn write(&mut self, ticket: Ticket, content: &str) -> bool {
        let writes = distlock_zookeeper::Writes::new().set(self.data.node, content, None);
        admitted(self.gate.pass("gated", ticket.token(), writes).await)
    }

    async fn pass_by(&mut self, content: &str) {
        self.data.set(content).await;
    }

    async fn read(&mut self) -> String {
        self.data.get().await
    }
}
