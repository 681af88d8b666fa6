//! Servers, connections and rows that fail under a lock.

use std::time::{Duration, Instant};

use distlock_core::ErrorKind;
use distlock_core::driver::{Break, LostReason};
use distlock_sql::Dialect;
use distlock_testkit::proxy::{Fault, Proxy};

use crate::both;
use crate::conformance::server;
use crate::server::{Server, config, locks};

const SEC: Duration = Duration::from_secs(1);

/// Ends all of our sessions, as an administrator would.
pub(crate) async fn end_sessions(server: &Server, dialect: Dialect) {
    match dialect {
        Dialect::Postgres => {
            let kill =
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'distlock'";
            server.sql(kill).await;
        }
        Dialect::Mysql => {
            let list = "SELECT CONCAT('KILL ', id) FROM information_schema.processlist \
                WHERE id <> CONNECTION_ID() AND user = 'root' AND db = 'distlock'";
            for kill in server.sql(list).await {
                // Some have ended meanwhile.
                let _ = server.try_sql(&kill).await;
            }
        }
    }
}

both! {
    #[test]
    async fn a_killed_server_comes_back_with_its_locks(dialect) {
        let Some(mut server) = Server::start(dialect).await else { return };
        let (a, b) = (locks(server.config()).await, locks(server.config()).await);
        let held = a.mutex("killed").ttl(20 * SEC).acquire().await.unwrap();
        let token = held.token();
        server.process().kill9().unwrap();
        let e = b.mutex("killed").try_acquire().await.unwrap_err();
        assert_eq!(e.kind(), ErrorKind::Unavailable, "{e}");
        server.restart().await;
        assert!(b.mutex("killed").try_acquire().await.unwrap().is_none(), "the row is still there");
        held.verify().await.unwrap();
        held.release().await.unwrap();
        let next = b.mutex("killed").wait(10 * SEC).acquire().await.unwrap();
        assert!(next.token() > token);
    }

    #[test]
    async fn a_server_that_dies_under_a_waiter_serves_it_later(dialect) {
        let Some(mut server) = Server::start(dialect).await else { return };
        let (a, b) = (locks(server.config()).await, locks(server.config()).await);
        let held = a.mutex("waiter").ttl(20 * SEC).acquire().await.unwrap();
        let waiter = tokio::spawn(b.mutex("waiter").wait(60 * SEC).acquire());
        tokio::time::timeout(10 * SEC, async {
            while a.inspect("waiter").await.unwrap().holders.is_empty() {}
        })
        .await
        .unwrap();
        server.process().kill9().unwrap();
        server.restart().await;
        held.verify().await.unwrap();
        held.release().await.unwrap();
        waiter.await.unwrap().unwrap().release().await.unwrap();
    }

    #[test]
    async fn connections_killed_by_an_admin_do_not_end_a_hold(dialect) {
        let Some(server) = Server::start(dialect).await else { return };
        let (a, b) = (locks(server.config()).await, locks(server.config()).await);
        let held = a.mutex("admin").ttl(5 * SEC).acquire().await.unwrap();
        let waiter = tokio::spawn(b.mutex("admin").wait(60 * SEC).acquire());
        for _ in 0..10 {
            end_sessions(&server, dialect).await;
            tokio::time::sleep(SEC / 5).await;
            assert!(held.is_held());
        }
        held.verify().await.unwrap();
        held.release().await.unwrap();
        waiter.await.unwrap().unwrap().release().await.unwrap();
        // A single try on connections that died while idle.
        end_sessions(&server, dialect).await;
        a.mutex("admin").try_acquire().await.unwrap().expect("free").release().await.unwrap();
    }

    #[test]
    /// The kernel of a stopped server goes on accepting connections.
    async fn a_stopped_server_is_given_up_in_time(dialect) {
        let Some(mut server) = Server::start(dialect).await else { return };
        let mut config = server.config();
        config.timeout = SEC;
        config.connect_timeout = SEC;
        let (a, fresh) = (locks(config.clone()).await, locks(config).await);
        a.mutex("stopped").acquire().await.unwrap().release().await.unwrap();
        server.process().pause().unwrap();
        for locks in [&a, &fresh] {
            let start = Instant::now();
            let e = locks.mutex("stopped").try_acquire().await.unwrap_err();
            assert!(matches!(e.kind(), ErrorKind::Unavailable | ErrorKind::OutcomeUnknown), "{e}");
            assert!(start.elapsed() < 15 * SEC);
        }
        server.process().resume().unwrap();
        a.mutex("stopped").wait(30 * SEC).acquire().await.unwrap().release().await.unwrap();
    }

    #[test]
    /// The statement arrives and its answer does not: nothing stays behind.
    async fn an_acquisition_whose_answer_is_lost_is_cleaned_up(dialect) {
        let Some(server) = server(dialect) else { return };
        let proxy = Proxy::start(server.address()).await.unwrap();
        let mut config = config(dialect, &proxy.address());
        config.timeout = SEC;
        config.connect_timeout = SEC;
        // The connection that is warm is the one that is used.
        config.connections = 1;
        let (a, b) = (locks(config).await, locks(server.config()).await);
        a.mutex("warm").acquire().await.unwrap().release().await.unwrap();
        proxy.replies(Fault::Blackhole);
        let e = a.mutex("answer").ttl(60 * SEC).wait(SEC / 2).acquire().await.unwrap_err();
        assert_eq!(e.kind(), ErrorKind::OutcomeUnknown, "{e}");
        // The clean-up may have given it back by now: what is sent on the same connection arrives in order.
        let row = "SELECT version FROM distlock_locks WHERE name = 'distlock:answer'";
        assert!(!server.sql(row).await.is_empty(), "it arrived, though nobody heard");
        proxy.heal();
        b.mutex("answer").wait(20 * SEC).acquire().await.unwrap().release().await.unwrap();
    }

    #[test]
    /// A lock that is taken away is told within a second, though its renewal is far away.
    async fn a_row_deleted_or_edited_behind_the_holder_is_told(dialect) {
        let Some(server) = server(dialect) else { return };
        let locks = locks(server.config()).await;
        for edit in [
            "DELETE FROM distlock_locks WHERE name = 'distlock:behind'",
            "UPDATE distlock_locks SET owner = 'somebody' WHERE name = 'distlock:behind'",
        ] {
            let held = locks.mutex("behind").ttl(60 * SEC).acquire().await.unwrap();
            let lost = held.lost();
            server.sql(edit).await;
            let start = Instant::now();
            let reason = tokio::time::timeout(10 * SEC, lost).await.expect("told");
            assert_eq!(reason, LostReason::Taken);
            assert!(start.elapsed() < 3 * SEC, "{:?}", start.elapsed());
            assert!(!held.is_held());
            drop(held);
            server.sql("DELETE FROM distlock_locks WHERE name = 'distlock:behind'").await;
        }
    }

    #[test]
    async fn a_broken_lock_is_told_with_its_reason(dialect) {
        let Some(server) = server(dialect) else { return };
        let (a, b) = (locks(server.config()).await, locks(server.config()).await);
        for shared in [false, true] {
            let lock = if shared { a.rw("broken-rw").read() } else { a.mutex("broken") };
            let key = if shared { "broken-rw" } else { "broken" };
            let held = lock.ttl(60 * SEC).acquire().await.unwrap();
            let how = Break { grace: 2 * SEC, reason: Some("stuck".into()), ..Break::default() };
            assert_eq!(b.break_lock(key, how).await.unwrap().len(), 1);
            let reason = tokio::time::timeout(10 * SEC, held.lost()).await.expect("told");
            assert_eq!(reason, LostReason::Broken { reason: Some("stuck".into()) });
        }
    }
}
