//! Commit first, release second, on real transactions: also when the connection ends while the commit is under way.

use std::time::{Duration, Instant};

use distlock_core::{CommitError, Guard, RunError};
use distlock_sql::Dialect;
use distlock_sql::tx::CommitFailure;
use distlock_testkit::proxy::{Fault, Proxy};
use mysql_async::prelude::Queryable;

use crate::both;
use crate::conformance::server;
use crate::server::{Server, locks};
use crate::tx::{my_at, pg_at};

const SEC: Duration = Duration::from_secs(1);

/// How a commit ended.
#[derive(Debug, PartialEq, Eq)]
enum Ended {
    Committed,
    RolledBack,
    Unknown,
}

fn ended<T, E: CommitFailure>(done: Result<T, CommitError<E>>) -> Ended {
    match done {
        Ok(_) => Ended::Committed,
        Err(CommitError::Failed(failed)) if failed.error().is_rolled_back() => Ended::RolledBack,
        Err(_) => Ended::Unknown,
    }
}

/// Inserts `n` in a transaction over `address`, and commits it under `guard` while `meanwhile` runs.
async fn insert(
    dialect: Dialect,
    address: &str,
    n: u32,
    guard: Guard,
    meanwhile: impl Future<Output = ()>,
) -> Ended {
    let insert = format!("INSERT INTO commits VALUES ({n})");
    match dialect {
        Dialect::Postgres => {
            let mut client = pg_at(address).await;
            client
                .batch_execute("SET application_name = 'the_user'")
                .await
                .unwrap();
            let tx = client.transaction().await.unwrap();
            tx.batch_execute(&insert).await.unwrap();
            ended(tokio::join!(guard.release_after(tx.commit()), meanwhile).0)
        }
        Dialect::Mysql => {
            let mut conn = my_at(address).await;
            let mut tx = conn
                .start_transaction(mysql_async::TxOpts::default())
                .await
                .unwrap();
            tx.query_drop(&insert).await.unwrap();
            ended(tokio::join!(guard.release_after(tx.commit()), meanwhile).0)
        }
    }
}

both! {
    #[test]
    async fn f70_a_commit_whose_answer_is_lost_keeps_the_lock(dialect) {
        let Some(server) = server(dialect) else { return };
        server.sql("CREATE TABLE commits (n int PRIMARY KEY)").await;
        let (a, b) = (locks(server.config()).await, locks(server.config()).await);
        let guard = a.mutex("commit").ttl(3 * SEC).acquire().await.unwrap();
        let proxy = Proxy::start(server.address()).await.unwrap();
        let cut = async {
            proxy.replies(Fault::Hold);
            server.sees("SELECT n FROM commits WHERE n = 1").await;
            proxy.cut();
        };
        assert_eq!(insert(dialect, &proxy.address(), 1, guard, cut).await, Ended::Unknown);
        let start = Instant::now();
        assert!(b.mutex("commit").try_acquire().await.unwrap().is_none(), "kept");
        let next = b.mutex("commit").wait(20 * SEC).acquire().await.unwrap();
        assert!(start.elapsed() > SEC, "not released, but ended by its lease: {:?}", start.elapsed());

        // Known to be rolled back, or committed, it is free at once.
        let ended = insert(dialect, &server.address(), 2, next, async {}).await;
        assert_eq!(ended, Ended::Committed);
        let next = b.mutex("commit").try_acquire().await.unwrap().expect("free");
        next.release().await.unwrap();
    }

    #[test]
    /// The commit hangs in the server, and an administrator ends the connection.
    async fn a_connection_killed_in_the_middle_of_a_commit_keeps_the_lock(dialect) {
        let Some(server) = Server::start(dialect).await else { return };
        server.sql("CREATE TABLE commits (n int PRIMARY KEY)").await;
        let (a, b) = (locks(server.config()).await, locks(server.config()).await);
        let guard = a.mutex("commit").ttl(5 * SEC).acquire().await.unwrap();
        let address = server.address();
        let ended = match dialect {
            Dialect::Postgres => {
                server.commits_slowly("commits").await;
                let kill = async {
                    server.sees("SELECT 1 FROM pg_stat_activity WHERE query = 'COMMIT' AND wait_event = 'PgSleep'").await;
                    server.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event = 'PgSleep'").await;
                };
                insert(dialect, &address, 1, guard, kill).await
            }
            Dialect::Mysql => {
                let mut conn = my_at(&address).await;
                let mut tx = conn.start_transaction(mysql_async::TxOpts::default()).await.unwrap();
                tx.query_drop("INSERT INTO commits VALUES (1)").await.unwrap();
                // Commits wait while somebody has this.
                let mut backup = my_at(&address).await;
                backup.query_drop("FLUSH TABLES WITH READ LOCK").await.unwrap();
                let kill = async {
                    let waits = "FROM information_schema.processlist WHERE info = 'COMMIT' AND state LIKE 'Waiting for%'";
                    server.sees(&format!("SELECT id {waits}")).await;
                    let kill = server.sql(&format!("SELECT CONCAT('KILL ', id) {waits}")).await;
                    server.sql(&kill[0]).await;
                    backup.query_drop("UNLOCK TABLES").await.unwrap();
                };
                let done = tokio::join!(guard.release_after(tx.commit()), kill);
                ended(done.0)
            }
        };
        assert_eq!(ended, Ended::Unknown);
        assert!(b.mutex("commit").try_acquire().await.unwrap().is_none(), "kept");
        b.mutex("commit").wait(30 * SEC).acquire().await.unwrap().release().await.unwrap();
    }
}

/// The server itself says that nothing was committed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_that_the_server_refuses_frees_the_lock_at_once() {
    let Some(server) = server(Dialect::Postgres) else {
        return;
    };
    server
        .sql("CREATE TABLE deferred (n int UNIQUE DEFERRABLE INITIALLY DEFERRED)")
        .await;
    let locks = locks(server.config()).await;
    let guard = locks.mutex("refused").ttl(60 * SEC).acquire().await.unwrap();
    let mut client = pg_at(&server.address()).await;
    let tx = client.transaction().await.unwrap();
    tx.batch_execute("INSERT INTO deferred VALUES (1), (1)")
        .await
        .unwrap();
    let Err(CommitError::Failed(failed)) = guard.release_after(tx.commit()).await else {
        panic!("it is refused")
    };
    assert!(failed.error().is_rolled_back(), "{:?}", failed.error());
    failed.rolled_back().await.unwrap();
    locks
        .mutex("refused")
        .try_acquire()
        .await
        .unwrap()
        .expect("free")
        .release()
        .await
        .unwrap();
}

const EACH: usize = 100;

async fn worker(server: &'static Server, dialect: Dialect) {
    let locks = locks(server.config()).await;
    for _ in 0..EACH {
        let lock = locks.mutex("run-sum");
        let done: Result<i32, String> = match dialect {
            Dialect::Postgres => {
                let mut client = pg_at(&server.address()).await;
                let run = lock.run_then_commit(
                    async |_held| {
                        let tx = client.transaction().await?;
                        let n: i32 = tx.query_one("SELECT n FROM run_counter", &[]).await?.get(0);
                        tx.execute("UPDATE run_counter SET n = $1", &[&(n + 1)]).await?;
                        Ok((n, tx))
                    },
                    async |tx| tx.commit().await,
                );
                run.await
                    .map_err(|e: RunError<tokio_postgres::Error, i32>| e.to_string())
            }
            Dialect::Mysql => {
                let mut conn = my_at(&server.address()).await;
                let run = lock.run_then_commit(
                    async |_held| {
                        let mut tx = conn.start_transaction(mysql_async::TxOpts::default()).await?;
                        let n: i32 = tx.query_first("SELECT n FROM run_counter").await?.unwrap();
                        tx.exec_drop("UPDATE run_counter SET n = ?", (n + 1,)).await?;
                        Ok((n, tx))
                    },
                    async |tx| tx.commit().await,
                );
                run.await
                    .map_err(|e: RunError<mysql_async::Error, i32>| e.to_string())
            }
        };
        done.unwrap();
    }
}

/// F70: lock, begin, read, write, commit, release, in this order by construction.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f70_bodies_that_return_their_transaction_lose_no_update() {
    const WORKERS: usize = 4;
    for dialect in [Dialect::Postgres, Dialect::Mysql] {
        let Some(server) = server(dialect) else { return };
        server
            .sql("CREATE TABLE run_counter (id int PRIMARY KEY, n int)")
            .await;
        server.sql("INSERT INTO run_counter VALUES (1, 0)").await;
        let workers: Vec<_> = (0..WORKERS)
            .map(|_| tokio::spawn(worker(server, dialect)))
            .collect();
        for worker in workers {
            worker.await.unwrap();
        }
        let sum = (WORKERS * EACH).to_string();
        assert_eq!(server.sql("SELECT n FROM run_counter").await, [sum]);
    }
}
