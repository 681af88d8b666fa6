//! PostgreSQL: advisory locks of the transaction, and the gate.

use distlock_core::driver::DriverError;
use distlock_core::{FencingToken, Key, Namespace};
use tokio_postgres::types::ToSql;

use super::{Failed, Said, Session, TxError, TxWait, admitted, name_hash};
use crate::config::{Config, Dialect};
use crate::postgres;
use crate::statement::{Arg, Cell, fill};

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
    lock(&mut Driver(tx), namespace, key, wait).await
}

pub(super) async fn lock(
    tx: &mut impl Session,
    namespace: &Namespace,
    key: &Key,
    wait: TxWait,
) -> Result<(), TxError> {
    let id = [Arg::from(name_hash(&format!("tx:{}", namespace.record(key))))];
    // As text, so that every driver can read it: a lock gives void.
    let take = "SELECT pg_advisory_xact_lock($1)::text";
    match wait {
        TxWait::Forever => {
            tx.ask(take, &id).await?;
        }
        TxWait::Try => {
            let got = tx.ask("SELECT pg_try_advisory_xact_lock($1)::int4", &id).await?;
            if got.first.int() == 0 {
                return Err(TxError::Busy);
            }
        }
        TxWait::For(limit) => {
            let millis = limit.as_millis().clamp(1, i32::MAX as u128);
            // A time-out fails its (sub)transaction: the savepoint keeps that from the caller's.
            let before = tx.ask("SELECT current_setting('lock_timeout')", &[]).await?.first;
            let set = "SELECT set_config('lock_timeout', $1, true)";
            tx.batch("SAVEPOINT distlock_tx").await?;
            tx.ask(set, &[millis.to_string().into()]).await?;
            if let Err(failed) = tx.ask(take, &id).await {
                if failed.waited {
                    tx.batch("ROLLBACK TO SAVEPOINT distlock_tx; RELEASE SAVEPOINT distlock_tx")
                        .await?;
                }
                return Err(failed.into());
            }
            tx.ask(set, &[before.text().into()]).await?;
            tx.batch("RELEASE SAVEPOINT distlock_tx").await?;
        }
    }
    Ok(())
}

/// The statement that makes the table of [`fence_postgres`].
///
/// # Errors
/// A name that is not one.
pub fn fence_schema_postgres(table: &str) -> Result<String, DriverError> {
    let table = Config::new(Dialect::Postgres).table(table).quoted_table()?;
    Ok(fill(
        include_str!("../sql/postgres/tx/fence_schema.sql"),
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
    fence(&mut Driver(tx), table, name, token).await
}

pub(super) async fn fence(
    tx: &mut impl Session,
    table: &str,
    name: &str,
    token: FencingToken,
) -> Result<(), TxError> {
    let ddl = fence_schema_postgres(table).map_err(|e| TxError::Database(Box::new(e)))?;
    let quoted = Config::new(Dialect::Postgres).table(table).quoted_table();
    let quoted = quoted.map_err(|e| TxError::Database(Box::new(e)))?;
    let text = fill(
        include_str!("../sql/postgres/tx/fence.sql"),
        Dialect::Postgres,
        &quoted,
    );
    let ours = i64::try_from(token.get()).unwrap_or(i64::MAX);
    let seen = tx.ask(&text, &[name.into(), ours.into()]).await;
    let seen = seen.map_err(|failed| TxError::from_fault(failed.fault, &ddl))?;
    admitted(seen.first.int().unsigned_abs(), token)
}

pub(super) struct Driver<'a, 'b>(pub(super) &'a tokio_postgres::Transaction<'b>);

fn failed(e: tokio_postgres::Error) -> Failed {
    Failed {
        waited: e.code() == Some(&tokio_postgres::error::SqlState::LOCK_NOT_AVAILABLE),
        fault: postgres::fault(e, true),
    }
}

impl Session for Driver<'_, '_> {
    async fn ask(&mut self, text: &str, args: &[Arg<'_>]) -> Result<Said, Failed> {
        let params: Vec<&(dyn ToSql + Sync)> = args.iter().map(postgres::parameter).collect();
        let rows = self.0.query(text, &params).await.map_err(failed)?;
        let first = rows
            .first()
            .and_then(|row| postgres::cells(row).into_iter().next());
        Ok(Said {
            first: first.unwrap_or(Cell::Null),
            id: 0,
        })
    }

    async fn batch(&mut self, text: &str) -> Result<(), Failed> {
        self.0.batch_execute(text).await.map_err(failed)
    }
}
