//! Many locks that one client holds all over a cluster.

use std::time::Instant;

use distlock_testkit::servers::{RedisCluster, or_skip};
use futures_util::future::join_all;

use super::cluster_faults::{client, said};
use super::started::{MS, calls, until};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn renewals_of_many_slots_share_scripts_and_what_is_taken_away_is_told() {
    const HOLDS: usize = 300;
    let Some(servers) = or_skip(RedisCluster::start().await) else {
        return;
    };
    let locks = client(&servers, &[], "distlock").await;
    let lock = |n| locks.mutex(format!("held:{n}")).ttl(3000 * MS).acquire();
    let guards: Vec<_> = join_all((0..HOLDS).map(lock))
        .await
        .into_iter()
        .map(Result::unwrap)
        .collect();
    let renewed = async || calls(servers.nodes(), "pexpire").await;
    let all = HOLDS as u64;
    // Their acquisitions are counted as well, and after these each is looked at.
    until("all to be renewed", async || renewed().await >= 2 * all).await;
    let (scripts, before) = (calls(servers.nodes(), "evalsha").await, renewed().await);
    until("all to be renewed again", async || {
        renewed().await >= before + 2 * all
    })
    .await;
    let (scripts, renewals) = (
        calls(servers.nodes(), "evalsha").await - scripts,
        renewed().await - before,
    );
    assert!(guards.iter().all(distlock_core::Guard::is_held));
    assert!(
        scripts * 10 < renewals,
        "{scripts} scripts for {renewals} renewals"
    );
    // Each renewal makes a server forget who is to be told; each of these is told all the same, before it would be renewed.
    for guard in guards.iter().take(20) {
        let stored = format!("distlock:{}", guard.key());
        let node = servers.master_of(&stored).await.unwrap();
        let start = Instant::now();
        said(&servers.nodes()[node], &["DEL", &stored]).await;
        guard.lost().await;
        assert!(
            start.elapsed() < 500 * MS,
            "{stored}: told after {:?}",
            start.elapsed()
        );
    }
}
