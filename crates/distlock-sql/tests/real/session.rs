//! `mode=session` where its connection fails.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use distlock_core::driver::LostReason;
use distlock_sql::{Dialect, Layout};
use distlock_testkit::proxy::{Fault, Proxy};
use distlock_testkit::servers::{PgBouncer, Setup, or_skip};

use crate::both;
use crate::conformance::server;
use crate::rows::names_are_exact;
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
    /// F40: tasks that share a session contend with each other, and with those of another.
    async fn f40_tasks_of_one_session_exclude_each_other(dialect) {
        let Some(server) = server(dialect) else { return };
        let session = || locks(server.config().layout(Layout::Session));
        let clients = [session().await, session().await];
        let inside = Arc::new(AtomicU32::new(0));
        let tasks: Vec<_> = (0..20)
            .map(|i| {
                let (lock, inside) = (clients[i % 2].mutex("tasks").wait(60 * SEC), inside.clone());
                tokio::spawn(async move {
                    let guard = lock.acquire().await.unwrap();
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                    tokio::task::yield_now().await;
                    inside.fetch_sub(1, Ordering::SeqCst);
                    guard.release().await.unwrap();
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
    }

    #[test]
    async fn f103_f98_names_of_sessions_are_exact_and_long(dialect) {
        let Some(server) = server(dialect) else { return };
        let session = || locks(server.config().layout(Layout::Session));
        names_are_exact(&session().await, &session().await).await;
    }

    #[test]
    /// F58: the server closes connections that are idle for 3 s; ours is not idle.
    async fn f58_an_idle_timeout_of_the_server_does_not_end_the_session(dialect) {
        let setting = match dialect {
            Dialect::Postgres => "idle_session_timeout=3s",
            Dialect::Mysql => "--wait-timeout=3",
        };
        let Some(server) = Server::start_with(dialect, Setup::default().settings([setting])).await else { return };
        let session = || locks(server.config().layout(Layout::Session));
        let (a, b) = (session().await, session().await);
        // PgBouncer closes them as well.
        let settings = ["pool_mode = session", "client_idle_timeout = 3"];
        let bouncer = match dialect {
            Dialect::Postgres => or_skip(PgBouncer::start(&server.address(), &settings).await),
            Dialect::Mysql => None,
        };
        let mut held = vec![a.mutex("idle").acquire().await.unwrap()];
        if let Some(bouncer) = &bouncer {
            let beyond = locks(config(dialect, &bouncer.address()).layout(Layout::Session)).await;
            held.push(beyond.mutex("idle-beyond").acquire().await.unwrap());
        }
        let end = std::time::Instant::now() + 7 * SEC;
        while std::time::Instant::now() < end {
            tokio::time::sleep(SEC / 2).await;
            assert!(held.iter().all(|guard| guard.is_held()));
        }
        for guard in held {
            assert!(b.mutex(guard.key().as_str()).try_acquire().await.unwrap().is_none());
            guard.release().await.unwrap();
        }
    }
}
