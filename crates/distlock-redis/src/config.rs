//! What the engine needs to know to open: where the servers are, and how names and values look.

use std::path::PathBuf;
use std::time::Duration;

use distlock_core::{Key, Namespace, Secret};

use crate::replicas::MinReplicas;
use crate::slot;

/// How to reach Redis and how to write locks there.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Config {
    /// Where the server is, or who knows.
    pub endpoint: Endpoint,
    /// The database index.
    pub db: i64,
    /// The ACL user; the default user if `None`.
    pub user: Option<String>,
    /// The user's password.
    pub password: Option<Secret>,
    /// TLS, if it is to be used.
    pub tls: Option<Tls>,
    /// The format of the locks.
    pub layout: Layout,
    /// Exclusive tokens come from, and raise, the counter of Redisson's `RFencedLock`.
    pub fenced: bool,
    /// How long a connection may take, with its handshake.
    pub connect_timeout: Duration,
    /// How long an answer may take.
    pub timeout: Duration,
    /// The sentinels' own user and password.
    pub sentinel_user: Option<String>,
    /// See [`sentinel_user`](Self::sentinel_user).
    pub sentinel_password: Option<Secret>,
    /// Which replicas must have confirmed an acquisition before it is granted.
    pub min_replicas: MinReplicas,
    /// Each acquisition tells how long the server has had its data: for a quorum.
    pub(crate) aged: bool,
    /// The server is a node of a cluster.
    pub(crate) clustered: bool,
    /// A cluster's waiters are told by sharded publish/subscribe (Redis 7), as Redisson's are; `None`: if its servers
    /// have that.
    pub sharded: Option<bool>,
}

/// Where the server is.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Endpoint {
    /// One server.
    Tcp {
        /// Its host name or address.
        host: String,
        /// Its port.
        port: u16,
    },
    /// One server on this host.
    Unix(PathBuf),
    /// The present master of a group, as its sentinels say.
    Sentinel {
        /// The sentinels; any one that answers is enough.
        sentinels: Vec<(String, u16)>,
        /// The name of the group.
        master: String,
    },
    /// The masters of a cluster, each for its slots.
    Cluster {
        /// Some of the nodes; any one that answers is enough.
        nodes: Vec<(String, u16)>,
    },
}

/// TLS with the platform's root certificates unless a file is named.
#[derive(Debug, Clone, Default)]
pub struct Tls {
    /// A PEM file of root certificates.
    pub ca: Option<PathBuf>,
    /// A PEM file of our own certificate chain.
    pub cert: Option<PathBuf>,
    /// A PEM file of our own key.
    pub key: Option<PathBuf>,
}

/// The format of the locks.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Layout {
    /// Redisson's formats.
    #[default]
    Redisson,
    /// `SET name value NX PX ttl`.
    String {
        /// Put before every name (after the namespace was); such as `lock:` for Spring or redis-lock.
        prefix: String,
        /// How the value looks.
        value: ValueFormat,
    },
}

/// How the value of a lock looks in [`Layout::String`]. Every client compares values as a whole, so this matters to
/// people and tools only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ValueFormat {
    /// `<uuid>:<n>`: the owner as errors and `inspect` show it.
    #[default]
    Owner,
    /// 32 lower-case hexadecimal digits, as redis-py and node-redlock write.
    Hex,
}

impl Config {
    /// The defaults for an endpoint.
    pub fn new(endpoint: Endpoint) -> Self {
        let clustered = matches!(endpoint, Endpoint::Cluster { .. });
        Self {
            endpoint,
            db: 0,
            user: None,
            password: None,
            tls: None,
            layout: Layout::default(),
            fenced: false,
            connect_timeout: Duration::from_secs(2),
            timeout: Duration::from_secs(2),
            sentinel_user: None,
            sentinel_password: None,
            min_replicas: MinReplicas::default(),
            aged: false,
            clustered,
            sharded: None,
        }
    }

    /// One server by host and port.
    pub fn tcp(host: impl Into<String>, port: u16) -> Self {
        Self::new(Endpoint::Tcp {
            host: host.into(),
            port,
        })
    }

    /// The endpoint for people: no secrets.
    pub fn address(&self) -> String {
        match &self.endpoint {
            Endpoint::Tcp { host, port } => format!("{host}:{port}"),
            Endpoint::Unix(path) => path.display().to_string(),
            Endpoint::Cluster { nodes } => list(nodes),
            Endpoint::Sentinel { sentinels, master } => format!("{master} by {}", list(sentinels)),
        }
    }

    /// The name under which a lock is stored.
    pub(crate) fn stored(&self, namespace: &Namespace, key: &Key) -> String {
        let record = namespace.record(key);
        let record = match self.encodes(namespace) {
            true => slot::encode(record),
            false => record,
        };
        match &self.layout {
            Layout::String { prefix, .. } => [prefix, record.as_str()].concat(),
            Layout::Redisson => record,
        }
    }

    /// Whether braces in names are written so that they are no hash tag: in a cluster, unless names are exact.
    pub(crate) fn encodes(&self, namespace: &Namespace) -> bool {
        self.clustered && !namespace.is_exact()
    }
}

fn list(servers: &[(String, u16)]) -> String {
    let servers: Vec<_> = servers.iter().map(|(h, p)| format!("{h}:{p}")).collect();
    servers.join(",")
}
