//! What the row engine does on a server of either dialect that works.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use distlock_core::driver::Order;
use distlock_core::{Client, ErrorKind, Guard, Renew};
use distlock_testkit::proxy::{Fault, Proxy};
use distlock_testkit::servers::eventually;

use crate::both;
use crate::conformance::server;
use crate::server::{Server, config, locks};

const MS: Duration = Duration::from_millis(1);

/// Names of all lengths, and such as others fold by case, accents, trailing blanks, a hash or a CRC: all different
/// locks. Those that were held at the end.
pub(crate) async fn names_are_exact(a: &Client, b: &Client) -> Vec<Guard> {
    let mut held = Vec::new();
    for len in [63, 64, 65, 191, 255, 256, 512] {
        let name = "x".repeat(len);
        let other = format!("{}y", "x".repeat(len - 1));
        held.push(a.mutex(&name).acquire().await.unwrap());
        assert!(b.mutex(&name).try_acquire().await.unwrap().is_none(), "{len}");
        let other = b.mutex(&other).try_acquire().await.unwrap();
        other.expect("another name").release().await.unwrap();
    }
    let names = [
        "case", "Case", "cAse", "résumé", "resume", "blank", "blank ", "plumless", "buckeroo", "ß", "ss",
    ];
    for name in names {
        let got = a.mutex(name).try_acquire().await.unwrap();
        held.push(got.unwrap_or_else(|| panic!("{name:?} is another lock")));
    }
    held
}

both! {
    #[test]
    /// Over a way of 60 ms in each direction, an answer takes 120 ms: two round trips would show.
    async fn acquire_and_release_are_one_round_trip_each(dialect) {
        let Some(server) = server(dialect) else { return };
        let proxy = Proxy::start(server.address()).await.unwrap();
        let locks = locks(config(dialect, &proxy.address())).await;
        locks.mutex("round-trip").acquire().await.unwrap().release().await.unwrap();
        let way = 60 * MS;
        proxy.both(Fault::Delay { by: way, jitter: Duration::ZERO });
        let start = Instant::now();
        let guard = locks.mutex("round-trip").acquire().await.unwrap();
        let acquired = start.elapsed();
        guard.release().await.unwrap();
        let released = start.elapsed() - acquired;
        for took in [acquired, released] {
            assert!(took >= 2 * way && took < 4 * way, "acquire {acquired:?}, release {released:?}");
        }
    }

    #[test]
    async fn f103_f98_names_are_exact_and_long(dialect) {
        let Some(server) = server(dialect) else { return };
        let (a, b) = (locks(server.config()).await, locks(server.config()).await);
        let held = names_are_exact(&a, &b).await;
        for guard in &held {
            assert_eq!(&a.inspect(guard.key().as_str()).await.unwrap().key, guard.key());
        }
        let listed = a.list("", None, 1000).await.unwrap();
        for guard in &held {
            assert!(listed.iter().any(|info| info.key == *guard.key()), "{}", guard.key());
        }
    }

    #[test]
    /// F65: the row says what was asked for, from the shortest lease to the longest.
    async fn f65_what_is_accepted_is_stored_as_asked(dialect) {
        let Some(server) = server(dialect) else { return };
        let locks = locks(server.config()).await;
        for ttl in [100 * MS, 1234 * MS, Duration::from_secs(86_400 * 366)] {
            let held = locks.mutex("stored").ttl(ttl).renew(Renew::Never).acquire().await.unwrap();
            let row = "SELECT CAST(expires - since AS char(20)) FROM distlock_locks WHERE name = 'distlock:stored'";
            assert_eq!(server.sql(row).await[0].trim(), ttl.as_micros().to_string());
            drop(held);
            // It is given back in the background.
            locks.mutex("stored").wait(Duration::from_secs(10)).acquire().await.unwrap().release().await.unwrap();
        }
    }

    #[test]
    async fn a_pool_of_one_does_not_deadlock(dialect) {
        let Some(server) = server(dialect) else { return };
        let mut config = server.config();
        config.connections = 1;
        let locks = locks(config).await;
        let inside = Arc::new(AtomicU32::new(0));
        let holder = locks.mutex("pool-of-one").acquire().await.unwrap();
        let waiters: Vec<_> = (0..20)
            .map(|i| {
                let (locks, inside) = (locks.clone(), inside.clone());
                tokio::spawn(async move {
                    let order = if i % 2 == 0 { Order::Any } else { Order::Fifo };
                    let guard = locks.mutex("pool-of-one").order(order).wait(60_000 * MS).acquire().await.unwrap();
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                    tokio::task::yield_now().await;
                    inside.fetch_sub(1, Ordering::SeqCst);
                    guard.release().await.unwrap();
                })
            })
            .collect();
        // Another key is not disturbed by those who wait.
        locks.mutex("pool-of-one-other").acquire().await.unwrap().release().await.unwrap();
        holder.release().await.unwrap();
        for waiter in waiters {
            waiter.await.unwrap();
        }
    }

    #[test]
    async fn f91_rows_that_nobody_uses_go(dialect) {
        let Some(server) = server(dialect) else { return };
        let mut config = server.config().table("purged_locks");
        config.purge_after = 300 * MS;
        let locks = locks(config).await;
        let mut last = None;
        for from in (0..1000).step_by(100) {
            let names = (from..from + 100).map(async |i| {
                let guard = locks.mutex(format!("purge-{i}")).acquire().await.unwrap();
                let token = guard.token();
                guard.release().await.unwrap();
                token
            });
            last = futures_util::future::join_all(names).await.into_iter().max().flatten();
        }
        let held = locks.mutex("purge-held").acquire().await.unwrap();
        let left = eventually(Duration::from_secs(20), async || {
            let rows = server.sql("SELECT count(*) FROM purged_locks").await;
            (rows == ["1"]).then_some(())
        });
        left.await.expect("only the held one is left");
        assert!(held.is_held());
        let again = locks.mutex("purge-999").acquire().await.unwrap();
        assert!(again.token() > last, "tokens go on growing");
    }

    #[test]
    async fn a_table_that_is_not_ours_is_refused(dialect) {
        let Some(server) = server(dialect) else { return };
        server.sql("CREATE TABLE orders (name varchar(100) PRIMARY KEY, owner varchar(100))").await;
        let e = locks(server.config().table("orders")).await.mutex("a").try_acquire().await.unwrap_err();
        assert_eq!(e.kind(), ErrorKind::InvalidConfig);
        assert!(e.to_string().contains("not one of ours"), "{e}");
        assert!(server.sql("SELECT name FROM orders").await.is_empty());

        let mut config = server.config().table("never_made");
        config.create = false;
        let e = locks(config).await.mutex("a").try_acquire().await.unwrap_err();
        assert!(e.to_string().contains("CREATE TABLE"), "{e}");
    }

    #[test]
    async fn a_table_that_is_dropped_is_made_again(dialect) {
        let Some(server) = server(dialect) else { return };
        let locks = locks(server.config().table("dropped_locks")).await;
        locks.mutex("a").acquire().await.unwrap().release().await.unwrap();
        server.sql("DROP TABLE dropped_locks").await;
        locks.mutex("a").acquire().await.unwrap().release().await.unwrap();
    }

    #[test]
    async fn f105_another_table_or_namespace_is_another_lock(dialect) {
        let Some(server) = server(dialect) else { return };
        let a = locks(server.config()).await;
        let b = locks(server.config().table("other_locks")).await;
        let c = distlock_core::Client::builder().namespace("shop");
        let config = server.config();
        let c = c.build(|engine| async move { distlock_sql::open(engine, config).await }).await.unwrap();
        let held = a.mutex("allocator").acquire().await.unwrap();
        for other in [&b, &c] {
            other.mutex("allocator").try_acquire().await.unwrap().expect("another lock").release().await.unwrap();
        }
        held.release().await.unwrap();
    }

    #[test]
    /// One statement renews them all, at most one in twenty of them asks about them all.
    async fn many_holds_are_renewed_together(dialect) {
        let Some(server) = server(dialect) else { return };
        let locks = locks(server.config()).await;
        let mut held = Vec::new();
        for i in 0..300 {
            held.push(locks.mutex(format!("many-{i}")).ttl(1500 * MS).acquire().await.unwrap());
        }
        tokio::time::sleep(4000 * MS).await;
        assert!(held.iter().all(|guard| guard.is_held()));
        let probe = crate::server::locks(server.config()).await;
        for i in [0, 150, 299] {
            assert!(probe.mutex(format!("many-{i}")).try_acquire().await.unwrap().is_none());
        }
    }

    #[test]
    async fn the_doctor_knows_the_server(dialect) {
        let Some(server) = server(dialect) else { return };
        let found = locks(server.config()).await.doctor().await.unwrap();
        assert!(found.iter().any(|f| f.id.ends_with("-version")), "{found:?}");
        // Our own test servers are started without care for crashes of the machine.
        let careless = ["postgres-fsync", "mysql-flush"];
        let ours = !matches!(server, Server::External);
        assert!(!ours || found.iter().any(|f| careless.contains(&&*f.id)), "{found:?}");
    }
}

/// Whoever waits hears of a release by a notice: the next look of its own would be 5 s later.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_on_postgres_wakes_a_waiter_of_another_client() {
    let Some(server) = server(distlock_sql::Dialect::Postgres) else {
        return;
    };
    let (a, b) = (locks(server.config()).await, locks(server.config()).await);
    for order in [Order::Any, Order::Fifo] {
        for _ in 0..5 {
            let held = a.mutex("notice").acquire().await.unwrap();
            let waiter = tokio::spawn(b.mutex("notice").ttl(60_000 * MS).order(order).acquire());
            eventually(Duration::from_secs(10), async || {
                let marked = "SELECT 1 FROM distlock_locks WHERE name = 'distlock:notice' AND waits > 0 \
                    AND owner NOT LIKE '=%' AND owner <> ''";
                (!server.sql(marked).await.is_empty()).then_some(())
            })
            .await
            .expect("it waits");
            let released = Instant::now();
            held.release().await.unwrap();
            let guard = waiter.await.unwrap().unwrap();
            assert!(
                released.elapsed() < Duration::from_secs(3),
                "{order:?}: {:?}",
                released.elapsed()
            );
            guard.release().await.unwrap();
        }
    }
}

#[tokio::test]
async fn a_server_that_is_not_there_is_unavailable_at_once() {
    for dialect in [distlock_sql::Dialect::Postgres, distlock_sql::Dialect::Mysql] {
        let locks = locks(config(dialect, "127.0.0.1:1")).await;
        let e = locks.mutex("a").try_acquire().await.unwrap_err();
        assert_eq!(e.kind(), ErrorKind::Unavailable, "{e}");
    }
}
