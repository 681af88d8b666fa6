//! The table: made when it is missing and that is allowed, and refused when it is not ours.

use std::sync::atomic::{AtomicBool, Ordering};

use distlock_core::driver::DriverError;
use mysql_async::prelude::Queryable;
use tokio::sync::Mutex;

use crate::config::{Dialect, Layout, invalid};
use crate::fault::Fault;
use crate::statement::fill;
use crate::store::{Backend, Store};
use crate::{mysql, postgres};

/// What our table says of itself.
const COMMENT: &str = "distlock locks 1";

/// The statements that make the table.
pub(crate) fn ddl(dialect: Dialect, layout: Layout, table: &str) -> Result<String, DriverError> {
    let source = match (dialect, layout) {
        (Dialect::Postgres, Layout::ShedLock) => include_str!("sql/postgres/shedlock/schema.sql"),
        (Dialect::Mysql, Layout::ShedLock) => include_str!("sql/mysql/shedlock/schema.sql"),
        (Dialect::Postgres, _) => include_str!("sql/postgres/schema.sql"),
        (Dialect::Mysql, _) => include_str!("sql/mysql/schema.sql"),
    };
    Ok(fill(source, dialect, table))
}

/// Whether the table was seen to be ours.
#[derive(Debug, Default)]
pub(crate) struct Table {
    seen: AtomicBool,
    checking: Mutex<()>,
}

impl Table {
    /// Whether it needs no check.
    pub(crate) fn is_seen(&self) -> bool {
        self.seen.load(Ordering::Acquire)
    }

    /// It is gone: look again.
    pub(crate) fn forget(&self) {
        self.seen.store(false, Ordering::Release);
    }

    /// Makes sure that the table is there and ours.
    pub(crate) async fn ensure(&self, store: &Store) -> Result<(), DriverError> {
        let _one = self.checking.lock().await;
        if self.is_seen() {
            return Ok(());
        }
        prepare(store).await?;
        self.seen.store(true, Ordering::Release);
        Ok(())
    }
}

/// What a migration did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Migration {
    /// The table was made.
    Made,
    /// The table was there already, as it should be.
    Unchanged,
}

/// Makes the table if it is missing and that is allowed; refuses one that is not ours.
pub(crate) async fn prepare(store: &Store) -> Result<Migration, DriverError> {
    let table = &store.config.table;
    let mut done = Migration::Unchanged;
    let mut comment = self::comment(store).await.map_err(Fault::into_error)?;
    if comment.is_none() {
        let ddl = store.config.schema()?;
        if !store.config.create {
            return Err(invalid(format!(
                "the table {table} is missing (create=false); its definition:\n{ddl}"
            )));
        }
        match make(store, &ddl).await {
            Ok(()) => done = Migration::Made,
            // Another client made it at the same moment.
            Err(Fault::Conflict(_)) => {}
            Err(Fault::Denied(why)) => {
                let why = format!(
                    "the table {table} is missing and cannot be made ({why}); its definition:\n{ddl}"
                );
                return Err(invalid(why));
            }
            Err(fault) => return Err(fault.into_error()),
        }
        comment = self::comment(store).await.map_err(Fault::into_error)?;
    }
    match comment.as_deref() {
        Some(COMMENT) => Ok(done),
        // Java's table says nothing of itself; that it has other columns is told by the first statement.
        Some(_) if store.config.layout == Layout::ShedLock => Ok(done),
        // Made by another client that has not commented it yet.
        None => Err(Fault::Unable(format!("the table {table} is being made").into()).into_error()),
        Some(other) => Err(invalid(format!(
            "the table {table} is not one of ours (its comment is {other:?}, not {COMMENT:?}); choose another with \
             table="
        ))),
    }
}

/// The table's comment; `None` if there is no such table.
async fn comment(store: &Store) -> Result<Option<String>, Fault> {
    match &store.backend {
        Backend::Postgres { pool, .. } => {
            let table = store
                .config
                .quoted_table()
                .map_err(|e| Fault::Denied(e.to_string()))?;
            let client = pool.connector().connect(&store.engine).await?;
            let sql = "SELECT coalesce(obj_description(to_regclass($1::text)::oid, 'pg_class'), '') \
                WHERE to_regclass($1::text) IS NOT NULL";
            if !postgres::keeps_statements(pool.connector(), &store.engine, &client).await? {
                return Err(postgres::pooled());
            }
            let client = pool.connector().connect(&store.engine).await?;
            let row = client.query_opt(sql, &[&table]).await;
            let row = row.map_err(|e| postgres::fault(e, false))?;
            Ok(row.map(|row| row.get(0)))
        }
        Backend::Mysql(pool) => {
            let mut words = store.config.table.rsplit('.');
            let (name, schema) = (words.next().unwrap_or_default(), words.next());
            let sql = "SELECT CAST(table_comment AS CHAR) FROM information_schema.tables \
                WHERE table_schema = COALESCE(?, DATABASE()) AND table_name = ?";
            let mut conn = pool.connect().await?;
            let found = conn
                .exec_first(sql, (schema, name))
                .await
                .map_err(|e| mysql::fault(e, false));
            let _ = conn.disconnect().await;
            found
        }
    }
}

async fn make(store: &Store, ddl: &str) -> Result<(), Fault> {
    match &store.backend {
        Backend::Postgres { pool, .. } => {
            let client = pool.connector().connect(&store.engine).await?;
            client
                .batch_execute(ddl)
                .await
                .map_err(|e| postgres::fault(e, false))
        }
        Backend::Mysql(pool) => {
            let mut conn = pool.connect().await?;
            let made = conn.query_drop(ddl).await.map_err(|e| mysql::fault(e, false));
            let _ = conn.disconnect().await;
            made
        }
    }
}
