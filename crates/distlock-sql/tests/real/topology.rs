//! Replicas, failover, poolers, and clocks that jump.

use std::time::Duration;

use distlock_core::driver::{LostReason, Severity};
use distlock_core::{Client, ErrorKind};
use distlock_sql::{Config, Dialect, Host, Layout};
use distlock_testkit::servers::{FakeClock, PgBouncer, Postgres, Setup, or_skip};
use tokio::task::JoinSet;

use crate::both;
use crate::conformance::server;
use crate::server::{Server, config, locks};
use crate::tx::pg_at;

const SEC: Duration = Duration::from_secs(1);

fn host(server: &Server) -> Host {
    server.config().hosts.remove(0)
}

/// Uses a server in short transactions.
async fn ask_on_and_on(address: String) {
    let client = pg_at(&address).await;
    loop {
        client.batch_execute("SELECT pg_sleep(0.002)").await.unwrap();
        tokio::time::sleep(Duration::from_millis(3)).await;
    }
}

/// Takes and releases a lock, waiting out what is on its way.
async fn works(locks: &Client) {
    locks
        .mutex("works")
        .wait(30 * SEC)
        .acquire()
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
}

async fn refused(config: Config, says: &str) {
    let e = locks(config)
        .await
        .mutex("refused")
        .try_acquire()
        .await
        .unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Unavailable, "{e}");
    assert!(e.to_string().contains(says), "{e}");
}

/// F57: a primary that dies, and its standby that takes over: the lock goes on, and so do its tokens. A session's lock
/// is told to be lost, and is free on the new primary.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f57_a_failover_is_followed_with_the_locks() {
    let Some(primary) = or_skip(Postgres::start().await) else {
        return;
    };
    let standby = or_skip(primary.standby().await).expect("the server was there");
    let (mut primary, standby) = (Server::Postgres(primary), Server::Postgres(standby));
    let mut both = primary.config();
    both.hosts = vec![host(&standby), host(&primary)];
    let (a, b) = (locks(both.clone()).await, locks(both.clone()).await);
    let sessions = locks(both.layout(Layout::Session)).await;
    let in_session = sessions.mutex("failover").ttl(60 * SEC).acquire().await.unwrap();
    let held = a.mutex("failover").ttl(30 * SEC).acquire().await.unwrap();
    standby
        .sees("SELECT 1 FROM distlock_locks WHERE name = 'distlock:failover'")
        .await;
    refused(standby.config(), "takes no writes").await;
    let found = locks(primary.config()).await.doctor().await.unwrap();
    assert!(
        found.iter().any(|f| f.id == "postgres-async-replicas"),
        "{found:?}"
    );
    let found = locks(standby.config()).await.doctor().await.unwrap();
    assert!(
        found
            .iter()
            .any(|f| f.id == "postgres-replica" && f.severity == Severity::Error),
        "{found:?}"
    );

    primary.process().kill9().unwrap();
    standby.sql("SELECT pg_promote()").await;
    let verified = async {
        while held.verify().await.is_err() {
            tokio::time::sleep(SEC / 10).await;
        }
    };
    tokio::time::timeout(20 * SEC, verified)
        .await
        .expect("verified on the new primary");
    assert!(b.mutex("failover").try_acquire().await.unwrap().is_none());
    let token = held.token();
    held.release().await.unwrap();
    let next = b.mutex("failover").wait(10 * SEC).acquire().await.unwrap();
    assert!(next.token() > token);
    let reason = tokio::time::timeout(10 * SEC, in_session.lost()).await;
    assert_eq!(reason.expect("told"), LostReason::SessionEnded);
    let again = sessions.mutex("failover").wait(20 * SEC).acquire().await.unwrap();
    again.release().await.unwrap();
}

/// The administrator could write to a replica, for nobody to see.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_read_only_mariadb_is_refused_and_passed_over() {
    let read_only = Setup::default().settings(["--read-only"]);
    let first = Server::start_with(Dialect::Mysql, read_only).await;
    let (Some(first), Some(second)) = (first, Server::start(Dialect::Mysql).await) else {
        return;
    };
    refused(first.config(), "takes no writes").await;
    let found = locks(first.config()).await.doctor().await.unwrap();
    assert!(
        found
            .iter()
            .any(|f| f.id == "mysql-read-only" && f.severity == Severity::Error),
        "{found:?}"
    );
    let mut both = first.config();
    both.hosts = vec![host(&first), host(&second)];
    let locks = locks(both).await;
    works(&locks).await;
    assert!(!second.sql("SELECT name FROM distlock_locks").await.is_empty());
    // They change places, and new connections follow.
    first.sql("SET GLOBAL read_only = 0").await;
    second.sql("SET GLOBAL read_only = 1").await;
    crate::faults::end_sessions(&second, Dialect::Mysql).await;
    works(&locks).await;
    assert!(!first.sql("SELECT name FROM distlock_locks").await.is_empty());
}

/// F71: what passes one server process on between sessions is told, before anything is granted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f71_poolers_that_share_out_sessions_are_refused() {
    let Some(server) = server(Dialect::Postgres) else {
        return;
    };
    for (mode, good) in [("transaction", false), ("statement", false), ("session", true)] {
        let Some(bouncer) =
            or_skip(PgBouncer::start(&server.address(), &[&format!("pool_mode = {mode}")]).await)
        else {
            return;
        };
        let behind = || config(Dialect::Postgres, &bouncer.address());
        // Others use the pooler meanwhile, so that it has several server processes to hand out.
        let others = if good { 0 } else { 3 };
        let _others: JoinSet<()> = (0..others).map(|_| ask_on_and_on(bouncer.address())).collect();
        for layout in [Layout::Row, Layout::Session] {
            let locks = locks(behind().layout(layout)).await;
            if good {
                works(&locks).await;
                continue;
            }
            let e = locks.mutex("pooled").wait(SEC).acquire().await.unwrap_err();
            assert_eq!(e.kind(), ErrorKind::InvalidConfig, "{mode} {layout:?}: {e}");
            assert!(e.to_string().contains("pool_mode = session"), "{e}");
        }
        let found = locks(behind()).await.doctor().await.unwrap();
        assert_eq!(
            found.iter().any(|f| f.id == "postgres-transaction-pooling"),
            !good,
            "{mode}: {found:?}"
        );
    }
}

both! {
    #[test]
    /// A server as it should be is not complained of. Set wrong on purpose, each is found, and the worst come first.
    async fn the_doctor_finds_what_is_set_wrong(dialect) {
        let settings: &[&str] = match dialect {
            Dialect::Postgres => &["fsync=on"],
            Dialect::Mysql => &[
                "--log-bin=log", "--server-id=1", "--binlog-format=ROW", "--sync-binlog=1",
                "--innodb-flush-log-at-trx-commit=1",
            ],
        };
        let Some(server) = Server::start_with(dialect, Setup::default().settings(settings)).await else { return };
        let found = locks(server.config()).await.doctor().await.unwrap();
        assert!(found.iter().all(|f| f.severity == Severity::Info), "{found:?}");

        // PostgreSQL's `fsync` is among what `the_doctor_knows_the_server` finds.
        let wrong: &[(&str, &str)] = match dialect {
            Dialect::Postgres => &[
                ("ALTER SYSTEM SET default_transaction_isolation = serializable", "postgres-isolation"),
                ("ALTER SYSTEM SET synchronous_commit = off", "postgres-synchronous-commit"),
            ],
            Dialect::Mysql => &[
                ("SET GLOBAL binlog_format = 'STATEMENT'", "mysql-binlog-format"),
                ("SET GLOBAL sync_binlog = 0", "mysql-sync-binlog"),
                ("SET GLOBAL innodb_flush_log_at_trx_commit = 2", "mysql-flush"),
                ("SET GLOBAL wait_timeout = 5", "mysql-wait-timeout"),
                ("SET GLOBAL TRANSACTION ISOLATION LEVEL SERIALIZABLE", "mysql-isolation"),
            ],
        };
        for (setting, _) in wrong {
            server.sql(setting).await;
        }
        if dialect == Dialect::Postgres {
            server.sql("SELECT pg_reload_conf()").await;
            let done = "SELECT 1 FROM pg_settings WHERE name = 'synchronous_commit' AND reset_val = 'off'";
            server.sees(done).await;
        }
        let found = locks(server.config()).await.doctor().await.unwrap();
        for (setting, id) in wrong {
            assert!(found.iter().any(|f| f.id == *id), "{setting}: {found:?}");
        }
        assert!(found.is_sorted_by_key(|f| std::cmp::Reverse(f.severity)));
    }

    #[test]
    /// F66: the server's clock judges leases. When it jumps, a lease ends early, which the holder is told and the tokens
    /// show. Session locks know no clock.
    async fn f66_a_jump_of_the_servers_clock_is_told_and_fenced(dialect) {
        let Some(clock) = or_skip(FakeClock::new()) else { return };
        let Some(server) = Server::start_with(dialect, Setup::default().env(clock.env())).await else { return };
        let (a, b) = (locks(server.config()).await, locks(server.config()).await);
        let session = || locks(server.config().layout(Layout::Session));
        let (sa, sb) = (session().await, session().await);
        let held = a.mutex("clock").ttl(60 * SEC).acquire().await.unwrap();
        let in_session = sa.mutex("clock").ttl(60 * SEC).acquire().await.unwrap();
        assert!(b.mutex("clock").try_acquire().await.unwrap().is_none());
        clock.set(120).unwrap();
        // Documented: the row's lease is over by the clock that judges it.
        let next = b.mutex("clock").ttl(600 * SEC).wait(10 * SEC).acquire().await.unwrap();
        assert!(next.token() > held.token(), "the store tells them apart");
        let reason = tokio::time::timeout(5 * SEC, held.lost()).await.expect("told");
        assert_eq!(reason, LostReason::Taken);
        // Safe.
        assert!(sb.mutex("clock").try_acquire().await.unwrap().is_none());
        // Back again, nothing steps back, and what is held is held the longer.
        clock.set(0).unwrap();
        assert!(a.mutex("clock").try_acquire().await.unwrap().is_none());
        next.verify().await.unwrap();
        let token = next.token();
        next.release().await.unwrap();
        let last = a.mutex("clock").wait(10 * SEC).acquire().await.unwrap();
        assert!(last.token() > token);
        assert!(in_session.is_held() && sb.mutex("clock").try_acquire().await.unwrap().is_none());
        in_session.release().await.unwrap();
    }
}
