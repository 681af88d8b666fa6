//! Locks and gates inside a transaction of one's own.

use std::time::Duration;

use distlock_core::{FencingToken, Key, Namespace};
use distlock_sql::Dialect;
use distlock_sql::tx::{self, MysqlTx, TxError, TxWait};
use distlock_sql::versioned::{Step, Versioned, VersionedError};
use mysql_async::prelude::Queryable;

use crate::conformance::server;
use crate::server::{Server, mysql_opts};
use crate::tx_cases::{lasts_as_long_as_its_transaction, sums};

/// A user's own connection.
pub(crate) async fn pg_at(address: &str) -> tokio_postgres::Client {
    let url = format!("postgres://postgres@{address}/postgres");
    let (client, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls)
        .await
        .unwrap();
    tokio::spawn(connection);
    client
}

/// A user's own connection.
pub(crate) async fn my_at(address: &str) -> mysql_async::Conn {
    mysql_async::Conn::new(mysql_opts(address)).await.unwrap()
}

pub(crate) fn key(name: &str) -> (Namespace, Key) {
    (Namespace::default(), Key::new(name).unwrap())
}

macro_rules! pg_begin {
    ($conn:ident) => {
        $conn.transaction().await.unwrap()
    };
}

macro_rules! pg_lock {
    ($tx:ident, $name:expr, $wait:expr) => {{
        let (namespace, key) = key($name);
        // Not every driver's needs to be `mut`.
        let tx = &mut $tx;
        tx::lock_postgres(tx, &namespace, &key, $wait).await
    }};
}

macro_rules! pg_run {
    ($tx:ident, $text:expr) => {
        $tx.batch_execute($text).await.unwrap()
    };
}

macro_rules! pg_number {
    ($tx:ident, $text:expr) => {
        $tx.query_one($text, &[]).await.unwrap().get(0)
    };
}

/// The tables of a test.
pub(crate) async fn locker(server: &Server, name: &str) -> &'static MysqlTx {
    let locker = MysqlTx::new(&format!("{name}_locks"), &format!("{name}_fences")).unwrap();
    for ddl in locker.schema() {
        server.sql(ddl).await;
    }
    Box::leak(Box::new(locker))
}

macro_rules! my_begin {
    ($conn:ident) => {
        $conn
            .start_transaction(mysql_async::TxOpts::default())
            .await
            .unwrap()
    };
}

macro_rules! my_run {
    ($tx:ident, $text:expr) => {
        $tx.query_drop($text).await.unwrap()
    };
}

macro_rules! my_number {
    ($tx:ident, $text:expr) => {
        $tx.query_first($text).await.unwrap().unwrap()
    };
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f70_read_modify_write_under_a_postgres_lock_is_exact() {
    let Some(server) = server(Dialect::Postgres) else {
        return;
    };
    sums!(server, "tx_sum", pg_at, pg_begin, pg_lock, pg_run, pg_number);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f70_read_modify_write_under_a_mysql_lock_is_exact() {
    let Some(server) = server(Dialect::Mysql) else {
        return;
    };
    let locker = locker(server, "tx_sum").await;
    macro_rules! my_lock {
        ($tx:ident, $name:expr, $wait:expr) => {{
            let (namespace, key) = key($name);
            locker.lock(&mut $tx, &namespace, &key, $wait).await
        }};
    }
    sums!(server, "tx_sum", my_at, my_begin, my_lock, my_run, my_number);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_postgres_lock_lasts_as_long_as_its_transaction() {
    let Some(server) = server(Dialect::Postgres) else {
        return;
    };
    lasts_as_long_as_its_transaction!(server, "tx-life", true, pg_at, pg_begin, pg_lock, pg_run);
    // The session's own setting is back after a wait, whatever came of it.
    let mut client = pg_at(&server.address()).await;
    let mut tx = client.transaction().await.unwrap();
    pg_lock!(tx, "tx-life", TxWait::For(Duration::from_secs(5))).unwrap();
    let timeout: String = pg_number!(tx, "SHOW lock_timeout");
    assert_eq!(timeout, "0");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mysql_lock_lasts_as_long_as_its_transaction() {
    let Some(server) = server(Dialect::Mysql) else {
        return;
    };
    let unmade = MysqlTx::new("tx_locks_unmade", "tx_fences_unmade").unwrap();
    let (namespace, name) = key("tx-life");
    let mut conn = my_at(&server.address()).await;
    let mut tx = my_begin!(conn);
    let e = unmade.lock(&mut tx, &namespace, &name, TxWait::Forever).await;
    assert!(
        matches!(&e, Err(TxError::NoTable(ddl)) if ddl.contains("CREATE TABLE")),
        "{e:?}"
    );
    tx.rollback().await.unwrap();
    let locker = locker(server, "tx_life").await;
    macro_rules! my_lock {
        ($tx:ident, $name:expr, $wait:expr) => {{
            let (namespace, key) = key($name);
            locker.lock(&mut $tx, &namespace, &key, $wait).await
        }};
    }
    lasts_as_long_as_its_transaction!(server, "tx-life", false, my_at, my_begin, my_lock, my_run);
}

/// The write of a paused holder is refused in its own transaction.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gates_in_a_transaction_refuse_stale_tokens() {
    if let Some(server) = server(Dialect::Postgres) {
        let ddl = tx::fence_schema_postgres("gate_fences").unwrap();
        server.sql(&ddl).await;
        let mut client = pg_at(&server.address()).await;
        for (token, good) in [(5, true), (5, true), (7, true), (6, false)] {
            let tx = client.transaction().await.unwrap();
            let admitted = tx::fence_postgres(&tx, "gate_fences", "row:7", FencingToken::new(token)).await;
            assert_eq!(admitted.is_ok(), good, "{token}: {admitted:?}");
            if !good {
                assert!(matches!(admitted, Err(TxError::Stale { seen }) if seen.get() == 7));
            }
            tx.commit().await.unwrap();
        }
    }
    if let Some(server) = server(Dialect::Mysql) {
        let gate = locker(server, "gate").await;
        let mut conn = my_at(&server.address()).await;
        for (token, good) in [(5, true), (5, true), (7, true), (6, false)] {
            let mut tx = my_begin!(conn);
            let admitted = gate.fence(&mut tx, "row:7", FencingToken::new(token)).await;
            assert_eq!(admitted.is_ok(), good, "{token}: {admitted:?}");
            tx.commit().await.unwrap();
        }
    }
}

#[tokio::test]
async fn versioned_work_is_repeated_and_says_what_it_saw() {
    let done = Versioned::default().run(async |n| {
        Ok::<_, std::io::Error>(if n < 3 {
            Step::Conflict { seen: 1 }
        } else {
            Step::Done(n)
        })
    });
    assert_eq!(done.await.unwrap(), 3);
    let never = Versioned::default()
        .tries(2)
        .run(async |n| Ok::<Step<()>, String>(Step::Conflict { seen: n.into() }));
    assert_eq!(
        never.await.unwrap_err(),
        VersionedError::Conflict { tries: 2, seen: 2 }
    );
}
