//! What the tests have in common: clients of a cluster, and etcd's own command.
#![allow(dead_code, unused_macros, unused_imports)]

use std::error::Error;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use distlock_core::Client;
use distlock_etcd::Config;
use distlock_testkit::servers::{Etcd, find};

pub(crate) const MS: fn(u64) -> Duration = Duration::from_millis;
pub(crate) const SECS: fn(u64) -> Duration = Duration::from_secs;

/// How to reach a cluster.
pub(crate) fn config(etcd: &Etcd) -> Config {
    Config::new(etcd.addresses())
}

pub(crate) fn boxed(e: impl Error + Send + Sync + 'static) -> Box<dyn Error + Send + Sync> {
    e.into()
}

/// A client with this namespace.
pub(crate) async fn client(config: Config, namespace: &str) -> Client {
    let builder = Client::builder().namespace(namespace).label("test").ttl(SECS(3));
    builder
        .build(|engine| distlock_etcd::open(engine, config))
        .await
        .unwrap()
}

/// etcd's own command against some endpoint.
pub(crate) fn etcdctl(address: &str) -> tokio::process::Command {
    let program = find("etcdctl").unwrap_or_else(|_| PathBuf::from("etcdctl"));
    let mut command = tokio::process::Command::new(program);
    command
        .env("ETCDCTL_API", "3")
        .args(["--endpoints", address])
        .kill_on_drop(true)
        .stdin(Stdio::null());
    command
}

/// Runs etcd's own command to its end.
pub(crate) async fn ctl(address: &str, args: &[&str]) -> String {
    let out = etcdctl(address).args(args).output().await.unwrap();
    assert!(
        out.status.success(),
        "etcdctl {args:?}: {}",
        String::from_utf8_lossy(&out.stderr)
    );
    String::from_utf8(out.stdout).unwrap()
}

/// The keys under a prefix.
pub(crate) async fn keys(address: &str, prefix: &str) -> Vec<String> {
    let out = ctl(address, &["get", "--prefix", "--keys-only", prefix]).await;
    out.lines()
        .filter(|line| !line.is_empty())
        .map(str::to_owned)
        .collect()
}

/// Waits until `look` is true.
pub(crate) async fn until(what: &str, mut look: impl AsyncFnMut() -> bool) {
    let found = distlock_testkit::servers::eventually(SECS(20), async || look().await.then_some(())).await;
    assert!(found.is_some(), "never: {what}");
}

/// A cluster of so many members, or the end of the test with a visible line.
macro_rules! etcd {
    ($members:expr) => {
        match distlock_testkit::servers::or_skip(distlock_testkit::servers::Etcd::start($members).await) {
            Some(etcd) => etcd,
            None => return,
        }
    };
}
pub(crate) use etcd;
