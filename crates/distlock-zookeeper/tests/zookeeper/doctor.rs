//! What the doctor finds in ensembles that are set up badly on purpose.

use std::time::Duration;

use distlock_testkit::servers::{ZooKeeper, or_skip};

use crate::common::{client, config};

const SESSION: Duration = Duration::from_secs(8);

async fn found(hosts: &[String], session: Duration) -> Vec<String> {
    let client = client(config(hosts, session)).await;
    let found = client.doctor().await.unwrap();
    found.into_iter().map(|finding| finding.id.into_owned()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_that_are_too_short_are_found() {
    let lines = "tickTime=2000\nminSessionTimeout=500\nmaxSessionTimeout=3000\n";
    let Some(server) = or_skip(ZooKeeper::start_with(1, lines).await) else {
        return;
    };
    let found = found(&server.addresses(), SESSION).await;
    for id in [
        "zookeeper-session-below-two-ticks",
        "zookeeper-session-timeout",
        "zookeeper-single-server",
    ] {
        assert!(found.iter().any(|known| known == id), "no {id} in {found:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_ensemble_without_spare_servers_is_found() {
    let Some(mut servers) = or_skip(ZooKeeper::start(3).await) else {
        return;
    };
    let hosts = servers.addresses();
    assert_eq!(found(&hosts, SESSION).await, Vec::<&str>::new());
    assert_eq!(found(&hosts[..1], SESSION).await, ["zookeeper-one-host-named"]);
    let leader = servers.leader().await.unwrap();
    let follower = (leader + 1) % 3;
    servers.server(follower).kill9().unwrap();
    assert_eq!(found(&hosts, SESSION).await, ["zookeeper-server-silent"]);
    let two = [hosts[leader].clone(), hosts[follower].clone()];
    let found = found(&two, SESSION).await;
    assert!(found.iter().any(|id| id == "zookeeper-one-left"), "{found:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_even_ensemble_is_found() {
    let Some(servers) = or_skip(ZooKeeper::start(2).await) else {
        return;
    };
    let found = found(&servers.addresses(), SESSION).await;
    assert_eq!(found, ["zookeeper-even-ensemble"]);
}
