//! What came of an event, recorded in the transaction that made it true: a callback that is delivered twice is done once.
//!
//! A lock keeps a second run away and cannot know whether a first one that died had done the work. The table can: its
//! row is written with the work, or neither is.

use distlock_core::driver::DriverError;
use mysql_async::prelude::Queryable;

use super::{Session, TxError, mysql, postgres};
use crate::config::{Config, Dialect};
use crate::statement::{Cell, fill};

/// A table of results.
///
/// ```no_run
/// # async fn example(client: &mut tokio_postgres::Client) -> Result<String, Box<dyn std::error::Error>> {
/// use distlock_sql::Dialect;
/// use distlock_sql::tx::Results;
///
/// let results = Results::new(Dialect::Postgres, "payment_callbacks")?;
/// let tx = client.transaction().await?;
/// let event = "evt_1042";
/// if let Some(earlier) = results.earlier_postgres(&tx, event).await? {
///     return Ok(earlier); // delivered again: the same answer as the first time
/// }
/// tx.execute("UPDATE account SET balance = balance + 10 WHERE id = 7", &[]).await?;
/// results.record_postgres(&tx, event, "credited").await?;
/// tx.commit().await?;
/// # Ok("credited".to_owned()) }
/// ```
#[derive(Debug, Clone)]
pub struct Results {
    schema: String,
    claim: String,
    /// Where the claim does not tell.
    read: Option<String>,
    record: String,
}

impl Results {
    /// With a table of this name, which exists already ([`schema`](Self::schema)).
    ///
    /// # Errors
    /// A name that is not one.
    pub fn new(dialect: Dialect, table: &str) -> Result<Self, DriverError> {
        let table = Config::new(dialect).table(table).quoted_table()?;
        let text = |source| fill(source, dialect, &table);
        Ok(match dialect {
            Dialect::Postgres => Self {
                schema: text(include_str!("../sql/postgres/tx/result_schema.sql")),
                claim: text(include_str!("../sql/postgres/tx/result_claim.sql")),
                read: None,
                record: text(include_str!("../sql/postgres/tx/result_record.sql")),
            },
            Dialect::Mysql => Self {
                schema: text(include_str!("../sql/mysql/tx/result_schema.sql")),
                claim: text(include_str!("../sql/mysql/tx/result_claim.sql")),
                read: Some(text(include_str!("../sql/mysql/tx/result_read.sql"))),
                record: text(include_str!("../sql/mysql/tx/result_record.sql")),
            },
        })
    }

    /// The statements that make the table. Not inside a transaction: MySQL would commit it.
    pub fn schema(&self) -> &str {
        &self.schema
    }

    /// The result of an earlier transaction for this event; `None`: do the work, and [record](Self::record_postgres) what
    /// came of it in this transaction. Another transaction that asks for the same event waits until this one ends.
    ///
    /// # Errors
    /// [`TxError::NoTable`], [`TxError::Conflict`] and others: roll back.
    ///
    /// # Cancel safety
    /// Not safe: roll back after a dropped call.
    pub async fn earlier_postgres(
        &self,
        tx: &tokio_postgres::Transaction<'_>,
        event: &str,
    ) -> Result<Option<String>, TxError> {
        self.earlier(&mut postgres::Driver(tx), event).await
    }

    /// Records what came of the event, which others see when this transaction is committed. What is recorded already stays.
    ///
    /// # Errors
    /// As [`earlier_postgres`](Self::earlier_postgres).
    ///
    /// # Cancel safety
    /// Not safe: roll back after a dropped call.
    pub async fn record_postgres(
        &self,
        tx: &tokio_postgres::Transaction<'_>,
        event: &str,
        result: &str,
    ) -> Result<(), TxError> {
        self.record(&mut postgres::Driver(tx), event, result).await
    }

    /// As [`earlier_postgres`](Self::earlier_postgres). `tx` is a `Transaction` of mysql_async (or a connection inside
    /// one).
    ///
    /// # Errors
    /// As there.
    ///
    /// # Cancel safety
    /// As there.
    pub async fn earlier_mysql(
        &self,
        tx: &mut impl Queryable,
        event: &str,
    ) -> Result<Option<String>, TxError> {
        self.earlier(&mut mysql::Driver(tx), event).await
    }

    /// As [`record_postgres`](Self::record_postgres).
    ///
    /// # Errors
    /// As there.
    ///
    /// # Cancel safety
    /// As there.
    pub async fn record_mysql(
        &self,
        tx: &mut impl Queryable,
        event: &str,
        result: &str,
    ) -> Result<(), TxError> {
        self.record(&mut mysql::Driver(tx), event, result).await
    }

    async fn earlier(&self, tx: &mut impl Session, event: &str) -> Result<Option<String>, TxError> {
        let args = [event.into()];
        let failed = |failed: super::Failed| TxError::from_fault(failed.fault, &self.schema);
        let mut said = tx.ask(&self.claim, &args).await.map_err(failed)?;
        if let Some(read) = &self.read {
            said = tx.ask(read, &args).await.map_err(failed)?;
        }
        Ok(match said.first {
            Cell::Null => None,
            cell => Some(cell.text().to_owned()),
        })
    }

    async fn record(&self, tx: &mut impl Session, event: &str, result: &str) -> Result<(), TxError> {
        let said = tx.ask(&self.record, &[event.into(), result.into()]).await;
        said.map_err(|failed| TxError::from_fault(failed.fault, &self.schema))?;
        Ok(())
    }
}
