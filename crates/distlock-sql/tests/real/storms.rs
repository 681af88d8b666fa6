//! Many clients, few keys beside each other: what the database rolls back is solved inside.
//!
//! Each storm lasts five seconds, or as long as `DISTLOCK_STORM_SECONDS` says.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use distlock_core::driver::Order;
use distlock_sql::Dialect;
use distlock_testkit::servers::Setup;

use crate::both;
use crate::conformance::server;
use crate::server::{Server, locks};

const SEC: Duration = Duration::from_secs(1);

fn length() -> Duration {
    let seconds = std::env::var("DISTLOCK_STORM_SECONDS")
        .ok()
        .and_then(|s| s.parse().ok());
    Duration::from_secs(seconds.unwrap_or(5))
}

/// 50 tasks of three clients on five keys, readers and writers, some in line: no error reaches a caller, nobody is
/// inside with another, no watched hold is lost, and enough happens.
#[allow(clippy::print_stdout, reason = "the figure of scripts/torture")]
async fn storm(server: &Server) {
    let clients = [
        locks(server.config()).await,
        locks(server.config()).await,
        locks(server.config()).await,
    ];
    // A holder beside the storm, on a key of its own: it must not flap.
    let healthy = clients[0].mutex("storm-2b").ttl(3 * SEC).acquire().await.unwrap();
    let inside: Arc<Vec<AtomicU32>> = Arc::new((0..5).map(|_| AtomicU32::new(0)).collect());
    let done = Arc::new(AtomicU32::new(0));
    let end = Instant::now() + length();
    let tasks: Vec<_> = (0..50_usize)
        .map(|i| {
            let (locks, inside, done) = (clients[i % 3].clone(), inside.clone(), done.clone());
            tokio::spawn(async move {
                let mut n = i;
                while Instant::now() < end {
                    n += 1;
                    let key = n % 5;
                    let writer = n % 3 == 0;
                    let lock = locks.rw(format!("storm-{key}"));
                    let lock = if writer { lock.write() } else { lock.read() };
                    let order = if n % 7 == 0 { Order::Fifo } else { Order::Any };
                    let guard = lock
                        .order(order)
                        .wait(60 * SEC)
                        .ttl(20 * SEC)
                        .acquire()
                        .await
                        .unwrap();
                    let weight = if writer { 1000 } else { 1 };
                    let before = inside[key].fetch_add(weight, Ordering::SeqCst);
                    assert!(
                        if writer { before == 0 } else { before < 1000 },
                        "{before} were inside"
                    );
                    tokio::task::yield_now().await;
                    inside[key].fetch_sub(weight, Ordering::SeqCst);
                    guard.release().await.unwrap();
                    done.fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    let done = done.load(Ordering::Relaxed);
    println!("{done} grants in a storm of {:?}", length());
    assert!(done > 100, "too little happened: {done}");
    assert!(healthy.is_held());
    healthy.release().await.unwrap();
}

both! {
    #[test]
    async fn f06_f108_a_storm_of_conflicts_is_solved_inside(dialect) {
        let Some(server) = server(dialect) else { return };
        storm(server).await;
    }

    #[test]
    /// The server's default is SERIALIZABLE; our sessions say what they need themselves.
    async fn f06_a_storm_on_a_serializable_server_is_solved_inside(dialect) {
        let setting = match dialect {
            Dialect::Postgres => "default_transaction_isolation=serializable",
            Dialect::Mysql => "--transaction-isolation=SERIALIZABLE",
        };
        let Some(server) = Server::start_with(dialect, Setup::default().settings([setting])).await else { return };
        storm(&server).await;
    }
}
