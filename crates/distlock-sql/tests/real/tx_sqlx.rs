//! Locks and gates inside a transaction of sqlx.

use std::time::Duration;

use distlock_core::{FencingToken, Key, Namespace};
use distlock_sql::Dialect;
use distlock_sql::tx::{CommitFailure, MysqlTx, TxError, TxWait, fence_postgres_sqlx, lock_postgres_sqlx};
use sqlx::{Connection, MySqlConnection, PgConnection, Row};

use crate::conformance::server;
use crate::server::locks;

const SUM: u32 = 2000;

fn key(name: &str) -> (Namespace, Key) {
    (Namespace::default(), Key::new(name).unwrap())
}

async fn pg(address: &str) -> PgConnection {
    PgConnection::connect(&format!("postgres://postgres@{address}/postgres"))
        .await
        .unwrap()
}

async fn my(address: &str) -> MySqlConnection {
    MySqlConnection::connect(&format!("mysql://root@{address}/distlock"))
        .await
        .unwrap()
}

/// The same for both: two workers add a thousand each, together with a live mutex of the same name.
macro_rules! additions {
    ($connect:expr, $lock:expr, $table:literal, $update:literal) => {
        (0..2).map(|_| {
            tokio::spawn(async move {
                let mut conn = $connect.await;
                let (namespace, key) = key("sqlx-sum");
                for _ in 0..SUM / 2 {
                    let mut tx = conn.begin().await.unwrap();
                    $lock(&mut tx, &namespace, &key, TxWait::Forever).await.unwrap();
                    let row = sqlx::query(concat!("SELECT n FROM ", $table))
                        .fetch_one(&mut *tx)
                        .await
                        .unwrap();
                    let n: i64 = row.get(0);
                    sqlx::query($update).bind(n + 1).execute(&mut *tx).await.unwrap();
                    tx.commit().await.unwrap();
                }
            })
        })
    };
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f70_read_modify_write_under_a_postgres_lock_of_sqlx_is_exact() {
    let Some(server) = server(Dialect::Postgres) else {
        return;
    };
    server
        .sql("CREATE TABLE sqlx_counter (n bigint NOT NULL); INSERT INTO sqlx_counter VALUES (0)")
        .await;
    let mutex = locks(server.config())
        .await
        .mutex("sqlx-sum")
        .acquire()
        .await
        .unwrap();
    let workers = additions!(
        pg(&server.address()),
        lock_postgres_sqlx,
        "sqlx_counter",
        "UPDATE sqlx_counter SET n = $1"
    );
    for worker in workers.collect::<Vec<_>>() {
        worker.await.unwrap();
    }
    assert_eq!(server.sql("SELECT n FROM sqlx_counter").await, [SUM.to_string()]);
    mutex.release().await.unwrap();

    // Busy leaves the transaction usable; the lock lasts until the end; a stale token is refused.
    let (mut a, mut b) = (pg(&server.address()).await, pg(&server.address()).await);
    let (namespace, key) = key("sqlx-life");
    let mut held = a.begin().await.unwrap();
    lock_postgres_sqlx(&mut held, &namespace, &key, TxWait::Try)
        .await
        .unwrap();
    let mut other = b.begin().await.unwrap();
    for wait in [TxWait::Try, TxWait::For(Duration::from_millis(50))] {
        let busy = lock_postgres_sqlx(&mut other, &namespace, &key, wait).await;
        assert!(matches!(busy, Err(TxError::Busy)), "{busy:?}");
    }
    held.rollback().await.unwrap();
    lock_postgres_sqlx(&mut other, &namespace, &key, TxWait::For(Duration::from_secs(5)))
        .await
        .unwrap();
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
    let locker: &'static MysqlTx = Box::leak(Box::new(MysqlTx::new("sqlx_locks", "sqlx_fences").unwrap()));
    for ddl in locker.schema() {
        server.sql(ddl).await;
    }
    server
        .sql("CREATE TABLE sqlx_counter (id int PRIMARY KEY, n bigint NOT NULL)")
        .await;
    server.sql("INSERT INTO sqlx_counter VALUES (1, 0)").await;
    let mutex = locks(server.config())
        .await
        .mutex("sqlx-sum")
        .acquire()
        .await
        .unwrap();
    let workers = additions!(
        my(&server.address()),
        |tx, namespace, key, wait| locker.lock_sqlx(tx, namespace, key, wait),
        "sqlx_counter",
        "UPDATE sqlx_counter SET n = ?"
    );
    for worker in workers.collect::<Vec<_>>() {
        worker.await.unwrap();
    }
    assert_eq!(server.sql("SELECT n FROM sqlx_counter").await, [SUM.to_string()]);
    mutex.release().await.unwrap();

    let (mut a, mut b) = (my(&server.address()).await, my(&server.address()).await);
    let (namespace, key) = key("sqlx-life");
    let mut held = a.begin().await.unwrap();
    locker
        .lock_sqlx(&mut held, &namespace, &key, TxWait::Try)
        .await
        .unwrap();
    let mut other = b.begin().await.unwrap();
    let busy = locker.lock_sqlx(&mut other, &namespace, &key, TxWait::Try).await;
    assert!(matches!(busy, Err(TxError::Busy)), "{busy:?}");
    held.commit().await.unwrap();
    locker
        .lock_sqlx(&mut other, &namespace, &key, TxWait::For(Duration::from_secs(5)))
        .await
        .unwrap();
    other.commit().await.unwrap();
    for (token, good) in [(5, true), (7, true), (6, false)] {
        let mut tx = b.begin().await.unwrap();
        let admitted = locker
            .fence_sqlx(&mut tx, "row:7", FencingToken::new(token))
            .await;
        assert_eq!(admitted.is_ok(), good, "{token}: {admitted:?}");
        tx.commit().await.unwrap();
    }
}
