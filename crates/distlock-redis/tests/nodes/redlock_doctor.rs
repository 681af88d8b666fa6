//! What the doctor finds in Redlocks that are set up well, and badly on purpose.

use distlock_core::driver::Severity;
use distlock_testkit::servers::{Redis, or_skip};

use super::redlock_faults::distlock_vouch;
use super::started::{client, redlock, until};

/// What is worth acting on.
async fn found(nodes: &[String]) -> Vec<String> {
    let findings = client(redlock(nodes, &[])).await.doctor().await.unwrap();
    let serious = findings.into_iter().filter(|f| f.severity > Severity::Info);
    let mut ids: Vec<_> = serious.map(|f| f.id.into_owned()).collect();
    ids.dedup();
    ids
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_that_do_not_fail_independently_are_found_and_good_ones_are_not_complained_of() {
    // Three addresses of this host stand for three hosts.
    let hosts = ["127.0.0.1", "127.0.0.2", "127.0.0.3"];
    let options = Redis::options().args(["--bind"]).args(hosts);
    let Some(servers) = or_skip(Redis::several(3, &options).await) else {
        return;
    };
    let at = |host: usize, server: usize| format!("{}:{}", hosts[host], servers[server].port());
    let good = [at(0, 0), at(1, 1), at(2, 2)];
    distlock_vouch(&good).await;
    assert_eq!(found(&good).await, [""; 0]);

    assert_eq!(
        found(&[at(0, 0), at(0, 1), at(0, 2)]).await,
        ["redlock-same-host"]
    );
    assert_eq!(
        found(&[at(0, 0), at(1, 0), at(2, 2)]).await,
        ["redlock-same-server"]
    );
    let set = async |server: usize, words: &[&str]| {
        let said = servers[server].command(words).await.unwrap();
        assert_eq!(said.text(), Some("OK"), "{said:?}");
    };
    set(1, &["CONFIG", "SET", "save", "60 1"]).await;
    assert_eq!(found(&good).await, ["redlock-restart"]);
    set(1, &["CONFIG", "SET", "save", ""]).await;
    set(2, &["REPLICAOF", "127.0.0.1", &servers[0].port().to_string()]).await;
    until("the replica is found", async || {
        found(&good).await.iter().any(|id| id == "redlock-replica")
    })
    .await;
}
