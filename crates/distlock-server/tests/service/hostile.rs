//! Inputs that are meant to do harm: the service stays up, answers others, and gives nothing away.

use std::time::Duration;

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::gateway::Gateway;
use crate::wire::{Reply, ask, send};

/// A key in a path, every byte escaped.
fn escaped(key: &str) -> String {
    key.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_are_data() {
    let dir = tempfile::tempdir().unwrap();
    let gateway = Gateway::on(&format!("file://{}/locks", dir.path().display())).await;
    let keys = [
        "../../etc/passwd",
        "..",
        ".",
        "/",
        "a/b/acquire",
        "%2e%2e%2f",
        "<script>alert(1)</script>",
        "a: b, c; d=\"e\"",
        "{key}",
        "*",
        "?namespace=other#x",
        "\u{202e}evil",
        "日本語",
        "'; DROP TABLE locks; --",
    ];
    for key in keys {
        let path = format!("/v1/locks/{}", escaped(key));
        let lease = gateway
            .post(&format!("{path}/acquire"), json!({"label": key, "reason": key}))
            .await
            .ok();
        assert_eq!(lease["key"], key);
        let seen = gateway.get(&path).await;
        assert_eq!(
            seen.headers.get("content-type").map(String::as_str),
            Some("application/json")
        );
        assert_eq!(seen.ok()["holders"][0]["label"], key);
        let handle = json!({"handle": lease["handle"]});
        gateway.post(&format!("{path}/release"), handle).await.ok();
    }
    let files: Vec<_> = std::fs::read_dir(dir.path()).unwrap().collect();
    assert_eq!(files.len(), 1, "a key has left the directory: {files:?}");
    for (key, why) in [
        ("a%00b", "control"),
        ("a%0D%0Ax:%20y", "control"),
        ("%FF", "UTF-8"),
    ] {
        let reply = gateway.post(&format!("/v1/locks/{key}/acquire"), json!({})).await;
        let told = reply.problem(400, "invalid_key");
        assert!(told["detail"].as_str().unwrap().contains(why), "{told}");
    }
    let long = "k".repeat(513);
    gateway
        .post(&format!("/v1/locks/{long}/acquire"), json!({}))
        .await
        .problem(400, "invalid_key");
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bodies_that_are_wrong_or_huge_are_refused() {
    let gateway = Gateway::on("memory:").await;
    let path = "/v1/locks/hostile:body/acquire";
    let post = async |body: &[u8]| ask(gateway.at, "POST", path, &[], body).await;
    post(b"{").await.problem(400, "bad_request");
    post(b"\xff\xfe").await.problem(400, "bad_request");
    post(b"[]").await.problem(422, "invalid_config");
    post(br#"{"tll":"30s"}"#).await.problem(422, "invalid_config");
    post(br#"{"ttl":30}"#).await.problem(422, "invalid_config");
    post(br#"{"ttl":"0s"}"#).await.problem(422, "invalid_config");
    post(br#"{"ttl":"99999999999999999999y"}"#)
        .await
        .problem(422, "invalid_config");
    post(br#"{"mode":"semaphore"}"#)
        .await
        .problem(422, "invalid_config");
    post(br#"{"mode":"semaphore","permits":0}"#)
        .await
        .problem(422, "invalid_config");
    post(br#"{"permits":3}"#).await.problem(422, "invalid_config");
    post(br#"["30s"]"#).await.problem(422, "invalid_config");
    post(&[b'['; 60_000]).await.problem(422, "invalid_config");
    post(&br#"{"ttl":"#.repeat(8_000))
        .await
        .problem(422, "invalid_config");
    post(&vec![b' '; 1 << 20]).await.problem(413, "too_large");
    for handle in ["", "dl1/", "gw1/x/y", "dl1/x/1/m/0/-/1/a"] {
        let reply = gateway
            .post("/v1/locks/hostile:body/renew", json!({"handle": handle}))
            .await;
        reply.problem(422, "invalid_config");
    }
    let forged = "dl1/00000000-0000-0000-0000-000000000000/1/m/0/-/30000000000/hostile:body";
    gateway
        .post("/v1/locks/hostile:body/release", json!({"handle": forged}))
        .await
        .problem(410, "not_held");
    gateway
        .post("/v1/locks/other/release", json!({"handle": forged}))
        .await
        .problem(400, "bad_request");
    gateway
        .get("/v1/locks?limit=0")
        .await
        .problem(422, "invalid_config");
    gateway.get("/v1/locks?limit=x").await.problem(400, "bad_request");
    gateway
        .get("/v1/locks?namespace=a%3Ab")
        .await
        .problem(422, "invalid_config");
    gateway.get("/v1/nothing").await.problem(404, "not_found");
    ask(gateway.at, "DELETE", "/v1/locks", &[], b"")
        .await
        .problem(405, "method_not_allowed");
    gateway.post(path, json!({})).await.ok();
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_and_broken_connections_are_ended_and_others_answered() {
    let gateway = Gateway::with("memory:", |config| {
        config.limits.head = Duration::from_millis(300);
        config.limits.answer = Duration::from_millis(300);
    })
    .await;
    // A head that never ends, a body that never comes, and lines that are no HTTP.
    let mut head = TcpStream::connect(gateway.at).await.unwrap();
    head.write_all(b"GET /v1/locks HTTP/1.1\r\nhost: x\r\nx-")
        .await
        .unwrap();
    let mut body = TcpStream::connect(gateway.at).await.unwrap();
    let start = b"POST /v1/locks/hostile:slow/acquire HTTP/1.1\r\nhost: x\r\ncontent-length: 99\r\n\r\n{";
    body.write_all(start).await.unwrap();
    send(gateway.at, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\r\n\r\n").await;
    send(gateway.at, b"GET / HTTP/1.1\r\nhost: a\r\nhost\x00: b\r\n\r\n").await;
    let many: String = (0..5000).map(|i| format!("x-{i}: {i}\r\n")).collect();
    send(
        gateway.at,
        format!("GET /v1/locks HTTP/1.1\r\nhost: a\r\n{many}\r\n").as_bytes(),
    )
    .await;
    assert_eq!(gateway.get("/healthz").await.status, 200);
    let ended = async {
        let mut rest = Vec::new();
        let _ = head.read_to_end(&mut rest).await;
        let mut rest = [0; 4096];
        let n = body.read(&mut rest).await.unwrap();
        rest[..n].to_vec()
    };
    let told = tokio::time::timeout(Duration::from_secs(5), ended)
        .await
        .expect("slow ones are ended");
    Reply::parse(&told).unwrap().problem(408, "too_slow");
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_give_a_page_no_chance() {
    let gateway = Gateway::on("memory:").await;
    for path in ["/", "/page.js", "/v1/locks", "/healthz"] {
        let reply = gateway.get(path).await;
        assert_eq!(
            reply.headers.get("x-content-type-options").map(String::as_str),
            Some("nosniff"),
            "{path}"
        );
        assert_eq!(
            reply.headers.get("x-frame-options").map(String::as_str),
            Some("DENY"),
            "{path}"
        );
        assert!(
            !reply.headers.contains_key("access-control-allow-origin"),
            "{path}"
        );
        assert!(!reply.headers.contains_key("set-cookie"), "{path}");
    }
    let policy = gateway.get("/").await.headers["content-security-policy"].clone();
    assert!(
        policy.starts_with("default-src 'none'; script-src 'self';"),
        "{policy}"
    );
    assert!(!policy.contains("unsafe"), "{policy}");
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_connections_are_in_nobodys_way_and_are_ended() {
    let gateway = Gateway::with("memory:", |config| config.limits.head = Duration::from_secs(2)).await;
    let mut idle = Vec::new();
    for _ in 0..1500 {
        idle.push(TcpStream::connect(gateway.at).await.unwrap());
    }
    let started = std::time::Instant::now();
    gateway
        .post("/v1/locks/hostile:idle/acquire", json!({}))
        .await
        .ok();
    assert!(
        started.elapsed() < Duration::from_secs(2),
        "{:?}",
        started.elapsed()
    );
    let ended = async {
        for mut stream in idle {
            let mut rest = Vec::new();
            let _ = stream.read_to_end(&mut rest).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(15), ended)
        .await
        .expect("idle connections are ended");
    gateway.stop().await;
}
