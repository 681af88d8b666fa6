//! Inputs that are meant to do harm: the service stays up, answers others, and gives nothing away.

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

use crate::gateway::{Gateway, PATIENCE};
use crate::wire::{Reply, ask, request};

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

/// A body that goes on for ever, in chunks, and one that says that it will.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn endless_bodies_are_cut_off() {
    let gateway = Gateway::on("memory:").await;
    let mut stream = TcpStream::connect(gateway.at).await.unwrap();
    let head =
        b"POST /v1/locks/hostile:endless/acquire HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n";
    stream.write_all(head).await.unwrap();
    let (mut answer, mut body) = stream.into_split();
    let chunk = [b"4000\r\n".as_slice(), &[b' '; 0x4000], b"\r\n"].concat();
    let sending = tokio::spawn(async move {
        let mut sent = 0_usize;
        while body.write_all(&chunk).await.is_ok() {
            sent += chunk.len();
        }
        sent
    });
    let mut told = vec![0; 4096];
    let n = tokio::time::timeout(PATIENCE, answer.read(&mut told)).await;
    told.truncate(n.expect("it is answered").unwrap());
    Reply::parse(&told).unwrap().problem(413, "too_large");
    drop(answer);
    let sent = tokio::time::timeout(PATIENCE, sending).await;
    let sent = sent.expect("it is cut off").unwrap();
    assert!(sent < 16 << 20, "{sent} bytes were taken");
    let huge = b"POST /v1/locks/hostile:endless/acquire HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: 99999999999\r\n\r\n{";
    let mut stream = TcpStream::connect(gateway.at).await.unwrap();
    stream.write_all(huge).await.unwrap();
    gateway
        .post("/v1/locks/hostile:endless/acquire", json!({}))
        .await
        .ok();
    drop(stream);
    gateway.stop().await;
}

/// What callers call themselves, and why, is quoted in events and in the audit log: as data.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn labels_and_reasons_are_data() {
    const FORGED: &str = "x\r\n\r\nevent: broken\ndata: {\"reason\":\"forged\"}\n\n{\"action\":\"forged\"}\n";
    let dir = tempfile::tempdir().unwrap();
    let audit = dir.path().join("audit.jsonl");
    let gateway = Gateway::with("memory:", |config| config.audit = Some(audit.clone())).await;
    let key = "/v1/locks/hostile:label";
    let mut stream = TcpStream::connect(gateway.at).await.unwrap();
    let follow = request("GET", &format!("{key}/events"), &[], b"");
    stream.write_all(&follow).await.unwrap();
    let mut lines = BufReader::new(stream).lines();
    let mut events = async |last: &str| {
        let mut seen = Vec::new();
        let until = async {
            while seen.last().is_none_or(|name| name != last) {
                let line = lines.next_line().await.unwrap().expect("the stream goes on");
                if let Some(name) = line.strip_prefix("event: ") {
                    seen.push(name.to_owned());
                } else if let Some(data) = line.strip_prefix("data: ") {
                    serde_json::from_str::<Value>(data).unwrap();
                }
            }
        };
        tokio::time::timeout(PATIENCE, until).await.expect(last);
        seen
    };
    assert_eq!(events("state").await, ["state"]);
    let named = json!({"label": FORGED, "reason": FORGED});
    let lease = gateway.post(&format!("{key}/acquire"), named).await.ok();
    assert_eq!(events("granted").await, ["granted"]);
    assert_eq!(gateway.get(key).await.ok()["holders"][0]["label"], FORGED);
    let handle = json!({"handle": lease["handle"]});
    gateway.post(&format!("{key}/release"), handle).await.ok();
    assert_eq!(events("released").await, ["released"]);
    let broken = json!({"reason": FORGED});
    gateway.post(&format!("{key}/break"), broken).await.ok();
    let audited = std::fs::read_to_string(&audit).unwrap();
    assert_eq!(audited.lines().count(), 1, "{audited}");
    let line: Value = serde_json::from_str(audited.trim_end()).unwrap();
    assert_eq!(line["reason"], FORGED.trim());
    gateway.stop().await;
}
