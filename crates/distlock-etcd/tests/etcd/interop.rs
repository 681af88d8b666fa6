//! `etcdctl lock`, which is Go's `concurrency.Mutex`, on the same names.

use std::process::Stdio;
use std::time::Instant;

use distlock_core::ErrorKind;
use tokio::io::{AsyncBufReadExt, BufReader};

use crate::cluster::{MS, SECS, client, config, etcd, etcdctl, keys, until};

#[tokio::test]
async fn etcdctl_waits_for_us_and_is_woken() {
    let etcd = etcd!(1);
    let at = etcd.addresses()[0].clone();
    let locks = client(config(&etcd), "").await;
    let held = locks.mutex("jobs/nightly").acquire().await.unwrap();
    let mut other = etcdctl(&at)
        .args(["lock", "jobs/nightly"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(other.stdout.take().unwrap()).lines();
    until("it stands behind us", async || {
        keys(&at, "jobs/nightly/").await.len() == 2
    })
    .await;
    let early = tokio::time::timeout(MS(300), lines.next_line()).await;
    assert!(early.is_err(), "granted beside us: {early:?}");
    let info = locks.inspect("jobs/nightly").await.unwrap();
    assert!(info.holders[0].here && info.waiters.len() == 1, "{info:?}");
    held.release().await.unwrap();
    let granted = tokio::time::timeout(SECS(10), lines.next_line())
        .await
        .expect("woken")
        .unwrap()
        .unwrap();
    assert!(granted.starts_with("jobs/nightly/"), "{granted}");
    assert!(locks.mutex("jobs/nightly").try_acquire().await.unwrap().is_none());
    other.kill().await.unwrap();
}

#[tokio::test]
async fn we_wait_for_etcdctl_and_are_woken() {
    let etcd = etcd!(1);
    let at = etcd.addresses()[0].clone();
    let locks = client(config(&etcd), "").await;
    let mut other = etcdctl(&at)
        .args(["lock", "k"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(other.stdout.take().unwrap()).lines();
    lines.next_line().await.unwrap().unwrap();
    assert!(locks.mutex("k").try_acquire().await.unwrap().is_none());
    let e = locks.semaphore("k", 2).try_acquire().await.unwrap_err();
    assert_eq!(e.kind(), ErrorKind::KindMismatch);
    let waiting = tokio::spawn(locks.mutex("k").acquire());
    until("we stand behind it", async || keys(&at, "k/").await.len() == 2).await;
    let pid = rustix::process::Pid::from_raw(other.id().unwrap().cast_signed()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    let start = Instant::now();
    other.wait().await.unwrap();
    let guard = tokio::time::timeout(SECS(10), waiting)
        .await
        .expect("woken")
        .unwrap()
        .unwrap();
    assert!(start.elapsed() < SECS(5), "woken after {:?}", start.elapsed());
    assert!(guard.is_held());
}

#[tokio::test]
async fn the_line_is_one_for_all_programs() {
    let etcd = etcd!(1);
    let at = etcd.addresses()[0].clone();
    let (a, b) = (client(config(&etcd), "").await, client(config(&etcd), "").await);
    let held = a.mutex("k").acquire().await.unwrap();
    let mut other = etcdctl(&at)
        .args(["lock", "k", "sh", "--", "-c", "echo in; sleep 0.3"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    until("etcdctl is second", async || keys(&at, "k/").await.len() == 2).await;
    let third = tokio::spawn(b.mutex("k").acquire());
    until("we are third", async || keys(&at, "k/").await.len() == 3).await;
    held.release().await.unwrap();
    let guard = tokio::time::timeout(SECS(15), third)
        .await
        .expect("granted")
        .unwrap()
        .unwrap();
    let status = tokio::time::timeout(SECS(5), other.wait())
        .await
        .expect("etcdctl was served first")
        .unwrap();
    assert!(status.success());
    guard.release().await.unwrap();
}
