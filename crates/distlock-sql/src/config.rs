//! What the engine needs to know to open: where the servers are, and how locks are kept there.

use std::path::PathBuf;
use std::time::Duration;

use distlock_core::Secret;
use distlock_core::driver::{DriverError, Refusal};

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

/// The query parameters that [`Config::set`] knows.
pub fn parameters() -> &'static [&'static str] {
    &[
        "mode",
        "layout",
        "table",
        "create",
        "tls",
        "ca",
        "cert",
        "key",
        "connections",
        "connect_timeout",
        "timeout",
        "purge_after",
    ]
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

    /// From the parts of a URL, percent-decoded already: `mysql://` or `postgres://`, user information, hosts with
    /// ports (none: the host `127.0.0.1`; a host that starts with `/` is a unix socket) and the path, which names
    /// the database. Query parameters follow with [`set`](Self::set).
    ///
    /// # Errors
    /// [`Refusal::InvalidConfig`] for another scheme.
    pub fn from_url(
        scheme: &str,
        user: Option<&str>,
        password: Option<&str>,
        hosts: &[(&str, Option<u16>)],
        path: &str,
    ) -> Result<Self, DriverError> {
        let dialect = match scheme {
            "postgres" | "postgresql" => Dialect::Postgres,
            "mysql" | "mariadb" => Dialect::Mysql,
            other => {
                return Err(invalid(format!(
                    "{other}:// is not a database; use mysql:// or postgres://"
                )));
            }
        };
        let mut config = Self::new(dialect);
        config.user = user.filter(|u| !u.is_empty()).map(Into::into);
        config.password = password.map(Secret::new);
        config.database = Some(path.trim_matches('/'))
            .filter(|d| !d.is_empty())
            .map(Into::into);
        let named: Vec<Host> = hosts
            .iter()
            .filter(|(host, _)| !host.is_empty())
            .map(|&(host, port)| match host.starts_with('/') {
                true => Host::Unix(host.into()),
                false => Host::Tcp(host.into(), port.unwrap_or(dialect.port())),
            })
            .collect();
        if !named.is_empty() {
            config.hosts = named;
        }
        Ok(config)
    }

    /// Sets one query parameter of a URL; see [`parameters`].
    ///
    /// # Errors
    /// [`Refusal::InvalidConfig`] for an unknown name or a value out of range; it says what is allowed.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), DriverError> {
        match name {
            "mode" => match (value, self.layout) {
                ("row", Layout::Session) => self.layout = Layout::Row,
                ("row", _) => {}
                ("session", Layout::ShedLock) => return Err(shedlock_has_rows()),
                ("session", _) => self.layout = Layout::Session,
                _ => return Err(invalid(format!("mode={value}: it may be row or session"))),
            },
            "layout" => match (value, self.layout) {
                ("distlock", Layout::ShedLock) => self.layout = Layout::Row,
                ("distlock", _) => {}
                ("shedlock", Layout::Session) => return Err(shedlock_has_rows()),
                ("shedlock", _) => *self = self.clone().layout(Layout::ShedLock),
                _ => return Err(invalid(format!("layout={value}: it may be distlock or shedlock"))),
            },
            "table" => {
                self.table = value.into();
                self.quoted_table()?;
            }
            "create" => self.create = boolean(name, value)?,
            "tls" => {
                self.tls = match boolean(name, value)? {
                    true => Some(self.tls.take().unwrap_or_default()),
                    false => None,
                }
            }
            "ca" => self.tls.get_or_insert_default().ca = Some(value.into()),
            "cert" => self.tls.get_or_insert_default().cert = Some(value.into()),
            "key" => self.tls.get_or_insert_default().key = Some(value.into()),
            "connections" => {
                self.connections = value
                    .parse()
                    .ok()
                    .filter(|n| (1..=1000).contains(n))
                    .ok_or_else(|| invalid(format!("connections={value}: it may be 1 to 1000")))?;
            }
            "connect_timeout" => self.connect_timeout = duration(name, value, MAX_TIMEOUT)?,
            "timeout" => self.timeout = duration(name, value, MAX_TIMEOUT)?,
            "purge_after" => self.purge_after = duration(name, value, distlock_core::driver::MAX_TTL)?,
            _ => {
                let known = parameters().join(", ");
                return Err(invalid(format!("unknown parameter {name}; known are {known}")));
            }
        }
        Ok(())
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
const MAX_TIMEOUT: Duration = Duration::from_secs(600);

fn shedlock_has_rows() -> DriverError {
    invalid("layout=shedlock keeps locks as rows; it cannot be combined with mode=session".into())
}

pub(crate) fn invalid(why: String) -> DriverError {
    DriverError::refused(Refusal::InvalidConfig(why))
}

fn boolean(name: &str, value: &str) -> Result<bool, DriverError> {
    match value {
        "true" | "yes" | "on" | "1" => Ok(true),
        "false" | "no" | "off" | "0" => Ok(false),
        _ => Err(invalid(format!("{name}={value}: it may be true or false"))),
    }
}

/// `500ms`, `5s`, `10m`, `24h`, `7d`.
fn duration(name: &str, value: &str, max: Duration) -> Result<Duration, DriverError> {
    let end = value.find(|c: char| !c.is_ascii_digit()).unwrap_or(value.len());
    let (number, unit) = value.split_at(end);
    let unit = match unit {
        "ms" => Some(1),
        "s" => Some(1000),
        "m" => Some(60 * 1000),
        "h" => Some(3600 * 1000),
        "d" => Some(24 * 3600 * 1000),
        _ => None,
    };
    let millis = unit.and_then(|unit| number.parse::<u64>().ok()?.checked_mul(unit));
    millis
        .map(Duration::from_millis)
        .filter(|d| *d >= Duration::from_millis(1) && *d <= max)
        .ok_or_else(|| {
            invalid(format!(
                "{name}={value}: it may be 1ms to {max:?}, written like 500ms, 5s or 10m"
            ))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_hosts_sockets_and_parameters() {
        let hosts = [("db1", None), ("db2", Some(6000))];
        let mut config = Config::from_url("postgres", Some("app"), Some("s3cret"), &hosts, "/shop").unwrap();
        config.set("table", "ops.locks").unwrap();
        config.set("timeout", "750ms").unwrap();
        assert_eq!(
            config.hosts,
            [Host::Tcp("db1".into(), 5432), Host::Tcp("db2".into(), 6000)]
        );
        assert_eq!(config.quoted_table().unwrap(), "\"ops\".\"locks\"");
        assert_eq!(config.timeout, Duration::from_millis(750));
        assert!(!format!("{config:?}").contains("s3cret"));
        let socket =
            Config::from_url("mysql", None, None, &[("/run/mysqld/mysqld.sock", None)], "/d").unwrap();
        assert_eq!(socket.hosts, [Host::Unix("/run/mysqld/mysqld.sock".into())]);
    }

    #[test]
    fn bad_values_say_what_is_allowed() {
        let mut config = Config::new(Dialect::Mysql);
        for (name, value, says) in [
            ("mode", "x", "row or session"),
            ("table", "a b", "ASCII letters"),
            ("table", "a`; DROP", "ASCII letters"),
            ("timeout", "0s", "1ms to"),
            ("timeout", "5", "1ms to"),
            ("connections", "0", "1 to 1000"),
            ("colour", "red", "known are mode"),
        ] {
            let e = config.set(name, value).unwrap_err();
            assert!(e.to_string().contains(says), "{name}={value}: {e}");
        }
    }
}
