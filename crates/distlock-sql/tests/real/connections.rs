//! Connections that are killed in the middle of something, or fall silent; locks that hold no connection.

use std::time::{Duration, Instant};

use distlock_core::driver::LostReason;
use distlock_core::{ErrorKind, RunError, Wait};
use distlock_sql::{Dialect, Layout};
use distlock_testkit::proxy::{Fault, Proxy};
use distlock_testkit::servers::eventually;
use mysql_async::prelude::Queryable;

use crate::both;
use crate::conformance::server;
use crate::faults::end_sessions;
use crate::server::{Server, config, locks};
use crate::tx::{my_at, pg_at};

const SEC: Duration = Duration::from_secs(1);

/// Kills the connection that is in the middle of taking a lock.
async fn kill_the_acquisition(server: &Server, dialect: Dialect) {
    match dialect {
        Dialect::Postgres => {
            let busy = "FROM pg_stat_activity WHERE application_name = 'distlock' AND state = 'active' \
                AND wait_event_type IN ('Lock', 'Timeout')";
            server.sees(&format!("SELECT 1 {busy}")).await;
            server
                .sql(&format!("SELECT pg_terminate_backend(pid) {busy}"))
                .await;
        }
        Dialect::Mysql => {
            let busy = "FROM information_schema.processlist WHERE id <> CONNECTION_ID() \
                AND info LIKE 'INSERT INTO `distlock_locks`%'";
            server.sees(&format!("SELECT 1 {busy}")).await;
            for kill in server.sql(&format!("SELECT CONCAT('KILL ', id) {busy}")).await {
                let _ = server.try_sql(&kill).await;
            }
        }
    }
}

both! {
    #[test]
    /// The statement waits for its row, which another transaction has locked, when its connection is killed.
    async fn a_connection_killed_in_the_middle_of_a_statement_is_got_over(dialect) {
        let Some(server) = Server::start(dialect).await else { return };
        let locks = locks(server.config()).await;
        locks.mutex("mid").acquire().await.unwrap().release().await.unwrap();
        let row = "SELECT * FROM distlock_locks WHERE name = 'distlock:mid' FOR UPDATE";
        let acquiring = || tokio::spawn(locks.mutex("mid").wait(30 * SEC).acquire());
        let acquired = match dialect {
            Dialect::Postgres => {
                let mut admin = pg_at(&server.address()).await;
                let tx = admin.transaction().await.unwrap();
                tx.batch_execute(row).await.unwrap();
                let acquired = acquiring();
                kill_the_acquisition(&server, dialect).await;
                tx.rollback().await.unwrap();
                acquired
            }
            Dialect::Mysql => {
                let mut admin = my_at(&server.address()).await;
                let mut tx = admin.start_transaction(mysql_async::TxOpts::default()).await.unwrap();
                tx.query_drop(row).await.unwrap();
                let acquired = acquiring();
                kill_the_acquisition(&server, dialect).await;
                tx.rollback().await.unwrap();
                acquired
            }
        };
        acquired.await.unwrap().unwrap().release().await.unwrap();
        assert!(locks.inspect("mid").await.unwrap().holders.is_empty());
    }

    #[test]
    /// The statement is done and its commit hangs when its connection is killed: whatever became of it, the caller
    /// gets the lock, once.
    async fn a_connection_killed_in_the_middle_of_our_commit_is_got_over(dialect) {
        let Some(server) = Server::start(dialect).await else { return };
        let (a, b) = (locks(server.config()).await, locks(server.config()).await);
        a.mutex("warm").acquire().await.unwrap().release().await.unwrap();
        let acquiring = || tokio::spawn(a.mutex("mid-commit").ttl(20 * SEC).wait(30 * SEC).acquire());
        let acquired = match dialect {
            Dialect::Postgres => {
                server.commits_slowly("distlock_locks").await;
                let acquired = acquiring();
                kill_the_acquisition(&server, dialect).await;
                // It may have been asked again meanwhile.
                let end = async || {
                    end_sessions(&server, dialect).await;
                    server.try_sql("SET lock_timeout = 100; DROP TRIGGER slow ON distlock_locks").await.ok()
                };
                eventually(10 * SEC, end).await.expect("dropped");
                acquired
            }
            Dialect::Mysql => {
                let mut backup = my_at(&server.address()).await;
                for stage in ["START", "FLUSH", "BLOCK_DDL", "BLOCK_COMMIT"] {
                    backup.query_drop(format!("BACKUP STAGE {stage}")).await.unwrap();
                }
                let acquired = acquiring();
                kill_the_acquisition(&server, dialect).await;
                backup.query_drop("BACKUP STAGE END").await.unwrap();
                acquired
            }
        };
        let guard = acquired.await.unwrap().unwrap();
        assert!(b.mutex("mid-commit").try_acquire().await.unwrap().is_none());
        guard.release().await.unwrap();
        b.mutex("mid-commit").wait(10 * SEC).acquire().await.unwrap().release().await.unwrap();
    }

    #[test]
    async fn f60_f34_a_black_hole_ends_the_hold_before_anybody_else_can_have_it(dialect) {
        let Some(server) = server(dialect) else { return };
        let proxy = Proxy::start(server.address()).await.unwrap();
        let mut beyond = config(dialect, &proxy.address());
        (beyond.timeout, beyond.connect_timeout) = (SEC, SEC);
        let (a, b) = (locks(beyond).await, locks(server.config()).await);
        let held = a.mutex("hole").ttl(3 * SEC).acquire().await.unwrap();
        let waiter = tokio::spawn(b.mutex("hole").wait(30 * SEC).acquire());
        proxy.both(Fault::Blackhole);
        let lost = async {
            assert_eq!(held.lost().await, LostReason::Expired);
            Instant::now()
        };
        let granted = async {
            let guard = waiter.await.unwrap().unwrap();
            (Instant::now(), guard)
        };
        let (lost, (granted, guard)) = tokio::join!(lost, granted);
        assert!(lost < granted, "told {:?} late", lost.duration_since(granted));
        guard.release().await.unwrap();
        // Those who ask through it are told in time.
        for wait in [Wait::Try, Wait::For(SEC)] {
            let start = Instant::now();
            let e = a.mutex("other").wait(wait).acquire().await.unwrap_err();
            assert!(matches!(e.kind(), ErrorKind::Unavailable | ErrorKind::OutcomeUnknown), "{e}");
            assert!(start.elapsed() < 8 * SEC, "{wait:?}: {:?}", start.elapsed());
        }
    }

    #[test]
    /// A holder that is told by its administrator, so to speak: the session ends, the next one has the lock.
    async fn f57_f07_sessions_ended_by_an_admin_hold_nothing(dialect) {
        let Some(server) = Server::start(dialect).await else { return };
        let session = || server.config().layout(Layout::Session);
        let (a, b) = (locks(session()).await, locks(session()).await);
        let held = a.mutex("session").ttl(60 * SEC).acquire().await.unwrap();
        let waiter = tokio::spawn(b.mutex("session").wait(30 * SEC).acquire());
        end_sessions(&server, dialect).await;
        let reason = tokio::time::timeout(10 * SEC, held.lost()).await.expect("told");
        assert_eq!(reason, LostReason::SessionEnded);
        // The waiter's session was ended as well: it has a new one, or nothing.
        let next = waiter.await.unwrap().unwrap();
        assert!(a.mutex("session").try_acquire().await.unwrap().is_none(), "held by a session that lives");
        next.release().await.unwrap();
    }

    #[test]
    async fn f74_a_session_lock_is_never_left_on_a_connection(dialect) {
        let Some(server) = server(dialect) else { return };
        let session = || server.config().layout(Layout::Session);
        let (a, b) = (locks(session()).await, locks(session()).await);
        for round in 0..30 {
            let guard = a.mutex("dirty").acquire().await.unwrap();
            match round % 3 {
                0 => drop(guard),
                1 => {
                    let mut release = Box::pin(guard.release());
                    let _ = futures_util::poll!(release.as_mut());
                    drop(release);
                }
                _ => {
                    drop(guard);
                    let run = tokio::spawn(a.mutex("dirty").run(async |_| -> Result<(), ()> { panic!("in the body") }));
                    assert!(run.await.is_err_and(|e| e.is_panic()));
                }
            }
            let start = Instant::now();
            let next = b.mutex("dirty").wait(5 * SEC).acquire().await.unwrap();
            assert!(start.elapsed() < 2 * SEC, "{:?}", start.elapsed());
            next.release().await.unwrap();
        }
    }

    #[test]
    /// A wait is a limit of ours, not of `GET_LOCK`: it means the same everywhere.
    async fn f37_waits_mean_the_same_in_both_modes(dialect) {
        let Some(server) = server(dialect) else { return };
        for layout in [Layout::Row, Layout::Session] {
            let open = || locks(server.config().layout(layout));
            let (a, b) = (open().await, open().await);
            let key = format!("waits-{layout:?}");
            for wait in [Wait::Try, Wait::For(SEC), Wait::For(366 * 86_400 * SEC), Wait::Forever] {
                a.mutex(&key).wait(wait).acquire().await.unwrap().release().await.unwrap();
            }
            let e = a.mutex(&key).wait(10 * 366 * 86_400 * SEC).acquire().await.unwrap_err();
            assert_eq!(e.kind(), ErrorKind::InvalidConfig);
            let held = a.mutex(&key).acquire().await.unwrap();
            assert_eq!(b.mutex(&key).wait(Wait::Try).acquire().await.unwrap_err().kind(), ErrorKind::Busy);
            // Over before the answer may have come, which is not the same as busy.
            let e = b.mutex(&key).wait(Duration::from_millis(1)).acquire().await.unwrap_err();
            assert!(matches!(e.kind(), ErrorKind::Timeout | ErrorKind::OutcomeUnknown), "{e}");
            let e = b.mutex(&key).wait(SEC).acquire().await.unwrap_err();
            assert_eq!(e.kind(), ErrorKind::Timeout);
            let waiter = tokio::spawn(b.mutex(&key).wait(Wait::Forever).acquire());
            tokio::time::sleep(SEC).await;
            assert!(!waiter.is_finished());
            held.release().await.unwrap();
            waiter.await.unwrap().unwrap().release().await.unwrap();
        }
    }

    #[test]
    /// Two hundred holders and as many connections as one: their work finds the way free.
    async fn f73_holders_occupy_no_connection(dialect) {
        let Some(server) = server(dialect) else { return };
        let mut config = server.config();
        config.connections = 1;
        let locks = locks(config).await;
        let mut held = Vec::new();
        for i in 0..200 {
            held.push(locks.mutex(format!("holder-{i}")).acquire().await.unwrap());
        }
        let work = locks.mutex("work").wait(5 * SEC).run(async |_| Ok::<_, RunError<()>>(1));
        assert_eq!(work.await.unwrap(), 1);
        assert!(held.iter().all(|guard| guard.is_held()));
    }

    #[test]
    /// Names are a database's own, whichever the way.
    async fn f105_two_databases_of_one_server_do_not_meet(dialect) {
        let Some(server) = server(dialect) else { return };
        server.sql("CREATE DATABASE second").await;
        for layout in [Layout::Row, Layout::Session] {
            let here = locks(server.config().layout(layout)).await;
            let there = locks(server.config().layout(layout).database("second")).await;
            let held = here.mutex("allocator").acquire().await.unwrap();
            assert!(there.mutex("allocator").try_acquire().await.unwrap().is_some(), "{layout:?}");
            held.release().await.unwrap();
        }
    }
}

/// F72: waiters have no statement and no snapshot open, for which an index would have to wait.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f72_an_index_is_built_while_others_wait() {
    let Some(server) = Server::start(Dialect::Postgres).await else {
        return;
    };
    server.sql("CREATE TABLE big (n int)").await;
    for layout in [Layout::Row, Layout::Session] {
        let holder = locks(server.config().layout(layout)).await;
        let held = holder.mutex("migrate").acquire().await.unwrap();
        let mut waiters = Vec::new();
        for _ in 0..2 {
            let locks = locks(server.config().layout(layout)).await;
            // Released where it is granted: either of them may be the first.
            let took = async move {
                let guard = locks.mutex("migrate").wait(60 * SEC).acquire().await?;
                guard.release().await
            };
            waiters.push(tokio::spawn(took));
        }
        tokio::time::sleep(SEC / 2).await;
        let index = format!("CREATE INDEX CONCURRENTLY big_{layout:?} ON big (n)");
        let built = tokio::time::timeout(20 * SEC, server.sql(&index)).await;
        built.expect("the index does not wait for waiters");
        assert!(waiters.iter().all(|waiter| !waiter.is_finished()));
        held.release().await.unwrap();
        for waiter in waiters {
            waiter.await.unwrap().unwrap();
        }
    }
}
