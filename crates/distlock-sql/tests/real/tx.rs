//! Locks and gates inside a transaction of one's own.

use std::time::Duration;

use distlock_core::{FencingToken, Key, Namespace};
use distlock_sql::Dialect;
use distlock_sql::tx::{self, MysqlTx, TxError, TxWait};
use distlock_sql::versioned::{Step, Versioned, VersionedError};
use mysql_async::prelude::Queryable;

use crate::conformance::server;
use crate::server::{Server, locks, mysql_opts};

async fn pg(server: &Server) -> tokio_postgres::Client {
    pg_at(&server.address()).await
}

/// A user's own connection.
pub(crate) async fn pg_at(address: &str) -> tokio_postgres::Client {
    let url = format!("postgres://postgres@{address}/postgres");
    let (client, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls)
        .await
        .unwrap();
    tokio::spawn(connection);
    client
}

async fn my(server: &Server) -> mysql_async::Conn {
    my_at(&server.address()).await
}

/// A user's own connection.
pub(crate) async fn my_at(address: &str) -> mysql_async::Conn {
    mysql_async::Conn::new(mysql_opts(address)).await.unwrap()
}

fn key(name: &str) -> (Namespace, Key) {
    (Namespace::default(), Key::new(name).unwrap())
}

/// Two workers, a thousand additions each, together with a live mutex of the same name: the sum is exact.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f70_read_modify_write_under_a_postgres_lock_is_exact() {
    let Some(server) = server(Dialect::Postgres) else {
        return;
    };
    server
        .sql("CREATE TABLE tx_counter (n bigint NOT NULL); INSERT INTO tx_counter VALUES (0)")
        .await;
    let mutex = locks(server.config())
        .await
        .mutex("tx-sum")
        .acquire()
        .await
        .unwrap();
    let workers = (0..2).map(|_| {
        tokio::spawn(async move {
            let mut client = pg(server).await;
            let (namespace, key) = key("tx-sum");
            for _ in 0..1000 {
                let tx = client.transaction().await.unwrap();
                tx::lock_postgres(&tx, &namespace, &key, TxWait::Forever)
                    .await
                    .unwrap();
                let n: i64 = tx
                    .query_one("SELECT n FROM tx_counter", &[])
                    .await
                    .unwrap()
                    .get(0);
                tx.execute("UPDATE tx_counter SET n = $1", &[&(n + 1)])
                    .await
                    .unwrap();
                tx.commit().await.unwrap();
            }
        })
    });
    for worker in workers.collect::<Vec<_>>() {
        worker.await.unwrap();
    }
    assert_eq!(server.sql("SELECT n FROM tx_counter").await, ["2000"]);
    mutex.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f70_read_modify_write_under_a_mysql_lock_is_exact() {
    let Some(server) = server(Dialect::Mysql) else {
        return;
    };
    let locker = MysqlTx::new("tx_locks", "tx_fences").unwrap();
    for ddl in locker.schema() {
        server.sql(ddl).await;
    }
    server
        .sql("CREATE TABLE tx_counter (id int PRIMARY KEY, n bigint NOT NULL)")
        .await;
    server.sql("INSERT INTO tx_counter VALUES (1, 0)").await;
    let mutex = locks(server.config())
        .await
        .mutex("tx-sum")
        .acquire()
        .await
        .unwrap();
    let workers = (0..2).map(|_| {
        let locker = locker.clone();
        tokio::spawn(async move {
            let mut conn = my(server).await;
            let (namespace, key) = key("tx-sum");
            for _ in 0..1000 {
                let mut tx = conn
                    .start_transaction(mysql_async::TxOpts::default())
                    .await
                    .unwrap();
                locker
                    .lock(&mut tx, &namespace, &key, TxWait::Forever)
                    .await
                    .unwrap();
                let n: i64 = tx.query_first("SELECT n FROM tx_counter").await.unwrap().unwrap();
                tx.exec_drop("UPDATE tx_counter SET n = ?", (n + 1,))
                    .await
                    .unwrap();
                tx.commit().await.unwrap();
            }
        })
    });
    for worker in workers.collect::<Vec<_>>() {
        worker.await.unwrap();
    }
    assert_eq!(server.sql("SELECT n FROM tx_counter").await, ["2000"]);
    mutex.release().await.unwrap();
}

/// Held until commit, rollback or the connection's end; busy leaves the transaction usable.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_postgres_lock_lasts_as_long_as_its_transaction() {
    let Some(server) = server(Dialect::Postgres) else {
        return;
    };
    let (mut a, mut b) = (pg(server).await, pg(server).await);
    let (namespace, key) = key("tx-life");
    for end in ["commit", "rollback", "savepoint"] {
        let mut held = a.transaction().await.unwrap();
        if end == "savepoint" {
            // Rolled back to before it was taken, it is free.
            let inner = held.savepoint("s").await.unwrap();
            tx::lock_postgres(&inner, &namespace, &key, TxWait::Forever)
                .await
                .unwrap();
            inner.rollback().await.unwrap();
        } else {
            tx::lock_postgres(&held, &namespace, &key, TxWait::Forever)
                .await
                .unwrap();
            let other = b.transaction().await.unwrap();
            for wait in [TxWait::Try, TxWait::For(Duration::from_millis(50))] {
                let busy = tx::lock_postgres(&other, &namespace, &key, wait).await;
                assert!(matches!(busy, Err(TxError::Busy)), "{busy:?}");
            }
            let still: i32 = other.query_one("SELECT 1", &[]).await.unwrap().get(0);
            assert_eq!(still, 1);
            other.commit().await.unwrap();
            match end {
                "commit" => held.commit().await.unwrap(),
                _ => held.rollback().await.unwrap(),
            }
        }
        let other = b.transaction().await.unwrap();
        tx::lock_postgres(&other, &namespace, &key, TxWait::For(Duration::from_secs(5)))
            .await
            .unwrap();
        let timeout: String = other.query_one("SHOW lock_timeout", &[]).await.unwrap().get(0);
        assert_eq!(timeout, "0", "the session's own setting is back");
        other.commit().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mysql_lock_lasts_as_long_as_its_transaction() {
    let Some(server) = server(Dialect::Mysql) else {
        return;
    };
    let locker = MysqlTx::new("tx_locks_life", "tx_fences_life").unwrap();
    let (mut a, mut b) = (my(server).await, my(server).await);
    let (namespace, key) = key("tx-life");
    let mut tx = a.start_transaction(mysql_async::TxOpts::default()).await.unwrap();
    let e = locker
        .lock(&mut tx, &namespace, &key, TxWait::Forever)
        .await
        .unwrap_err();
    assert!(
        matches!(&e, TxError::NoTable(ddl) if ddl.contains("CREATE TABLE")),
        "{e}"
    );
    tx.rollback().await.unwrap();
    for ddl in locker.schema() {
        server.sql(ddl).await;
    }
    for commit in [true, false] {
        let mut held = a.start_transaction(mysql_async::TxOpts::default()).await.unwrap();
        locker
            .lock(&mut held, &namespace, &key, TxWait::Forever)
            .await
            .unwrap();
        let mut other = b.start_transaction(mysql_async::TxOpts::default()).await.unwrap();
        let busy = locker.lock(&mut other, &namespace, &key, TxWait::Try).await;
        assert!(matches!(busy, Err(TxError::Busy)), "{busy:?}");
        match commit {
            true => held.commit().await.unwrap(),
            false => held.rollback().await.unwrap(),
        }
        locker
            .lock(&mut other, &namespace, &key, TxWait::For(Duration::from_secs(5)))
            .await
            .unwrap();
        other.commit().await.unwrap();
    }
}

/// The write of a paused holder is refused in its own transaction.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gates_in_a_transaction_refuse_stale_tokens() {
    if let Some(server) = server(Dialect::Postgres) {
        let ddl = tx::fence_schema_postgres("gate_fences").unwrap();
        server.sql(&ddl).await;
        let mut client = pg(server).await;
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
        let gate = MysqlTx::new("gate_locks", "gate_fences").unwrap();
        for ddl in gate.schema() {
            server.sql(ddl).await;
        }
        let mut conn = my(server).await;
        for (token, good) in [(5, true), (5, true), (7, true), (6, false)] {
            let mut tx = conn
                .start_transaction(mysql_async::TxOpts::default())
                .await
                .unwrap();
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
