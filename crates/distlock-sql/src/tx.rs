//! Locks inside a transaction of your own: held exactly until its commit or rollback, without a release call.
//!
//! They are a lock space of their own: they exclude each other, and do **not** exclude a `mutex` of the same name,
//! which outlives transactions. Use them when everything that the lock guards happens in the one transaction.
//!
//! ```no_run
//! # async fn example(client: &mut tokio_postgres::Client) -> Result<(), distlock_sql::tx::TxError> {
//! use distlock_core::{Key, Namespace};
//! use distlock_sql::tx::{self, TxWait};
//!
//! let key = Key::new("account:7").unwrap();
//! let tx = client.transaction().await?;
//! tx::lock_postgres(&tx, &Namespace::default(), &key, TxWait::Forever).await?;
//! // read, decide, write in `tx`
//! tx.commit().await?; // the lock is free now, and not a moment earlier
//! # Ok(()) }
//! ```

use std::fmt;
use std::time::Duration;

use distlock_core::driver::DriverError;
use distlock_core::{FencingToken, Key, Namespace};
use mysql_async::prelude::Queryable;

use crate::config::{Config, Dialect};
use crate::fault::Fault;
pub use crate::hash::name_hash;
use crate::mysql::text::Placed;
use crate::statement::{Arg, fill};
use crate::{mysql, postgres};

/// How long to wait for a lock inside a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TxWait {
    /// Not at all. (MySQL, unlike MariaDB, waits a second at least.)
    Try,
    /// So long. MySQL counts in whole seconds.
    For(Duration),
    /// As long as it takes, or as the session's own time-out says on MySQL.
    Forever,
}

/// Why a lock inside a transaction was not obtained, or a token not admitted.
#[derive(Debug)]
#[non_exhaustive]
pub enum TxError {
    /// Another transaction had it for all of the wait. This transaction can go on.
    Busy,
    /// The token is older than one that was already seen: this writer no longer holds its lock. Roll back.
    Stale {
        /// The largest token seen.
        seen: FencingToken,
    },
    /// A table is missing; with the statement that makes it.
    NoTable(String),
    /// The database chose this transaction as the victim of a deadlock or a serialization failure: roll back, and do
    /// all of it again.
    Conflict(String),
    /// Anything else that the database said.
    Database(Box<dyn std::error::Error + Send + Sync>),
}

impl fmt::Display for TxError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Busy => f.write_str("another transaction has the lock"),
            Self::Stale { seen } => write!(f, "the token is stale: {seen} was seen already"),
            Self::NoTable(ddl) => write!(f, "a table is missing; its definition:\n{ddl}"),
            Self::Conflict(said) => write!(f, "the transaction has to be made again: {said}"),
            Self::Database(e) => e.fmt(f),
        }
    }
}

impl std::error::Error for TxError {}

impl From<tokio_postgres::Error> for TxError {
    fn from(e: tokio_postgres::Error) -> Self {
        Self::from_fault(postgres::fault(e, true), "")
    }
}

impl From<mysql_async::Error> for TxError {
    fn from(e: mysql_async::Error) -> Self {
        Self::from_fault(mysql::fault(e, true), "")
    }
}

impl TxError {
    fn from_fault(fault: Fault, ddl: &str) -> Self {
        match fault {
            Fault::Conflict(e) => Self::Conflict(e.to_string()),
            Fault::NoTable(_) if !ddl.is_empty() => Self::NoTable(ddl.to_owned()),
            fault => Self::Database(Box::new(fault.into_error())),
        }
    }
}

/// Locks a key until this transaction ends (`pg_advisory_xact_lock`; the number is [`name_hash`] of the record's
/// name with `tx:` before it). Re-entrant within the transaction.
///
/// # Errors
/// [`TxError::Busy`]: the transaction goes on without the lock. Others: roll back.
///
/// # Cancel safety
/// Not safe: a dropped call may leave a savepoint in the transaction, or the lock held until its end. Roll back.
pub async fn lock_postgres(
    tx: &tokio_postgres::Transaction<'_>,
    namespace: &Namespace,
    key: &Key,
    wait: TxWait,
) -> Result<(), TxError> {
    let id = name_hash(&format!("tx:{}", namespace.record(key)));
    match wait {
        TxWait::Forever => {
            tx.execute("SELECT pg_advisory_xact_lock($1)", &[&id]).await?;
        }
        TxWait::Try => {
            let got: bool = tx
                .query_one("SELECT pg_try_advisory_xact_lock($1)", &[&id])
                .await?
                .get(0);
            if !got {
                return Err(TxError::Busy);
            }
        }
        TxWait::For(limit) => {
            let millis = limit.as_millis().clamp(1, i32::MAX as u128);
            // A time-out fails its (sub)transaction: the savepoint keeps that from the caller's.
            let before: String = tx
                .query_one("SELECT current_setting('lock_timeout')", &[])
                .await?
                .get(0);
            let set = "SELECT set_config('lock_timeout', $1, true)";
            tx.batch_execute("SAVEPOINT distlock_tx").await?;
            tx.execute(set, &[&millis.to_string()]).await?;
            let locked = tx.execute("SELECT pg_advisory_xact_lock($1)", &[&id]).await;
            if let Err(e) = locked {
                let busy = e.code() == Some(&tokio_postgres::error::SqlState::LOCK_NOT_AVAILABLE);
                if busy {
                    tx.batch_execute("ROLLBACK TO SAVEPOINT distlock_tx; RELEASE SAVEPOINT distlock_tx")
                        .await?;
                    return Err(TxError::Busy);
                }
                return Err(e.into());
            }
            tx.execute(set, &[&before]).await?;
            tx.batch_execute("RELEASE SAVEPOINT distlock_tx").await?;
        }
    }
    Ok(())
}

/// Locks a key until this transaction ends, by the lock of its row in [`MysqlTx`]'s table. Re-entrant within the
/// transaction.
#[derive(Debug, Clone)]
pub struct MysqlTx {
    lock: String,
    fence: String,
    lock_ddl: String,
    fence_ddl: String,
}

impl MysqlTx {
    /// With tables of these names, which exist already ([`schema`](Self::schema)).
    ///
    /// # Errors
    /// A name that is not one.
    pub fn new(locks: &str, fences: &str) -> Result<Self, DriverError> {
        let quoted = |name: &str| Config::new(Dialect::Mysql).table(name).quoted_table();
        let (locks, fences) = (quoted(locks)?, quoted(fences)?);
        let text = |source, table| fill(source, Dialect::Mysql, table);
        Ok(Self {
            lock: text(include_str!("sql/mysql/tx/lock.sql"), &locks),
            fence: text(include_str!("sql/mysql/tx/fence.sql"), &fences),
            lock_ddl: text(include_str!("sql/mysql/tx/schema.sql"), &locks),
            fence_ddl: text(include_str!("sql/mysql/tx/fence_schema.sql"), &fences),
        })
    }

    /// The statements that make the two tables. Not inside a transaction: MySQL would commit it.
    pub fn schema(&self) -> [&str; 2] {
        [&self.lock_ddl, &self.fence_ddl]
    }

    /// Locks a key until the transaction ends. `tx` is a `Transaction` of mysql_async (or a connection inside one).
    ///
    /// # Errors
    /// [`TxError::Busy`]: the transaction goes on without the lock. Others: roll back.
    ///
    /// # Cancel safety
    /// Not safe: roll back after a dropped call.
    pub async fn lock(
        &self,
        tx: &mut impl Queryable,
        namespace: &Namespace,
        key: &Key,
        wait: TxWait,
    ) -> Result<(), TxError> {
        let seconds = match wait {
            TxWait::Try => Some(0),
            TxWait::For(limit) => Some(limit.as_millis().div_ceil(1000).clamp(1, 1 << 30) as i64),
            TxWait::Forever => None,
        };
        let mut before = None;
        if let Some(seconds) = seconds {
            before = tx
                .query_first::<i64, _>("SELECT @@session.innodb_lock_wait_timeout")
                .await?;
            tx.query_drop(format!("SET SESSION innodb_lock_wait_timeout = {seconds}"))
                .await?;
        }
        let name = namespace.record(key);
        let (text, values) = Placed::new(&self.lock).fill(&[Arg::from(name)]);
        let locked = tx.exec_drop(text, values).await;
        if let Some(before) = before {
            tx.query_drop(format!("SET SESSION innodb_lock_wait_timeout = {before}"))
                .await?;
        }
        match locked {
            Ok(()) => Ok(()),
            Err(mysql_async::Error::Server(e)) if e.code == 1205 => Err(TxError::Busy),
            Err(e) => Err(TxError::from_fault(mysql::fault(e, true), &self.lock_ddl)),
        }
    }

    /// Admits a writer by its token, until the transaction ends: refuses one that is older than the newest seen.
    ///
    /// # Errors
    /// [`TxError::Stale`]: roll back, the lock went to somebody else. [`TxError::NoTable`] and others.
    ///
    /// # Cancel safety
    /// Not safe: roll back after a dropped call.
    pub async fn fence(
        &self,
        tx: &mut impl Queryable,
        name: &str,
        token: FencingToken,
    ) -> Result<(), TxError> {
        let ours = i64::try_from(token.get()).unwrap_or(i64::MAX);
        let (text, values) = Placed::new(&self.fence).fill(&[Arg::from(name), ours.into()]);
        let result = tx.exec_iter(text, values).await;
        let result = result.map_err(|e| TxError::from_fault(mysql::fault(e, true), &self.fence_ddl))?;
        let seen = result.last_insert_id().unwrap_or(0);
        result.drop_result().await?;
        admitted(seen, token)
    }
}

fn admitted(seen: u64, token: FencingToken) -> Result<(), TxError> {
    match seen == token.get() {
        true => Ok(()),
        false => Err(TxError::Stale {
            seen: FencingToken::new(seen),
        }),
    }
}

/// The statement that makes the table of [`fence_postgres`].
///
/// # Errors
/// A name that is not one.
pub fn fence_schema_postgres(table: &str) -> Result<String, DriverError> {
    let table = Config::new(Dialect::Postgres).table(table).quoted_table()?;
    Ok(fill(
        include_str!("sql/postgres/tx/fence_schema.sql"),
        Dialect::Postgres,
        &table,
    ))
}

/// Admits a writer by its token, until the transaction ends: refuses one that is older than the newest seen for
/// `name` in `table`.
///
/// # Errors
/// [`TxError::Stale`]: roll back, the lock went to somebody else. [`TxError::NoTable`] and others.
///
/// # Cancel safety
/// Not safe: roll back after a dropped call.
pub async fn fence_postgres(
    tx: &tokio_postgres::Transaction<'_>,
    table: &str,
    name: &str,
    token: FencingToken,
) -> Result<(), TxError> {
    let ddl = fence_schema_postgres(table).map_err(|e| TxError::Database(Box::new(e)))?;
    let quoted = Config::new(Dialect::Postgres).table(table).quoted_table();
    let quoted = quoted.map_err(|e| TxError::Database(Box::new(e)))?;
    let text = fill(
        include_str!("sql/postgres/tx/fence.sql"),
        Dialect::Postgres,
        &quoted,
    );
    let ours = i64::try_from(token.get()).unwrap_or(i64::MAX);
    let row = tx.query_one(&text, &[&name, &ours]).await;
    let row = row.map_err(|e| TxError::from_fault(postgres::fault(e, true), &ddl))?;
    admitted(row.get::<_, i64>(0).unsigned_abs(), token)
}
