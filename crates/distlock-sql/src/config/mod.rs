//! What the engine needs to know to open: where the servers are, and how locks are kept there.

mod url;

use std::path::PathBuf;
use std::time::Duration;

use distlock_core::Secret;
use distlock_core::driver::{DriverError, Refusal};

pub use self::url::parameters;

/// The kind of database.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// PostgreSQL 12 or newer.
    Postgres,
    /// MySQL 8 or newer, MariaDB 10.5 or newer.
    Mysql,
}

impl Dialect {
    /// The engine's name in errors and metrics.
    pub fn engine(self) -> &'static str {
        match self {
            Self::Postgres => "postgres",
            Self::Mysql => "mysql",
        }
    }

    fn port(self) -> u16 {
        match self {
            Self::Postgres => 5432,
            Self::Mysql => 3306,
        }
    }
}

/// How a lock is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Layout {
    /// A row per key with a lease (`mode=row`): survives reconnects and poolers, has tokens, sharing and lines.
    #[default]
    Row,
    /// The database's own session locks on a connection per lock (`mode=session`): free at once when the holder's
    /// connection ends.
    Session,
    /// The table of ShedLock (`layout=shedlock`), shared with Java's scheduled jobs: mutexes with a lease, without
    /// tokens.
    ShedLock,
}

/// A database server's address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Host {
    /// A host name or address, and a port.
    Tcp(String, u16),
    /// A unix socket: its file. For PostgreSQL also its directory, if the file is the usual `.s.PGSQL.5432`.
    Unix(PathBuf),
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

/// How to reach a database and how to keep locks there.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Config {
    /// The kind of database.
    pub dialect: Dialect,
    /// The servers, in the order in which they are tried; the first that takes writes is used.
    pub hosts: Vec<Host>,
    /// The user; the dialect's usual one if `None`.
    pub user: Option<String>,
    /// The user's password.
    pub password: Option<Secret>,
    /// The database; the user's own (PostgreSQL) if `None`. MySQL needs one.
    pub database: Option<String>,
    /// The table, optionally with its schema (`schema.table`).
    pub table: String,
    /// Whether the table is made when it is missing.
    pub create: bool,
    /// How locks are kept.
    pub layout: Layout,
    /// TLS, if it is to be used.
    pub tls: Option<Tls>,
    /// How many connections a runtime may open: PostgreSQL sends many statements at once over each, MySQL one.
    pub connections: u32,
    /// How long a connection may take, with its handshake.
    pub connect_timeout: Duration,
    /// How long a statement may take.
    pub timeout: Duration,
    /// How long the row of a key that nobody uses is kept.
    pub purge_after: Duration,
}

impl Config {
    /// The defaults for a dialect on this host.
    pub fn new(dialect: Dialect) -> Self {
        Self {
            dialect,
            hosts: vec![Host::Tcp("127.0.0.1".into(), dialect.port())],
            user: None,
            password: None,
            database: None,
            table: TABLE.into(),
            create: true,
            layout: Layout::Row,
            tls: None,
            connections: match dialect {
                Dialect::Postgres => 2,
                Dialect::Mysql => 16,
            },
            connect_timeout: Duration::from_secs(5),
            timeout: Duration::from_secs(5),
            purge_after: Duration::from_secs(24 * 3600),
        }
    }

    /// One server by host and port.
    pub fn tcp(dialect: Dialect, host: impl Into<String>, port: u16) -> Self {
        Self {
            hosts: vec![Host::Tcp(host.into(), port)],
            ..Self::new(dialect)
        }
    }

    /// Sets the user.
    #[must_use]
    pub fn user(mut self, user: impl Into<String>) -> Self {
        self.user = Some(user.into());
        self
    }

    /// Sets the password.
    #[must_use]
    pub fn password(mut self, password: impl Into<String>) -> Self {
        self.password = Some(Secret::new(password));
        self
    }

    /// Sets the database.
    #[must_use]
    pub fn database(mut self, database: impl Into<String>) -> Self {
        self.database = Some(database.into());
        self
    }

    /// Sets the table, optionally with its schema.
    #[must_use]
    pub fn table(mut self, table: impl Into<String>) -> Self {
        self.table = table.into();
        self
    }

    /// Sets how locks are kept. ShedLock's table is called `shedlock` unless another one is named.
    #[must_use]
    pub fn layout(mut self, layout: Layout) -> Self {
        self.layout = layout;
        if layout == Layout::ShedLock && self.table == TABLE {
            self.table = "shedlock".into();
        }
        self
    }

    /// The table as it is written in statements.
    pub(crate) fn quoted_table(&self) -> Result<String, DriverError> {
        let quote = match self.dialect {
            Dialect::Postgres => '"',
            Dialect::Mysql => '`',
        };
        let words: Vec<&str> = self.table.split('.').collect();
        let good = |w: &&str| {
            (1..=63).contains(&w.len())
                && w.chars()
                    .all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '$')
        };
        if words.len() > 2 || !words.iter().all(good) {
            let table = &self.table;
            return Err(invalid(format!(
                "table={table}: it may be a name, or schema.name, of ASCII letters, digits, _ and $, 1 to 63 each"
            )));
        }
        let quoted: Vec<String> = words.iter().map(|w| format!("{quote}{w}{quote}")).collect();
        Ok(quoted.join("."))
    }

    /// The statements that make the table, for those who make it themselves.
    ///
    /// # Errors
    /// [`Refusal::InvalidConfig`] for a bad table name, and for `mode=session`, which keeps no table.
    pub fn schema(&self) -> Result<String, DriverError> {
        if self.layout == Layout::Session {
            return Err(invalid("mode=session keeps no table".into()));
        }
        crate::table::ddl(self.dialect, self.layout, &self.quoted_table()?)
    }
}

const TABLE: &str = "distlock_locks";

pub(crate) fn invalid(why: String) -> DriverError {
    DriverError::refused(Refusal::InvalidConfig(why))
}
