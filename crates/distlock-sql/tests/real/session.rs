//! `mode=session` where its connection fails.

use std::time::Duration;

use distlock_core::driver::LostReason;
use distlock_sql::{Dialect, Layout};
use distlock_testkit::proxy::{Fault, Proxy};

use crate::both;
use crate::conformance::server;
use crate::server::{Server, config, locks};

const SEC: Duration = Duration::from_secs(1);

both! {
    #[test]
    /// The session dies: the holder is told, is never re-attached, and the next one has it at once.
    async fn f57_the_end_of_the_connection_is_told(dialect) {
        let Some(server) = server(dialect) else { return };
        let proxy = Proxy::start(server.address()).await.unwrap();
        let a = locks(config(dialect, &proxy.address()).layout(Layout::Session)).await;
        let b = locks(server.config().layout(Layout::Session)).await;
        let held = a.mutex("session").ttl(60 * SEC).acquire().await.unwrap();
        assert!(b.mutex("session").try_acquire().await.unwrap().is_none());
        proxy.cut();
        let reason = tokio::time::timeout(10 * SEC, held.lost()).await.expect("told");
        assert_eq!(reason, LostReason::SessionEnded);
        let next = b.mutex("session").wait(20 * SEC).acquire().await.unwrap();
        assert!(a.mutex("session").try_acquire().await.unwrap().is_none());
        next.release().await.unwrap();
        a.mutex("session").wait(20 * SEC).acquire().await.unwrap().release().await.unwrap();
    }

    #[test]
    async fn a_silent_connection_is_told_as_well(dialect) {
        let Some(server) = server(dialect) else { return };
        let proxy = Proxy::start(server.address()).await.unwrap();
        let a = locks(config(dialect, &proxy.address()).layout(Layout::Session)).await;
        let held = a.mutex("silent").ttl(60 * SEC).acquire().await.unwrap();
        proxy.both(Fault::Blackhole);
        let reason = tokio::time::timeout(20 * SEC, held.lost()).await.expect("told");
        assert_eq!(reason, LostReason::SessionEnded);
    }

    #[test]
    /// F40: to the database, one session is one owner; to us, two contenders are two.
    async fn f40_the_sessions_own_reentrancy_does_not_leak(dialect) {
        let Some(server) = server(dialect) else { return };
        let a = locks(server.config().layout(Layout::Session)).await;
        let held = a.mutex("reentrant").acquire().await.unwrap();
        for _ in 0..20 {
            assert!(a.mutex("reentrant").try_acquire().await.unwrap().is_none());
        }
        held.release().await.unwrap();
        let b = locks(server.config().layout(Layout::Session)).await;
        b.mutex("reentrant").try_acquire().await.unwrap().expect("released once is free").release().await.unwrap();
    }

    #[test]
    /// F58: the server closes connections that are idle for 3 s; ours is not idle.
    async fn f58_an_idle_timeout_of_the_server_does_not_end_the_session(dialect) {
        let setting = match dialect {
            Dialect::Postgres => "idle_session_timeout=3s",
            Dialect::Mysql => "--wait-timeout=3",
        };
        let Some(server) = Server::start_with(dialect, Vec::new(), &[setting]).await else { return };
        let session = || locks(server.config().layout(Layout::Session));
        let (a, b) = (session().await, session().await);
        let held = a.mutex("idle").acquire().await.unwrap();
        let end = std::time::Instant::now() + 7 * SEC;
        while std::time::Instant::now() < end {
            tokio::time::sleep(SEC / 2).await;
            assert!(held.is_held());
        }
        assert!(b.mutex("idle").try_acquire().await.unwrap().is_none());
        held.release().await.unwrap();
    }
}
