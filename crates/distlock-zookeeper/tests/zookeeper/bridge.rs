//! Mutexes that stand in kazoo's line as well.

use std::time::{Duration, Instant};

use distlock_core::driver::{Break, LostReason, Mode, Standing};
use distlock_core::{Client, ErrorKind};
use distlock_testkit::servers::{ZooKeeper, or_skip};
use distlock_zookeeper::{Bridge, Config, GuardMulti};
use zookeeper_client as zk;

use crate::common::{MS, Peer, client, config, until};

const SESSION: Duration = Duration::from_secs(8);
const DIR: &str = "/distlock/k";

fn bridged(hosts: &[String]) -> Config {
    let mut config = config(hosts, SESSION);
    config.bridge = Bridge::Kazoo;
    config
}

/// Curator's node and kazoo's, in this order.
async fn nodes(admin: &zk::Client) -> Vec<String> {
    let mut nodes = admin.list_children(DIR).await.unwrap_or_default();
    nodes.sort_by_key(|name| name.contains("__lock__"));
    nodes.into_iter().map(|name| format!("{DIR}/{name}")).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_two_nodes_are_named_as_curator_and_kazoo_do() {
    let Some(server) = or_skip(ZooKeeper::start(1).await) else {
        return;
    };
    let hosts = server.addresses();
    let admin = zk::Client::connect(&hosts[0]).await.unwrap();
    let a = Peer::new(bridged(&hosts)).await;
    let mut claim = a.driver.claim(a.want("k", Mode::Mutex)).unwrap();
    assert!(matches!(claim.try_acquire().await.unwrap(), Standing::Held(_)));
    let nodes = nodes(&admin).await;
    let [curator, kazoo] = &nodes[..] else {
        panic!("{nodes:?}")
    };
    assert!(
        curator.starts_with("/distlock/k/_c_") && curator.ends_with("-lock-0000000000"),
        "{curator}"
    );
    let (id, sequence) = kazoo
        .strip_prefix("/distlock/k/")
        .unwrap()
        .split_once("__lock__")
        .unwrap();
    assert!(
        id.len() == 32 && id.bytes().all(|b| b.is_ascii_hexdigit()),
        "{kazoo}"
    );
    assert_eq!(sequence, "0000000001", "the number after its other node's");
    claim.release(None).await.unwrap();
}

async fn told_of(admin: &zk::Client, locks: &Client, which: usize) {
    let held = locks.mutex("k").wait(20_000 * MS).acquire().await.unwrap();
    let late = held.multi().unwrap().create("/never", "1");
    let start = Instant::now();
    admin.delete(&nodes(admin).await[which], None).await.unwrap();
    let e = late.commit().await.unwrap_err();
    assert!(
        matches!(&e, distlock_zookeeper::MultiError::Lock(e) if e.kind() == ErrorKind::NotHeld),
        "{e}"
    );
    assert_eq!(held.lost().await, LostReason::Taken);
    assert!(start.elapsed() < 1000 * MS, "told after {:?}", start.elapsed());
    drop(held);
    until("the other node goes, too", async || nodes(admin).await.is_empty()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hold_lasts_as_long_as_both_nodes_and_a_place_in_line_too() {
    let Some(server) = or_skip(ZooKeeper::start(1).await) else {
        return;
    };
    let hosts = server.addresses();
    let admin = zk::Client::connect(&hosts[0]).await.unwrap();
    let (a, b) = (client(bridged(&hosts)).await, client(bridged(&hosts)).await);
    for which in [0, 1] {
        told_of(&admin, &a, which).await;
    }
    // A waiter of which one node was deleted queues again, and nothing of it stays.
    for which in [2, 3] {
        let held = a.mutex("k").acquire().await.unwrap();
        let waiter = {
            let locks = b.clone();
            tokio::spawn(async move { locks.mutex("k").acquire().await?.release().await })
        };
        until("both stand in line", async || nodes(&admin).await.len() == 4).await;
        let mut line = nodes(&admin).await;
        line.sort_by_key(|path| path[path.len() - 10..].to_owned());
        let gone = line[which].clone();
        admin.delete(&gone, None).await.unwrap();
        until("it stands in line again", async || {
            let now = nodes(&admin).await;
            now.len() == 4 && !now.contains(&gone)
        })
        .await;
        held.release().await.unwrap();
        waiter.await.unwrap().unwrap();
        until("nothing is left", async || nodes(&admin).await.is_empty()).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn holders_and_waiters_of_both_lines_are_shown_and_broken() {
    let Some(server) = or_skip(ZooKeeper::start(1).await) else {
        return;
    };
    let hosts = server.addresses();
    let admin = zk::Client::connect(&hosts[0]).await.unwrap();
    let a = client(bridged(&hosts)).await;
    a.mutex("k").acquire().await.unwrap().release().await.unwrap();
    let options = zk::CreateMode::EphemeralSequential.with_acls(zk::Acls::anyone_all());
    let path = format!("{DIR}/0123456789abcdef0123456789abcdef__lock__");
    admin.create(&path, b"python", &options).await.unwrap();
    let shown = a.inspect("k").await.unwrap();
    assert_eq!(shown.holders[0].host.as_deref(), Some("python"), "{shown:?}");
    assert!(a.mutex("k").try_acquire().await.unwrap().is_none());
    let waiter = {
        let locks = a.clone();
        tokio::spawn(async move { locks.mutex("k").acquire().await })
    };
    until("one waits", async || {
        a.inspect("k").await.unwrap().waiters.len() == 1
    })
    .await;
    let shown = a.inspect("k").await.unwrap();
    assert!(shown.holders.len() == 1 && shown.waiters[0].here, "{shown:?}");
    a.break_lock("k", Break::default()).await.unwrap();
    let held = waiter.await.unwrap().unwrap();
    let shown = a.inspect("k").await.unwrap();
    assert!(
        shown.holders.len() == 1 && shown.holders[0].here && shown.waiters.is_empty(),
        "{shown:?}"
    );
    held.release().await.unwrap();
    // What kazoo's line cannot tell is not offered.
    let e = a.rw("k").write().acquire().await.unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Unsupported, "{e}");
}
