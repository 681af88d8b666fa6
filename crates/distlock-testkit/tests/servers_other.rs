//! The supervisors of etcd, ZooKeeper, PostgreSQL and MariaDB do what tests rely on.

#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::time::Duration;

use distlock_testkit::servers::{Data, Etcd, MariaDb, Postgres, Setup, ZooKeeper, eventually, or_skip};

fn gone(pid: u32) -> bool {
    !Path::new(&format!("/proc/{pid}")).exists()
}

#[tokio::test]
async fn one_etcd_comes_back() {
    let Some(mut etcd) = or_skip(Etcd::start(1).await) else {
        return;
    };
    assert_eq!(etcd.leader().await, Some(0));
    etcd.member(0).kill9().unwrap();
    assert_eq!(etcd.leader().await, None);
    etcd.restart(0, Data::Keep).await.unwrap();
    etcd.restart(0, Data::Empty).await.unwrap();
    let pid = etcd.member(0).pid();
    drop(etcd);
    assert!(gone(pid));
}

#[tokio::test]
async fn three_etcds_elect_another_leader() {
    let Some(mut etcd) = or_skip(Etcd::start(3).await) else {
        return;
    };
    let first = eventually(Duration::from_secs(10), async || etcd.leader().await)
        .await
        .unwrap();
    etcd.member(first).pause().unwrap();
    let next = eventually(Duration::from_secs(30), async || {
        etcd.leader().await.filter(|n| *n != first)
    })
    .await;
    assert!(next.is_some());
    etcd.member(first).resume().unwrap();
}

#[tokio::test]
async fn one_zookeeper_comes_back() {
    let Some(mut zookeeper) = or_skip(ZooKeeper::start(1).await) else {
        return;
    };
    assert_eq!(zookeeper.leader().await, Some(0));
    zookeeper.server(0).kill9().unwrap();
    assert_eq!(zookeeper.leader().await, None);
    zookeeper.restart(0, Data::Keep).await.unwrap();
    zookeeper.restart(0, Data::Empty).await.unwrap();
    assert!(
        zookeeper
            .four_letters(0, "dump")
            .await
            .unwrap()
            .contains("Session")
    );
}

#[tokio::test]
async fn three_zookeepers_elect_another_leader() {
    let Some(mut zookeeper) = or_skip(ZooKeeper::start(3).await) else {
        return;
    };
    let first = eventually(Duration::from_secs(30), async || zookeeper.leader().await)
        .await
        .unwrap();
    zookeeper.server(first).kill9().unwrap();
    let leader = async || zookeeper.leader().await.filter(|n| *n != first);
    assert!(eventually(Duration::from_secs(30), leader).await.is_some());
    zookeeper.restart(first, Data::Empty).await.unwrap();
}

#[tokio::test]
async fn a_postgres_comes_back_and_stops_as_a_whole() {
    let Some(mut postgres) =
        or_skip(Postgres::start_with(Setup::default().settings(["idle_session_timeout=5s"])).await)
    else {
        return;
    };
    postgres.process().pause().unwrap();
    postgres.process().resume().unwrap();
    postgres.process().kill9().unwrap();
    postgres.restart(Data::Keep).await.unwrap();
    postgres.restart(Data::Empty).await.unwrap();
    let pid = postgres.process().pid();
    postgres.process().pause().unwrap();
    drop(postgres);
    assert!(gone(pid));
}

#[tokio::test]
async fn a_mariadb_comes_back() {
    let Some(mut mariadb) = or_skip(MariaDb::start().await) else {
        return;
    };
    mariadb.process().kill9().unwrap();
    mariadb.restart(Data::Keep).await.unwrap();
    mariadb.restart(Data::Empty).await.unwrap();
    let pid = mariadb.process().pid();
    drop(mariadb);
    assert!(gone(pid));
}
