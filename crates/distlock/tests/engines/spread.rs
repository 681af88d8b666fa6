//! Many keys of many clients.

use std::time::{Duration, Instant};

use distlock::Locks;
use futures_util::future::join_all;

use crate::deployments::{Engine, on_each, with};

const CLIENTS: usize = 18;
const KEYS: usize = 25;
const ROUNDS: usize = 3;
const HOLD: Duration = Duration::from_millis(100);

/// One after the other, the 1,350 holds would take 135 s.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f108_holders_of_different_keys_do_not_wait_for_each_other() {
    on_each(async |deployment| {
        if !matches!(deployment.engine, Engine::Postgres | Engine::MariaDb) {
            return;
        }
        let url = with(&deployment.url, "namespace=spread&connections=4");
        let clients = join_all((0..CLIENTS).map(|_| Locks::connect(&url))).await;
        let start = Instant::now();
        let holders = clients.iter().enumerate().flat_map(|(client, locks)| {
            let locks = locks.as_ref().unwrap();
            (0..KEYS).map(move |key| {
                let (locks, key) = (locks.clone(), format!("{client}:{key}"));
                tokio::spawn(async move {
                    for _ in 0..ROUNDS {
                        let guard = locks.mutex(&*key).acquire().await.unwrap();
                        tokio::time::sleep(HOLD).await;
                        guard.release().await.unwrap();
                    }
                })
            })
        });
        for holder in join_all(holders).await {
            holder.unwrap();
        }
        let took = start.elapsed();
        assert!(
            took < Duration::from_secs(60),
            "{:?}: {took:?}",
            deployment.engine
        );
    })
    .await;
}
