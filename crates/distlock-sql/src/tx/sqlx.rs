//! The same on connections and transactions of sqlx (feature `sqlx`).

use distlock_core::{FencingToken, Key, Namespace};
use sqlx::{AssertSqlSafe, Executor, MySqlConnection, PgConnection, Row};

use super::{CommitFailure, Failed, MysqlTx, Said, Session, TxError, TxWait, postgres};
use crate::fault::Fault;
use crate::mysql::text::Placed;
use crate::statement::{Arg, Cell};

/// As [`lock_postgres`](super::lock_postgres). `tx` is a connection inside a transaction: `&mut *transaction`.
///
/// # Errors
/// As there.
///
/// # Cancel safety
/// As there.
pub async fn lock_postgres_sqlx(
    tx: &mut PgConnection,
    namespace: &Namespace,
    key: &Key,
    wait: TxWait,
) -> Result<(), TxError> {
    postgres::lock(&mut Postgres(tx), namespace, key, wait).await
}

/// As [`fence_postgres`](super::fence_postgres).
///
/// # Errors
/// As there.
///
/// # Cancel safety
/// As there.
pub async fn fence_postgres_sqlx(
    tx: &mut PgConnection,
    table: &str,
    name: &str,
    token: FencingToken,
) -> Result<(), TxError> {
    postgres::fence(&mut Postgres(tx), table, name, token).await
}

impl MysqlTx {
    /// As [`lock`](Self::lock). `tx` is a connection inside a transaction: `&mut *transaction`.
    ///
    /// # Errors
    /// As there.
    ///
    /// # Cancel safety
    /// As there.
    pub async fn lock_sqlx(
        &self,
        tx: &mut MySqlConnection,
        namespace: &Namespace,
        key: &Key,
        wait: TxWait,
    ) -> Result<(), TxError> {
        self.lock_in(&mut Mysql(tx), namespace, key, wait).await
    }

    /// As [`fence`](Self::fence).
    ///
    /// # Errors
    /// As there.
    ///
    /// # Cancel safety
    /// As there.
    pub async fn fence_sqlx(
        &self,
        tx: &mut MySqlConnection,
        name: &str,
        token: FencingToken,
    ) -> Result<(), TxError> {
        self.fence_in(&mut Mysql(tx), name, token).await
    }
}

impl CommitFailure for sqlx::Error {
    fn is_rolled_back(&self) -> bool {
        use sqlx::mysql::MySqlDatabaseError;
        use sqlx::postgres::{PgDatabaseError, PgSeverity};
        let Self::Database(said) = self else { return false };
        if let Some(said) = said.try_downcast_ref::<PgDatabaseError>() {
            return said.severity() == PgSeverity::Error && super::commit::rolled_back_postgres(said.code());
        }
        let said = said.try_downcast_ref::<MySqlDatabaseError>();
        said.is_some_and(|said| super::commit::rolled_back_mysql(said.number()))
    }
}

struct Postgres<'a>(&'a mut PgConnection);

struct Mysql<'a>(&'a mut MySqlConnection);

/// What an error means; a connection that broke has an unknown end.
fn failed(e: sqlx::Error) -> Failed {
    use sqlx::mysql::MySqlDatabaseError;
    use sqlx::postgres::PgDatabaseError;
    let unanswered = |e: sqlx::Error| Failed {
        waited: false,
        fault: Fault::Unanswered(e.into()),
    };
    let sqlx::Error::Database(said) = &e else {
        return unanswered(e);
    };
    if let Some(said) = said.try_downcast_ref::<PgDatabaseError>() {
        return Failed {
            waited: said.code() == "55P03",
            fault: crate::postgres::fault_of(said.code(), said.message(), true),
        };
    }
    match said.try_downcast_ref::<MySqlDatabaseError>() {
        Some(said) => Failed {
            waited: said.number() == 1205,
            fault: crate::mysql::fault_of(said.number(), said.message(), true),
        },
        None => unanswered(e),
    }
}

impl Session for Postgres<'_> {
    async fn ask(&mut self, text: &str, args: &[Arg<'_>]) -> Result<Said, Failed> {
        let mut query = sqlx::query(AssertSqlSafe(text.to_owned()));
        for arg in args {
            query = match arg {
                Arg::Int(n) => query.bind(*n),
                Arg::Text(text) => query.bind(text.to_string()),
                Arg::Texts(list) => query.bind(list.clone()),
                Arg::Ints(list) => query.bind(list.clone()),
            };
        }
        let row = query.fetch_optional(&mut *self.0).await.map_err(failed)?;
        let first = row.map_or(Cell::Null, |row| {
            let number = row
                .try_get::<i64, _>(0)
                .or_else(|_| row.try_get::<i32, _>(0).map(i64::from));
            match (number, row.try_get::<String, _>(0)) {
                (Ok(n), _) => Cell::Int(n),
                (_, Ok(text)) => Cell::Text(text),
                _ => Cell::Null,
            }
        });
        Ok(Said { first, id: 0 })
    }

    async fn batch(&mut self, text: &str) -> Result<(), Failed> {
        let done = self
            .0
            .execute(sqlx::raw_sql(AssertSqlSafe(text.to_owned())))
            .await;
        done.map(|_| ()).map_err(failed)
    }
}

impl Session for Mysql<'_> {
    async fn ask(&mut self, text: &str, args: &[Arg<'_>]) -> Result<Said, Failed> {
        let (text, values) = Placed::new(text).fill(args);
        let mut query = sqlx::query(AssertSqlSafe(text.clone()));
        for value in values {
            query = match value {
                mysql_async::Value::Bytes(bytes) => query.bind(bytes),
                mysql_async::Value::Int(n) => query.bind(n),
                _ => query,
            };
        }
        if text.starts_with("SELECT") {
            let row = query.fetch_optional(&mut *self.0).await.map_err(failed)?;
            let number = row.and_then(|row| {
                let signed = row.try_get::<i64, _>(0);
                signed
                    .or_else(|_| row.try_get::<u64, _>(0).map(u64::cast_signed))
                    .ok()
            });
            let first = number.map_or(Cell::Null, Cell::Int);
            return Ok(Said { first, id: 0 });
        }
        let done = query.execute(&mut *self.0).await.map_err(failed)?;
        Ok(Said {
            first: Cell::Null,
            id: done.last_insert_id(),
        })
    }

    async fn batch(&mut self, text: &str) -> Result<(), Failed> {
        let done = self
            .0
            .execute(sqlx::raw_sql(AssertSqlSafe(text.to_owned())))
            .await;
        done.map(|_| ()).map_err(failed)
    }
}
