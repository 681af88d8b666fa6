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

mod commit;
mod mysql;
mod postgres;
mod results;
#[cfg(feature = "sqlx")]
mod sqlx;

use std::fmt;
use std::time::Duration;

use distlock_core::FencingToken;

pub use self::commit::CommitFailure;
pub use self::mysql::MysqlTx;
pub use self::postgres::{fence_postgres, fence_schema_postgres, lock_postgres};
pub use self::results::Results;
#[cfg(feature = "sqlx")]
pub use self::sqlx::{fence_postgres_sqlx, lock_postgres_sqlx};
use crate::fault::Fault;
pub use crate::hash::name_hash;
use crate::statement::{Arg, Cell};

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

impl TxError {
    fn from_fault(fault: Fault, ddl: &str) -> Self {
        match fault {
            Fault::Conflict(e) => Self::Conflict(e.to_string()),
            Fault::NoTable(_) if !ddl.is_empty() => Self::NoTable(ddl.to_owned()),
            fault => Self::Database(Box::new(fault.into_error())),
        }
    }
}

impl From<tokio_postgres::Error> for TxError {
    fn from(e: tokio_postgres::Error) -> Self {
        Self::from_fault(crate::postgres::fault(e, true), "")
    }
}

impl From<mysql_async::Error> for TxError {
    fn from(e: mysql_async::Error) -> Self {
        Self::from_fault(crate::mysql::fault(e, true), "")
    }
}

impl From<Failed> for TxError {
    fn from(failed: Failed) -> Self {
        match failed.waited {
            true => Self::Busy,
            false => Self::from_fault(failed.fault, ""),
        }
    }
}

/// The user's transaction, by whatever driver.
trait Session {
    /// Runs one statement.
    async fn ask(&mut self, text: &str, args: &[Arg<'_>]) -> Result<Said, Failed>;

    /// Runs statements without arguments.
    async fn batch(&mut self, text: &str) -> Result<(), Failed>;
}

/// What a statement answered.
#[derive(Debug)]
struct Said {
    /// The first value of the first row.
    first: Cell,
    /// MySQL's last insert id.
    id: u64,
}

/// A statement that failed.
#[derive(Debug)]
struct Failed {
    /// Because it waited as long as it was told to.
    waited: bool,
    fault: Fault,
}

fn admitted(seen: u64, token: FencingToken) -> Result<(), TxError> {
    match seen == token.get() {
        true => Ok(()),
        false => Err(TxError::Stale {
            seen: FencingToken::new(seen),
        }),
    }
}
