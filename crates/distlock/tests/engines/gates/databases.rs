//! The gates of Redis and of the databases.

use async_trait::async_trait;
use distlock::sql::tx::{self, MysqlTx, TxError};
use mysql_async::prelude::Queryable;

use super::{Gate, Ticket};

pub(super) struct InRedis<C>(pub(super) C);

#[async_trait]
impl<C: redis::aio::ConnectionLike + Send> Gate for InRedis<C> {
    async fn write(&mut self, ticket: Ticket, content: &str) -> bool {
        let set = distlock_redis::guarded_set(&mut self.0, "data", content.as_bytes(), ticket.token());
        set.await.unwrap().is_ok()
    }

    async fn pass_by(&mut self, content: &str) {
        let set = redis::cmd("SET").arg("data").arg(content).to_owned();
        set.exec_async(&mut self.0).await.unwrap();
    }

    async fn read(&mut self) -> String {
        redis::cmd("GET")
            .arg("data")
            .query_async(&mut self.0)
            .await
            .unwrap()
    }
}

/// The token is checked in the transaction that writes.
pub(super) struct InPostgres(tokio_postgres::Client);

impl InPostgres {
    pub(super) async fn connect(url: &str) -> Self {
        let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await.unwrap();
        tokio::spawn(connection);
        let ddl = tx::fence_schema_postgres("fences").unwrap();
        client.batch_execute(&ddl).await.unwrap();
        let table = "CREATE TABLE data (v text NOT NULL); INSERT INTO data VALUES ('')";
        client.batch_execute(table).await.unwrap();
        Self(client)
    }
}

#[async_trait]
impl Gate for InPostgres {
    async fn write(&mut self, ticket: Ticket, content: &str) -> bool {
        let transaction = self.0.transaction().await.unwrap();
        match tx::fence_postgres(&transaction, "fences", "data", ticket.token()).await {
            Ok(()) => {}
            Err(TxError::Stale { .. }) => return false,
            Err(e) => panic!("{e}"),
        }
        transaction
            .execute("UPDATE data SET v = $1", &[&content])
            .await
            .unwrap();
        transaction.commit().await.unwrap();
        true
    }

    async fn pass_by(&mut self, content: &str) {
        self.0
            .execute("UPDATE data SET v = $1", &[&content])
            .await
            .unwrap();
    }

    async fn read(&mut self) -> String {
        self.0.query_one("SELECT v FROM data", &[]).await.unwrap().get(0)
    }
}

pub(super) struct InMysql {
    connection: mysql_async::Conn,
    gate: MysqlTx,
}

impl InMysql {
    pub(super) async fn connect(url: &str) -> Self {
        let options = mysql_async::Opts::from_url(url).unwrap();
        let mut connection = mysql_async::Conn::new(options).await.unwrap();
        let gate = MysqlTx::new("tx_locks", "fences").unwrap();
        for ddl in gate.schema() {
            connection.query_drop(ddl).await.unwrap();
        }
        let table = "CREATE TABLE data (id int PRIMARY KEY, v varchar(20) NOT NULL)";
        connection.query_drop(table).await.unwrap();
        connection
            .query_drop("INSERT INTO data VALUES (1, '')")
            .await
            .unwrap();
        Self { connection, gate }
    }
}

#[async_trait]
impl Gate for InMysql {
    async fn write(&mut self, ticket: Ticket, content: &str) -> bool {
        let options = mysql_async::TxOpts::default();
        let mut transaction = self.connection.start_transaction(options).await.unwrap();
        match self.gate.fence(&mut transaction, "data", ticket.token()).await {
            Ok(()) => {}
            Err(TxError::Stale { .. }) => {
                transaction.rollback().await.unwrap();
                return false;
            }
            Err(e) => panic!("{e}"),
        }
        transaction
            .exec_drop("UPDATE data SET v = ?", (content,))
            .await
            .unwrap();
        transaction.commit().await.unwrap();
        true
    }

    async fn pass_by(&mut self, content: &str) {
        self.connection
            .exec_drop("UPDATE data SET v = ?", (content,))
            .await
            .unwrap();
    }

    async fn read(&mut self) -> String {
        self.connection
            .query_first("SELECT v FROM data")
            .await
            .unwrap()
            .unwrap()
    }
}
