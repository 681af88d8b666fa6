//! MySQL and MariaDB: the lock of a row, and the gate.

use distlock_core::driver::DriverError;
use distlock_core::{FencingToken, Key, Namespace};
use mysql_async::prelude::Queryable;

use super::{Failed, Said, Session, TxError, TxWait, admitted};
use crate::config::{Config, Dialect};
use crate::mysql;
use crate::mysql::text::Placed;
use crate::statement::{Arg, Cell, fill};

/// Locks a key until this transaction ends, by the lock of its row in a table. Re-entrant within the transaction.
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
            lock: text(include_str!("../sql/mysql/tx/lock.sql"), &locks),
            fence: text(include_str!("../sql/mysql/tx/fence.sql"), &fences),
            lock_ddl: text(include_str!("../sql/mysql/tx/schema.sql"), &locks),
            fence_ddl: text(include_str!("../sql/mysql/tx/fence_schema.sql"), &fences),
        })
    }

    /// The statements that make the two tables. Not inside a transaction: MySQL would commit it.
    pub fn schema(&self) -> [&str; 2] {
        [&self.lock_ddl, &self.fence_ddl]
    }

    /// Locks a key until the transaction ends. `tx` is a `Transaction` of mysql_async (or a connection inside one).
    /// After a `ROLLBACK TO` a savepoint from before it, it may be held or not: lock again.
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
        self.lock_in(&mut Driver(tx), namespace, key, wait).await
    }

    pub(super) async fn lock_in(
        &self,
        tx: &mut impl Session,
        namespace: &Namespace,
        key: &Key,
        wait: TxWait,
    ) -> Result<(), TxError> {
        let seconds = match wait {
            TxWait::Try => Some(0),
            TxWait::For(limit) => Some(limit.as_millis().div_ceil(1000).clamp(1, 1 << 30) as i64),
            TxWait::Forever => None,
        };
        let limit = |seconds: i64| format!("SET SESSION innodb_lock_wait_timeout = {seconds}");
        let mut before = None;
        if let Some(seconds) = seconds {
            let said = tx.ask("SELECT @@session.innodb_lock_wait_timeout", &[]).await?;
            before = Some(said.first.int());
            tx.batch(&limit(seconds)).await?;
        }
        let locked = tx.ask(&self.lock, &[namespace.record(key).into()]).await;
        if let Some(before) = before {
            tx.batch(&limit(before)).await?;
        }
        match locked {
            Ok(_) => Ok(()),
            Err(failed) if failed.waited => Err(TxError::Busy),
            Err(failed) => Err(TxError::from_fault(failed.fault, &self.lock_ddl)),
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
        self.fence_in(&mut Driver(tx), name, token).await
    }

    pub(super) async fn fence_in(
        &self,
        tx: &mut impl Session,
        name: &str,
        token: FencingToken,
    ) -> Result<(), TxError> {
        let ours = i64::try_from(token.get()).unwrap_or(i64::MAX);
        let said = tx.ask(&self.fence, &[name.into(), ours.into()]).await;
        let said = said.map_err(|failed| TxError::from_fault(failed.fault, &self.fence_ddl))?;
        admitted(said.id, token)
    }
}

pub(super) struct Driver<'a, Q>(pub(super) &'a mut Q);

fn failed(e: mysql_async::Error) -> Failed {
    Failed {
        waited: matches!(&e, mysql_async::Error::Server(e) if e.code == 1205),
        fault: mysql::fault(e, true),
    }
}

impl<Q: Queryable> Session for Driver<'_, Q> {
    async fn ask(&mut self, text: &str, args: &[Arg<'_>]) -> Result<Said, Failed> {
        let (text, values) = Placed::new(text).fill(args);
        let mut result = self.0.exec_iter(text, values).await.map_err(failed)?;
        let id = result.last_insert_id().unwrap_or(0);
        let row = result.next().await.map_err(failed)?;
        result.drop_result().await.map_err(failed)?;
        let first = row.and_then(|row| mysql::cells(row).into_iter().next());
        Ok(Said {
            first: first.unwrap_or(Cell::Null),
            id,
        })
    }

    async fn batch(&mut self, text: &str) -> Result<(), Failed> {
        self.0.query_drop(text).await.map_err(failed)
    }
}
