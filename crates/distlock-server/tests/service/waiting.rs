//! Waiting by HTTP: long polls, streams, events, and clients that go away.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

use crate::gateway::{Gateway, PATIENCE, until};
use crate::wire::{ask, request, send};

/// Starts a request, and gives its connection.
async fn begin(gateway: &Gateway, path: &str, headers: &[(&str, &str)], body: Value) -> TcpStream {
    let mut stream = TcpStream::connect(gateway.at).await.unwrap();
    let bytes = request("POST", path, headers, body.to_string().as_bytes());
    stream.write_all(&bytes).await.unwrap();
    stream
}

async fn waiters(gateway: &Gateway, key: &str, expected: usize) {
    until("the number of waiters", async || {
        let seen = gateway.get(&format!("/v1/locks/{key}")).await.ok();
        (seen["waiters"].as_array().unwrap().len() == expected).then_some(())
    })
    .await;
}

/// Reads lines until one says this; gives its text from there on.
async fn line(lines: &mut BufReader<TcpStream>, what: &str) -> String {
    let found = async {
        loop {
            let mut line = String::new();
            assert!(
                lines.read_line(&mut line).await.unwrap() > 0,
                "the stream ended before {what:?}"
            );
            if let Some(at) = line.find(what) {
                return line[at..].trim().to_owned();
            }
        }
    };
    tokio::time::timeout(PATIENCE, found)
        .await
        .unwrap_or_else(|_| panic!("{what:?} never came"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_goes_away_leaves_the_line_at_once() {
    let gateway = Gateway::on("memory:").await;
    let path = "/v1/locks/waiting:gone/acquire";
    let first = gateway.post(path, json!({})).await.ok();
    // With and without an idempotency key, in order and not, as a long poll and as a stream.
    let fifo = json!({"wait": "50s", "order": "fifo", "label": "fair"});
    let poll = begin(&gateway, path, &[], fifo.clone()).await;
    let named = begin(&gateway, path, &[("idempotency-key", "gone")], fifo.clone()).await;
    let stream = begin(&gateway, path, &[("accept", "application/x-ndjson")], fifo).await;
    let any = begin(&gateway, path, &[], json!({"wait": "50s", "label": "any"})).await;
    waiters(&gateway, "waiting:gone", 4).await;
    let started = Instant::now();
    drop((poll, named, stream, any));
    waiters(&gateway, "waiting:gone", 0).await;
    assert!(
        started.elapsed() < Duration::from_secs(2),
        "{:?}",
        started.elapsed()
    );
    let handle = json!({"handle": first["handle"]});
    gateway.post("/v1/locks/waiting:gone/release", handle).await.ok();
    gateway.post(path, json!({})).await.ok();
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_gets_the_lock_when_it_is_released() {
    let gateway = Gateway::on("memory:").await;
    let path = "/v1/locks/waiting:turn/acquire";
    let first = gateway.post(path, json!({"label": "first"})).await.ok();
    let stream = begin(
        &gateway,
        path,
        &[("accept", "application/x-ndjson")],
        json!({"wait": "5m", "label": "streams"}),
    )
    .await;
    let mut stream = BufReader::new(stream);
    let told = line(&mut stream, r#"{"waiting""#).await;
    let told: Value = serde_json::from_str(&told).unwrap();
    assert_eq!(told["waiting"]["holder"]["label"], "first", "{told}");
    let handle = json!({"handle": first["handle"]});
    gateway.post("/v1/locks/waiting:turn/release", handle).await.ok();
    let lease: Value = serde_json::from_str(&line(&mut stream, r#"{"lease""#).await).unwrap();
    assert!(lease["lease"]["token"].as_u64() > first["token"].as_u64());
    let long = gateway.post(path, json!({"wait": "61s"})).await;
    long.problem(422, "invalid_config");
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn at_the_end_waiters_are_sent_elsewhere_and_leases_stay() {
    let dir = tempfile::tempdir().unwrap();
    let engine = format!("file://{}/locks", dir.path().display());
    let gateway = Gateway::on(&engine).await;
    let path = "/v1/locks/waiting:end/acquire";
    let first = gateway.post(path, json!({})).await.ok();
    let at = gateway.at;
    let waiter = tokio::spawn(async move { ask(at, "POST", path, &[], br#"{"wait":"50s"}"#).await });
    waiters(&gateway, "waiting:end", 1).await;
    let started = Instant::now();
    gateway.stop().await;
    assert!(
        started.elapsed() < Duration::from_secs(5),
        "{:?}",
        started.elapsed()
    );
    let told = waiter.await.unwrap();
    told.problem(503, "closed");
    assert_eq!(told.headers.get("retry-after").map(String::as_str), Some("1"));
    // Another gateway renews and releases what this one granted.
    let next = Gateway::on(&engine).await;
    let handle = json!({"handle": first["handle"]});
    next.post("/v1/locks/waiting:end/renew", handle.clone())
        .await
        .ok();
    next.post("/v1/locks/waiting:end/release", handle).await.ok();
    next.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_tell_who_comes_and_who_goes() {
    let gateway = Gateway::on("memory:").await;
    let key = "/v1/locks/waiting:events";
    let mut stream = TcpStream::connect(gateway.at).await.unwrap();
    stream
        .write_all(&request("GET", &format!("{key}/events"), &[], b""))
        .await
        .unwrap();
    let mut events = BufReader::new(stream);
    line(&mut events, "event: state").await;
    let first = gateway
        .post(&format!("{key}/acquire"), json!({"label": "one"}))
        .await
        .ok();
    line(&mut events, "event: granted").await;
    assert!(line(&mut events, "data: ").await.contains(r#""label":"one""#));
    let waiter = begin(
        &gateway,
        &format!("{key}/acquire"),
        &[],
        json!({"wait": "50s", "order": "fifo"}),
    )
    .await;
    line(&mut events, "event: waiting").await;
    drop(waiter);
    let handle = json!({"handle": first["handle"]});
    gateway.post(&format!("{key}/release"), handle).await.ok();
    line(&mut events, "event: released").await;
    let victim = gateway.post(&format!("{key}/acquire"), json!({})).await.ok();
    line(&mut events, "event: granted").await;
    gateway
        .post(
            &format!("{key}/break"),
            json!({"reason": "a test", "grace": "0s"}),
        )
        .await
        .ok();
    line(&mut events, "event: broken").await;
    assert!(line(&mut events, "data: ").await.contains("a test"));
    // Only what concerns a lease: it is over, so the stream ends.
    let handle = victim["handle"].as_str().unwrap();
    let only = [("distlock-lease", handle)];
    let raw = send(gateway.at, &request("GET", &format!("{key}/events"), &only, b"")).await;
    assert!(String::from_utf8_lossy(&raw).contains("event: state"));
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_are_limited_with_a_clear_answer() {
    let gateway = Gateway::with("memory:", |config| {
        config.limits.waiters_per_client = 2;
    })
    .await;
    let path = "/v1/locks/waiting:limit/acquire";
    gateway.post(path, json!({})).await.ok();
    let one = begin(&gateway, path, &[], json!({"wait": "50s"})).await;
    let two = begin(&gateway, path, &[], json!({"wait": "50s"})).await;
    waiters(&gateway, "waiting:limit", 2).await;
    let told = gateway.post(path, json!({"wait": "1s"})).await;
    assert!(
        told.problem(429, "limited")["detail"]
            .as_str()
            .unwrap()
            .contains("2 requests waiting")
    );
    // One that does not wait is none of them.
    gateway.post(path, json!({})).await.problem(409, "busy");
    drop((one, two));
    waiters(&gateway, "waiting:limit", 0).await;
    gateway
        .post(path, json!({"wait": "50ms"}))
        .await
        .problem(409, "timeout");
    gateway.stop().await;
}
