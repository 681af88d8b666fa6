//! What the doctor finds in clusters that are set up badly on purpose.

use distlock_core::ErrorKind;
use distlock_etcd::Config;
use distlock_testkit::servers::{Etcd, or_skip};

use crate::cluster::{MS, SECS, client, config, ctl, until};

async fn found(config: Config) -> Vec<String> {
    let client = client(config, "ns").await;
    let found = client.doctor().await.unwrap();
    let mut ids: Vec<_> = found.into_iter().map(|finding| finding.id.into_owned()).collect();
    // What is told of the version that happens to be installed.
    ids.retain(|id| id != "etcd-version");
    ids.dedup();
    ids
}

#[tokio::test]
async fn elections_that_are_slower_than_leases_are_found() {
    let slow = ["--heartbeat-interval", "900", "--election-timeout", "4500"];
    let Some(etcd) = or_skip(Etcd::start_with(1, &slow).await) else {
        return;
    };
    assert_eq!(found(config(&etcd)).await, ["etcd-least-ttl", "etcd-one-member"]);
}

#[tokio::test]
async fn a_full_database_is_found() {
    let Some(etcd) = or_skip(Etcd::start_with(1, &["--quota-backend-bytes", "16777216"]).await) else {
        return;
    };
    let at = &etcd.addresses()[0];
    let locks = client(config(&etcd), "ns").await;
    locks.mutex("k").acquire().await.unwrap().release().await.unwrap();
    let file = etcd.dir().join("value");
    std::fs::write(&file, vec![b'x'; 1 << 20]).unwrap();
    let fill = format!(
        "ETCDCTL_API=3 etcdctl --endpoints {at} put big < {}",
        file.display()
    );
    until("it is full", async || {
        let put = tokio::process::Command::new("sh")
            .args(["-c", &fill])
            .output()
            .await
            .unwrap();
        !put.status.success()
    })
    .await;
    assert!(ctl(at, &["alarm", "list"]).await.contains("NOSPACE"));
    let found = found(config(&etcd)).await;
    assert!(found.iter().any(|id| id == "etcd-alarm"), "{found:?}");
    // A lock is refused, and the user is told why.
    let e = locks.mutex("k").wait(SECS(3)).acquire().await.unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Unavailable, "{e}");
    assert!(format!("{e:?} {e}").contains("space"), "{e:?}");
}

#[tokio::test]
async fn a_cluster_without_spare_members_is_found() {
    let Some(mut etcd) = or_skip(Etcd::start(3).await) else {
        return;
    };
    let all = etcd.addresses();
    assert_eq!(found(config(&etcd)).await, Vec::<&str>::new());
    assert_eq!(found(Config::new([all[0].clone()])).await, ["etcd-one-endpoint"]);
    let leader = etcd.leader().await.unwrap();
    etcd.member((leader + 1) % 3).kill9().unwrap();
    assert_eq!(
        found(config(&etcd).timeout(MS(500))).await,
        ["etcd-endpoint-down"]
    );
}

#[tokio::test]
async fn an_even_cluster_is_found() {
    let Some(etcd) = or_skip(Etcd::start(2).await) else {
        return;
    };
    assert_eq!(found(config(&etcd)).await, ["etcd-even-members"]);
}
