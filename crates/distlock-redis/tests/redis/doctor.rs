//! What the doctor finds.

use distlock_core::driver::{Finding, Severity};
use distlock_testkit::servers::{Redis, RedisSentinel, Resp, RespClient};

use crate::common::{client, config, secured_config, sentinel_config, until};

/// The findings worth acting on, with their severity.
fn serious(findings: &[Finding]) -> Vec<(&str, Severity)> {
    let serious = findings.iter().filter(|f| f.severity > Severity::Info);
    serious.map(|f| (&*f.id, f.severity)).collect()
}

#[tokio::test]
async fn a_server_as_it_should_be_is_not_complained_of() {
    let redis = redis!(Redis::options().durable().start());
    let locks = client(config(&redis.address())).await;
    let findings = locks.doctor().await.unwrap();
    assert_eq!(serious(&findings), []);
    assert!(
        crate::common::keys(&redis, "*")
            .await
            .iter()
            .all(|key| key.ends_with("}:distlock"))
    );
}

#[tokio::test]
async fn f52_settings_that_lose_locks_are_found_worst_first() {
    let redis = redis!();
    let locks = client(config(&redis.address())).await;
    let set = async |name: &str, value: &str| {
        let said = redis.command(&["CONFIG", "SET", name, value]).await.unwrap();
        assert!(!matches!(said, Resp::Error(_)), "{said:?}");
    };
    assert_eq!(
        serious(&locks.doctor().await.unwrap()),
        [("redis-persistence", Severity::Warning)]
    );
    set("maxmemory-policy", "allkeys-lru").await;
    let findings = locks.doctor().await.unwrap();
    let findings = serious(&findings);
    assert!(
        findings.contains(&("redis-eviction", Severity::Warning)),
        "{findings:?}"
    );
    set("maxmemory", "100mb").await;
    let findings = locks.doctor().await.unwrap();
    assert_eq!(serious(&findings)[0], ("redis-eviction", Severity::Error));
    assert!(findings[0].fix.contains("noeviction"), "{}", findings[0].fix);
    let port = redis.port().to_string();
    let replica = redis!(Redis::options().args(["--replicaof", "127.0.0.1", &port]).start());
    until("the replica to be connected", async || {
        redis.info("connected_slaves").await.unwrap().as_deref() == Some("1")
    })
    .await;
    let findings = locks.doctor().await.unwrap();
    let findings = serious(&findings);
    assert!(
        findings.contains(&("redis-min-replicas", Severity::Warning)),
        "{findings:?}"
    );
    set("min-replicas-to-write", "1").await;
    let findings = locks.doctor().await.unwrap();
    let findings = serious(&findings);
    assert!(
        !findings.iter().any(|(id, _)| *id == "redis-min-replicas"),
        "{findings:?}"
    );
    drop(replica);
}

#[tokio::test]
async fn rights_that_are_missing_are_found() {
    let rules = ["~*", "&*", "+@all", "-client|tracking", "-config"];
    let redis = redis!(Redis::options().tls().user("app", "secret", rules).start());
    let locks = client(secured_config(&redis)).await;
    let findings = locks.doctor().await.unwrap();
    let found: Vec<&str> = findings.iter().map(|f| &*f.id).collect();
    assert!(
        found.contains(&"redis-tracking") && found.contains(&"redis-config-hidden"),
        "{findings:?}"
    );
    // The rights were there when the client opened, and are gone.
    redis
        .command(&["ACL", "SETUSER", "app", "-evalsha", "-eval"])
        .await
        .unwrap();
    let findings = locks.doctor().await.unwrap();
    assert_eq!(
        (&*findings[0].id, findings[0].severity),
        ("redis-acl", Severity::Error)
    );
}

#[tokio::test]
async fn sentinels_that_are_too_patient_are_found() {
    let group = redis!(RedisSentinel::start());
    let locks = client(sentinel_config(&group)).await;
    let found = async || {
        let findings = locks.doctor().await.unwrap();
        findings.iter().any(|f| f.id == "redis-sentinel-timing")
    };
    assert!(!found().await);
    for address in group.sentinel_addresses() {
        let mut sentinel = RespClient::connect(&address).await.unwrap();
        let set = ["SENTINEL", "SET", "mymaster", "down-after-milliseconds", "20000"];
        sentinel.command(&set).await.unwrap();
    }
    assert!(found().await);
}
