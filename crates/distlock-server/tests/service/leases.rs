//! Leases by HTTP: taken, renewed, extended, lost, released.

use std::time::Duration;

use serde_json::{Value, json};

use crate::gateway::{Gateway, until};
use crate::wire::ask;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_is_taken_renewed_extended_and_released() {
    let gateway = Gateway::on("memory:").await;
    let key = "/v1/locks/leases%3Afirst";
    let lease = gateway
        .post(
            &format!("{key}/acquire"),
            json!({"ttl": "30s", "label": "one", "reason": "why"}),
        )
        .await
        .ok();
    assert_eq!(
        (&lease["key"], &lease["ttl_ms"]),
        (&json!("leases:first"), &json!(30_000))
    );
    let valid = lease["valid_for_ms"].as_u64().unwrap();
    assert!((29_000..=30_000).contains(&valid), "{lease}");
    assert!(lease["token"].as_u64().is_some() && lease["bound_to_gateway"] == false);

    let busy = gateway
        .post(&format!("{key}/acquire"), json!({}))
        .await
        .problem(409, "busy");
    assert_eq!(busy["holder"]["label"], "one", "{busy}");
    assert_eq!(busy["holder"]["reason"], "why", "{busy}");
    let late = gateway
        .post(&format!("{key}/acquire"), json!({"wait": "100ms"}))
        .await;
    late.problem(409, "timeout");

    let handle = json!({"handle": lease["handle"]});
    let renewed = gateway.post(&format!("{key}/renew"), handle.clone()).await.ok();
    assert_eq!(renewed["handle"], lease["handle"]);
    let extend = json!({"handle": lease["handle"], "ttl": "5m"});
    let extended = gateway.post(&format!("{key}/extend"), extend).await.ok();
    assert!(extended["valid_for_ms"].as_u64().unwrap() > 200_000, "{extended}");
    let longer = json!({"handle": extended["handle"]});
    let renewed = gateway.post(&format!("{key}/renew"), longer.clone()).await.ok();
    assert_eq!(renewed["ttl_ms"], 300_000);

    let seen = gateway.get(key).await.ok();
    assert_eq!(seen["holders"][0]["label"], "one");
    assert_eq!(seen["holders"][0]["token"], lease["token"]);
    let released = gateway.post(&format!("{key}/release"), longer.clone()).await.ok();
    assert_eq!(released, json!({"released": true}));
    gateway
        .post(&format!("{key}/release"), longer.clone())
        .await
        .problem(410, "not_held");
    gateway
        .post(&format!("{key}/renew"), longer)
        .await
        .problem(410, "not_held");
    let next = gateway.post(&format!("{key}/acquire"), json!({})).await.ok();
    assert!(next["token"].as_u64() > lease["token"].as_u64());
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_shown_of_an_owner_is_no_handle() {
    let gateway = Gateway::on("memory:").await;
    let lease = gateway
        .post("/v1/locks/leases:owner/acquire", json!({}))
        .await
        .ok();
    let handle = lease["handle"].as_str().unwrap();
    let client = handle.split('/').nth(1).unwrap();
    for path in [
        "/v1/locks/leases:owner",
        "/v1/locks?prefix=leases:owner",
        "/v1/activity",
    ] {
        let reply = gateway.get(path).await;
        assert!(
            reply.status == 200 && !reply.text.contains(client),
            "{path}: {}",
            reply.text
        );
    }
    let busy = gateway.post("/v1/locks/leases:owner/acquire", json!({})).await;
    assert!(!busy.text.contains(client), "{}", busy.text);
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kinds_of_locks_and_several_at_once() {
    let gateway = Gateway::on("memory:").await;
    let take = async |key: &str, body: Value| gateway.post(&format!("/v1/locks/{key}/acquire"), body).await;
    take("leases:rw", json!({"mode": "read"})).await.ok();
    take("leases:rw", json!({"mode": "read"})).await.ok();
    take("leases:rw", json!({"mode": "write"}))
        .await
        .problem(409, "busy");
    let other = take("leases:rw", json!({})).await.problem(409, "kind_mismatch");
    assert!(other["have"].as_str().unwrap().contains("read/write"), "{other}");
    for _ in 0..2 {
        take("leases:s", json!({"mode": "semaphore", "permits": 2}))
            .await
            .ok();
    }
    take("leases:s", json!({"mode": "semaphore", "permits": 2}))
        .await
        .problem(409, "busy");

    let both = json!({"locks": [{"key": "leases:b"}, {"key": "leases:a"}], "ttl": "20s"});
    let held = gateway.post("/v1/acquire", both.clone()).await.ok();
    let keys: Vec<_> = held["leases"]
        .as_array()
        .unwrap()
        .iter()
        .map(|l| l["key"].clone())
        .collect();
    assert_eq!(keys, [json!("leases:a"), json!("leases:b")]);
    gateway
        .post("/v1/acquire", both.clone())
        .await
        .problem(409, "busy");
    let parts: Vec<_> = held["leases"]
        .as_array()
        .unwrap()
        .iter()
        .map(|l| json!({"handle": l["handle"]}))
        .collect();
    let renewed = gateway.post("/v1/renew", json!({"leases": parts})).await.ok();
    assert!(
        renewed["renewed"]
            .as_array()
            .unwrap()
            .iter()
            .all(|r| r["lease"]["token"].is_u64()),
        "{renewed}"
    );
    for lease in held["leases"].as_array().unwrap() {
        let path = format!("/v1/locks/{}/release", lease["key"].as_str().unwrap());
        gateway.post(&path, json!({"handle": lease["handle"]})).await.ok();
    }
    gateway.post("/v1/acquire", both).await.ok();
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_repeated_request_gets_the_same_lease() {
    let gateway = Gateway::on("memory:").await;
    let headers = [("idempotency-key", "again-1")];
    let path = "/v1/locks/leases:idem/acquire";
    let first = ask(gateway.at, "POST", path, &headers, b"").await.ok();
    let again = ask(gateway.at, "POST", path, &headers, b"").await.ok();
    assert_eq!(first["handle"], again["handle"]);
    ask(gateway.at, "POST", path, &headers, br#"{"ttl":"7s"}"#)
        .await
        .problem(422, "invalid_config");
    let other = [("idempotency-key", "again-2")];
    ask(gateway.at, "POST", path, &other, b"")
        .await
        .problem(409, "busy");
    // Given up by its key, it is released; and it is refused when it comes late.
    let release = "/v1/locks/leases:idem/release";
    let released = gateway
        .post(release, json!({"idempotency_key": "again-1"}))
        .await
        .ok();
    assert_eq!(released, json!({"released": true}));
    ask(gateway.at, "POST", path, &headers, b"")
        .await
        .problem(410, "not_held");
    let never = gateway
        .post(release, json!({"idempotency_key": "never-came"}))
        .await
        .ok();
    assert_eq!(never, json!({"released": false}));
    gateway.post(path, json!({})).await.ok();
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broken_lock_is_told_why_and_written_down() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("audit.jsonl");
    let gateway = Gateway::with("memory:", |config| config.audit = Some(log.clone())).await;
    let path = |verb: &str| format!("/v1/locks/leases:break/{verb}");
    let lease = gateway
        .post(&path("acquire"), json!({"label": "victim"}))
        .await
        .ok();
    let token = lease["token"].as_u64().unwrap();
    let wrong = json!({"reason": "host is down", "expect_token": token + 1});
    let have = gateway
        .post(&path("break"), wrong)
        .await
        .problem(409, "token_mismatch");
    assert_eq!(have["have"], token.to_string());
    gateway
        .post(&path("break"), json!({"reason": " "}))
        .await
        .problem(422, "invalid_config");
    let right = json!({"reason": "host is down", "expect_token": token, "grace": "300ms"});
    let broken = gateway.post(&path("break"), right).await.ok();
    assert_eq!(broken["broken"][0]["label"], "victim");
    let lost = gateway
        .post(&path("renew"), json!({"handle": lease["handle"]}))
        .await;
    let lost = lost.problem(410, "not_held");
    assert_eq!(
        (&lost["reason"], &lost["break_reason"]),
        (&json!("broken"), &json!("host is down"))
    );
    // During the grace nobody is granted the lock.
    gateway
        .post(&path("acquire"), json!({}))
        .await
        .problem(409, "busy");
    gateway.post(&path("acquire"), json!({"wait": "10s"})).await.ok();
    let lines: Vec<Value> = std::fs::read_to_string(&log)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(lines[0]["refused"].is_string() && lines[1]["refused"].is_null());
    assert_eq!(lines[1]["broken"][0]["label"], "victim");
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_that_nobody_renews_is_noticed() {
    let gateway = Gateway::on("memory:").await;
    let path = "/v1/locks/leases:expire/acquire";
    gateway
        .post(path, json!({"ttl": "200ms", "label": "gone"}))
        .await
        .ok();
    let next = gateway.post(path, json!({"wait": "10s"})).await.ok();
    assert!(next["answered_after_ms"].as_u64().unwrap() >= 100, "{next}");
    let event = until("the loss is told", async || {
        let seen = gateway.get("/v1/activity?key=leases:expire").await.ok();
        let losses = seen["losses"].as_array().unwrap().clone();
        losses.into_iter().find(|e| e["what"] == "expired")
    })
    .await;
    assert_eq!(event["label"], "gone");
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_of_an_engine_with_sessions_is_bound_to_its_gateway() {
    use distlock_testkit::servers::{ZooKeeper, or_skip};
    let Some(server) = or_skip(ZooKeeper::start(1).await) else {
        return;
    };
    let (a, b) = (Gateway::on(&server.url()).await, Gateway::on(&server.url()).await);
    let path = |verb: &str| format!("/v1/locks/bound/{verb}");
    let lease = a.post(&path("acquire"), json!({"ttl": "30s"})).await.ok();
    assert_eq!(lease["bound_to_gateway"], true);
    b.post(&path("acquire"), json!({})).await.problem(409, "busy");
    let handle = json!({"handle": lease["handle"]});
    b.post(&path("renew"), handle.clone())
        .await
        .problem(410, "not_held");
    a.post(&path("renew"), handle.clone()).await.ok();
    a.post(&path("release"), handle.clone()).await.ok();
    a.post(&path("release"), handle).await.problem(410, "not_held");
    let second = b
        .post(&path("acquire"), json!({"ttl": "10s", "wait": "10s"}))
        .await
        .ok();
    assert!(second["token"].as_u64() > lease["token"].as_u64());
    // Not renewed by its owner, it is given back although the session lives.
    let short = json!({"handle": second["handle"], "ttl": "6s"});
    b.post(&path("extend"), short).await.ok();
    let started = std::time::Instant::now();
    a.post(&path("acquire"), json!({"wait": "20s"})).await.ok();
    assert!(
        started.elapsed() >= Duration::from_secs(4),
        "{:?}",
        started.elapsed()
    );
    b.stop().await;
    a.stop().await;
}
