//! The one connection of a session, of either dialect.

use distlock_core::driver::DriverError;
use distlock_core::engine::Engine;
use mysql_async::Conn;
use mysql_async::prelude::Queryable;
use tokio::sync::oneshot;
use tokio_postgres::Client;

use crate::config::{Config, Dialect};
use crate::fault::Fault;
use crate::hash::name_hash;
use crate::{mysql, postgres};

/// Opens sessions.
#[derive(Debug)]
pub(super) struct Dialer {
    engine: Engine,
    database: String,
    to: To,
}

#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "there is one for each driver")]
enum To {
    Postgres(postgres::Connector),
    Mysql(mysql::Connector),
}

/// A session that is open.
#[derive(Debug)]
pub(super) enum Link {
    Postgres(Client),
    Mysql {
        conn: Box<Conn>,
        database: String,
        /// Dropped with the connection, which ends the watch over it.
        _over: oneshot::Sender<()>,
    },
}

/// The server drops a silent peer after about 20 s; without that, a host that lost its power would hold its locks
/// for hours.
const POSTGRES_SILENCE: &str = "SELECT set_config(name, CASE name WHEN 'tcp_keepalives_count' THEN '3' \
    WHEN 'tcp_user_timeout' THEN '20000' ELSE '5' END, false) FROM pg_settings \
    WHERE name IN ('tcp_keepalives_idle', 'tcp_keepalives_interval', 'tcp_keepalives_count', 'tcp_user_timeout')";
const MYSQL_SILENCE: &str = "SET SESSION wait_timeout = 20, net_read_timeout = 20, net_write_timeout = 20";

impl Dialer {
    pub(super) fn new(engine: Engine, config: &Config) -> Result<Self, DriverError> {
        let to = match config.dialect {
            Dialect::Postgres => To::Postgres(postgres::Connector::new(config)?),
            Dialect::Mysql => To::Mysql(mysql::Connector::new(config)?),
        };
        Ok(Self {
            engine,
            database: config.database.clone().unwrap_or_default(),
            to,
        })
    }

    /// Opens a session to the server itself; one that a pooler or proxy shares out is refused.
    pub(super) async fn dial(&self, over: oneshot::Sender<()>) -> Result<Link, Fault> {
        match &self.to {
            To::Postgres(connector) => {
                let heard = move |_| {
                    let _ = &over;
                };
                let client = connector.connect_with(&self.engine, heard).await?;
                client
                    .batch_execute(POSTGRES_SILENCE)
                    .await
                    .map_err(|e| postgres::fault(e, false))?;
                if postgres::is_pooled(connector, &self.engine, &client).await? {
                    let why = "mode=session behind a pooler in transaction or statement mode: two of our sessions \
                        share one server process; connect to PostgreSQL itself, or set pool_mode = session";
                    return Err(Fault::Denied(why.into()));
                }
                Ok(Link::Postgres(client))
            }
            To::Mysql(connector) => {
                let mut conn = connector.connect(self.engine.clock()).await?;
                conn.query_drop(MYSQL_SILENCE)
                    .await
                    .map_err(|e| mysql::fault(e, false))?;
                let id: Option<u64> = conn
                    .query_first("SELECT CONNECTION_ID()")
                    .await
                    .map_err(|e| mysql::fault(e, false))?;
                if id != Some(conn.id().into()) {
                    let why = "mode=session behind a proxy: the server numbers our session differently than the \
                        greeting did; connect to the server itself";
                    return Err(Fault::Denied(why.into()));
                }
                Ok(Link::Mysql {
                    conn: Box::new(conn),
                    database: self.database.clone(),
                    _over: over,
                })
            }
        }
    }
}

/// A name for `GET_LOCK`, which knows at most 64 characters, folds case, and has one space for all databases of a
/// server: a readable beginning, and the hash of database and name.
fn lock_name(database: &str, name: &str) -> String {
    let readable: String = name.chars().filter(|c| c.is_ascii_graphic()).take(40).collect();
    format!("{readable}#{:016x}", name_hash(&format!("{database}\n{name}")))
}

impl Link {
    pub(super) fn is_over(&self) -> bool {
        match self {
            Self::Postgres(client) => client.is_closed(),
            Self::Mysql { conn, .. } => conn.is_disconnected(),
        }
    }

    /// Takes a lock without waiting.
    pub(super) async fn take(&mut self, name: &str, id: i64) -> Result<bool, Fault> {
        match self {
            Self::Postgres(client) => boolean(client, "SELECT pg_try_advisory_lock($1)", id).await,
            Self::Mysql { conn, database, .. } => {
                let name = lock_name(database, name);
                let got = conn
                    .exec_first::<Option<i64>, _, _>("SELECT GET_LOCK(?, 0)", (name,))
                    .await;
                match got.map_err(|e| mysql::fault(e, true))?.flatten() {
                    Some(got) => Ok(got == 1),
                    // Out of memory, or killed: not an answer.
                    None => Err(Fault::Unable("GET_LOCK gave NULL".into())),
                }
            }
        }
    }

    /// Gives a lock back; whether the session had it.
    pub(super) async fn give(&mut self, name: &str, id: i64) -> Result<bool, Fault> {
        match self {
            Self::Postgres(client) => boolean(client, "SELECT pg_advisory_unlock($1)", id).await,
            Self::Mysql { conn, database, .. } => {
                let name = lock_name(database, name);
                let gave = conn
                    .exec_first::<Option<i64>, _, _>("SELECT RELEASE_LOCK(?)", (name,))
                    .await;
                Ok(gave.map_err(|e| mysql::fault(e, true))?.flatten() == Some(1))
            }
        }
    }

    pub(super) async fn ping(&mut self) -> Result<(), Fault> {
        match self {
            Self::Postgres(client) => client
                .batch_execute("")
                .await
                .map_err(|e| postgres::fault(e, true)),
            Self::Mysql { conn, .. } => conn.ping().await.map_err(|e| mysql::fault(e, true)),
        }
    }
}

async fn boolean(client: &Client, sql: &str, id: i64) -> Result<bool, Fault> {
    let params: [(&(dyn tokio_postgres::types::ToSql + Sync), _); 1] =
        [(&id, tokio_postgres::types::Type::INT8)];
    let rows = client
        .query_typed(sql, &params)
        .await
        .map_err(|e| postgres::fault(e, true))?;
    rows.first()
        .map(|row| row.get(0))
        .ok_or_else(|| Fault::Unable("no answer".into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f98_long_names_keep_their_difference() {
        let long = "x".repeat(600);
        let (a, b) = (
            lock_name("d", &format!("{long}a")),
            lock_name("d", &format!("{long}b")),
        );
        assert!(a != b && a.len() <= 64 && b.len() <= 64);
        assert!(!lock_name("d", "A").eq_ignore_ascii_case(&lock_name("d", "a")));
        assert_ne!(lock_name("d1", "a"), lock_name("d2", "a"));
    }
}
