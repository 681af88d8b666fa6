//! Locks and gates inside a transaction of sqlx.

use distlock_core::FencingToken;
use distlock_sql::Dialect;
use distlock_sql::tx::{CommitFailure, TxError, TxWait, fence_postgres_sqlx, lock_postgres_sqlx};
use sqlx::mysql::MySqlConnectOptions;
use sqlx::{Connection, MySqlConnection, PgConnection, Row};

use crate::conformance::server;
use crate::server::mysql_opts;
use crate::tx::{key, locker};
use crate::tx_cases::{lasts_as_long_as_its_transaction, sums};

async fn pg(address: &str) -> PgConnection {
    PgConnection::connect(&format!("postgres://postgres@{address}/postgres"))
        .await
        .unwrap()
}

async fn my(address: &str) -> MySqlConnection {
    let opts = mysql_opts(address);
    let connect = MySqlConnectOptions::new()
        .host(opts.ip_or_hostname())
        .port(opts.tcp_port())
        .username(opts.user().unwrap())
        .database(opts.db_name().unwrap());
    let connect = match opts.pass() {
        Some(password) => connect.password(password),
        None => connect,
    };
    MySqlConnection::connect_with(&connect).await.unwrap()
}

macro_rules! begin {
    ($conn:ident) => {
        $conn.begin().await.unwrap()
    };
}

macro_rules! pg_lock {
    ($tx:ident, $name:expr, $wait:expr) => {{
        let (namespace, key) = key($name);
        lock_postgres_sqlx(&mut $tx, &namespace, &key, $wait).await
    }};
}

macro_rules! run {
    ($tx:ident, $text:expr) => {
        sqlx::raw_sql(sqlx::AssertSqlSafe($text.to_string()))
            .execute(&mut *$tx)
            .await
            .unwrap()
    };
}

macro_rules! number {
    ($tx:ident, $text:expr) => {
        sqlx::query($text).fetch_one(&mut *$tx).await.unwrap().get(0)
    };
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f70_read_modify_write_under_a_postgres_lock_of_sqlx_is_exact() {
    let Some(server) = server(Dialect::Postgres) else {
        return;
    };
    sums!(server, "sqlx_sum", pg, begin, pg_lock, run, number);
    lasts_as_long_as_its_transaction!(server, "sqlx-life", true, pg, begin, pg_lock, run);

    // A stale token is refused.
    let mut b = pg(&server.address()).await;
    let mut other = b.begin().await.unwrap();
    let e = fence_postgres_sqlx(&mut other, "sqlx_fences", "row:7", FencingToken::new(5)).await;
    assert!(matches!(e, Err(TxError::NoTable(_))), "{e:?}");
    other.rollback().await.unwrap();
    server
        .sql(&distlock_sql::tx::fence_schema_postgres("sqlx_fences").unwrap())
        .await;
    for (token, good) in [(5, true), (7, true), (6, false)] {
        let mut tx = b.begin().await.unwrap();
        let admitted = fence_postgres_sqlx(&mut tx, "sqlx_fences", "row:7", FencingToken::new(token)).await;
        assert_eq!(admitted.is_ok(), good, "{token}: {admitted:?}");
        tx.commit().await.unwrap();
    }

    // What the server refuses at the commit is known to be rolled back.
    server
        .sql("CREATE TABLE sqlx_deferred (n int UNIQUE DEFERRABLE INITIALLY DEFERRED)")
        .await;
    let mut tx = b.begin().await.unwrap();
    sqlx::query("INSERT INTO sqlx_deferred VALUES (1), (1)")
        .execute(&mut *tx)
        .await
        .unwrap();
    assert!(tx.commit().await.unwrap_err().is_rolled_back());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f70_read_modify_write_under_a_mysql_lock_of_sqlx_is_exact() {
    let Some(server) = server(Dialect::Mysql) else {
        return;
    };
    let locker = locker(server, "sqlx").await;
    macro_rules! my_lock {
        ($tx:ident, $name:expr, $wait:expr) => {{
            let (namespace, key) = key($name);
            locker.lock_sqlx(&mut $tx, &namespace, &key, $wait).await
        }};
    }
    sums!(server, "sqlx_sum", my, begin, my_lock, run, number);
    lasts_as_long_as_its_transaction!(server, "sqlx-life", false, my, begin, my_lock, run);

    let mut b = my(&server.address()).await;
    for (token, good) in [(5, true), (7, true), (6, false)] {
        let mut tx = b.begin().await.unwrap();
        let admitted = locker
            .fence_sqlx(&mut tx, "row:7", FencingToken::new(token))
            .await;
        assert_eq!(admitted.is_ok(), good, "{token}: {admitted:?}");
        tx.commit().await.unwrap();
    }
}
