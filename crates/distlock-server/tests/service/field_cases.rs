//! Trouble that others have had, at the service: see docs/field-cases.md.

use std::time::{Duration, Instant};

use distlock::{ErrorKind, Locks};
use distlock_testkit::servers::Port;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

use crate::gateway::{Gateway, PATIENCE, until};
use crate::wire::{Reply, ask, request};

/// Asks over a connection that stays open.
async fn over(stream: &mut BufReader<TcpStream>, path: &str, body: Value) -> Reply {
    let body = body.to_string();
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.get_mut().write_all(head.as_bytes()).await.unwrap();
    let mut raw = String::new();
    while !raw.ends_with("\r\n\r\n") {
        assert!(
            stream.read_line(&mut raw).await.unwrap() > 0,
            "the end after {raw:?}"
        );
    }
    let length = raw.lines().find_map(|l| l.strip_prefix("content-length: "));
    let mut body = vec![0; length.unwrap().parse().unwrap()];
    stream.read_exact(&mut body).await.unwrap();
    raw.push_str(std::str::from_utf8(&body).unwrap());
    Reply::parse(raw.as_bytes()).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f15_ownership_follows_the_handle_not_the_connection() {
    let gateway = Gateway::on("memory:").await;
    let connect = async || BufReader::new(TcpStream::connect(gateway.at).await.unwrap());
    let (mut one, mut two) = (connect().await, connect().await);
    let path = |verb: &str| format!("/v1/locks/f15/{verb}");
    let lease = over(&mut one, &path("acquire"), json!({"ttl": "20s"})).await.ok();
    let handle = json!({"handle": lease["handle"]});
    over(&mut two, &path("renew"), handle.clone()).await.ok();
    // The end of the connection that took it is not the end of the lease.
    drop(one);
    over(&mut two, &path("acquire"), json!({}))
        .await
        .problem(409, "busy");
    over(&mut two, &path("release"), handle.clone()).await.ok();
    over(&mut two, &path("release"), handle)
        .await
        .problem(410, "not_held");
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f24_a_loss_is_told_once_and_ends_nothing_else() {
    let gateway = Gateway::on("memory:").await;
    let key = "/v1/locks/f24";
    let mut stream = TcpStream::connect(gateway.at).await.unwrap();
    let follow = request("GET", &format!("{key}/events"), &[], b"");
    stream.write_all(&follow).await.unwrap();
    let mut lines = BufReader::new(stream).lines();
    let mut next = async || {
        let event = async {
            loop {
                let line = lines.next_line().await.unwrap().expect("the stream goes on");
                if let Some(name) = line.strip_prefix("event: ") {
                    return name.to_owned();
                }
            }
        };
        tokio::time::timeout(PATIENCE, event).await.expect("it is told")
    };
    assert_eq!(next().await, "state");
    let locks = Locks::connect(&gateway.url()).await.unwrap();
    let lost = locks.mutex("f24").acquire().await.unwrap();
    assert_eq!(next().await, "granted");
    let reason = json!({"reason": "a test", "grace": "0s"});
    gateway.post(&format!("{key}/break"), reason).await.ok();
    assert_eq!(next().await, "broken");
    let why = tokio::time::timeout(PATIENCE, lost.lost()).await;
    assert_eq!(why.expect("it is told").word(), "broken");
    // Everything goes on: the client that lost one lock takes it anew, and others of its own.
    let again = locks.mutex("f24").acquire().await.unwrap();
    assert_eq!(next().await, "granted");
    let other = locks.mutex("f24:other").acquire().await.unwrap();
    for guard in [&again, &other] {
        guard.verify().await.unwrap();
    }
    again.release().await.unwrap();
    assert_eq!(next().await, "released");
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f35_a_client_that_has_gone_away_is_not_granted_the_lock() {
    let gateway = Gateway::on("memory:").await;
    let path = "/v1/locks/f35/acquire";
    let first = gateway.post(path, json!({"ttl": "60s"})).await.ok();
    let begin = async |label: &str| {
        let mut stream = TcpStream::connect(gateway.at).await.unwrap();
        let body = json!({"wait": "50s", "ttl": "60s", "order": "fifo", "label": label}).to_string();
        stream
            .write_all(&request("POST", path, &[], body.as_bytes()))
            .await
            .unwrap();
        until("it stands in line", async || {
            let seen = gateway.get("/v1/locks/f35").await.ok();
            let waiters = seen["waiters"].as_array().unwrap().clone();
            waiters.iter().any(|w| w["label"] == label).then_some(())
        })
        .await;
        stream
    };
    let gone = begin("gone").await;
    let mut next = begin("next").await;
    drop(gone);
    let handle = json!({"handle": first["handle"]});
    gateway.post("/v1/locks/f35/release", handle).await.ok();
    let mut raw = Vec::new();
    let answered = tokio::time::timeout(PATIENCE, next.read_to_end(&mut raw)).await;
    answered.expect("the one behind is granted").unwrap();
    Reply::parse(&raw).unwrap().ok();
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f38_what_a_request_says_counts_more_than_the_default() {
    let gateway = Gateway::on("memory:?ttl=50s").await;
    let path = "/v1/locks/f38/acquire";
    let default = gateway.post(path, json!({})).await.ok();
    assert_eq!(default["ttl_ms"], 50_000, "{default}");
    // Without a word it does not wait; with one, for so long.
    gateway.post(path, json!({})).await.problem(409, "busy");
    let started = Instant::now();
    gateway
        .post(path, json!({"wait": "700ms"}))
        .await
        .problem(409, "timeout");
    assert!(
        started.elapsed() >= Duration::from_millis(700),
        "{:?}",
        started.elapsed()
    );
    let own = gateway
        .post("/v1/locks/f38:own/acquire", json!({"ttl": "2s"}))
        .await
        .ok();
    assert_eq!(own["ttl_ms"], 2_000, "{own}");
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f64_a_huge_duration_is_refused_and_blocks_nobody() {
    let gateway = Gateway::on("memory:").await;
    let path = "/v1/locks/f64/acquire";
    let streams = [("accept", "application/x-ndjson")];
    for huge in [
        "18446744073709551615s",
        "18446744073709551615ms",
        "9223372036854775807s",
        "9223372036854775807ms",
        "9007199254740992ms",
        "1000years",
        "99999999999999999999y",
    ] {
        for name in ["ttl", "wait"] {
            let body = json!({name: huge});
            for headers in [&[][..], &streams] {
                let reply = ask(gateway.at, "POST", path, headers, body.to_string().as_bytes()).await;
                let told = reply.problem(422, "invalid_config");
                assert!(told["detail"].as_str().unwrap().len() > 10, "{told}");
            }
        }
    }
    for huge in ["18446744073709551615", "1e300", "-1"] {
        let body = format!(r#"{{"ttl":{huge}}}"#);
        ask(gateway.at, "POST", path, &[], body.as_bytes())
            .await
            .problem(422, "invalid_config");
    }
    let lease = gateway.post(path, json!({})).await.ok();
    let extend = json!({"handle": lease["handle"], "ttl": "1000years"});
    gateway
        .post("/v1/locks/f64/extend", extend)
        .await
        .problem(422, "invalid_config");
    let handle = json!({"handle": lease["handle"]});
    gateway.post("/v1/locks/f64/release", handle).await.ok();
    gateway.stop().await;
}

/// A wait is as long as it was asked for, also when the gateway is started anew in the middle of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f84_a_long_wait_lasts_as_long_as_it_was_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let engine = format!("file://{}/locks", dir.path().display());
    let direct = Locks::connect(&engine).await.unwrap();
    let held = direct.mutex("f84").acquire().await.unwrap();
    // A port that no outgoing connection takes while nobody listens there.
    let port = Port::free().unwrap();
    let at = port.address().parse().unwrap();
    let gateway = Gateway::at(at, &engine, |_| {}).await;
    let through = Locks::connect(&gateway.url()).await.unwrap();
    let short = through.mutex("f84").wait(Duration::from_millis(600));
    let started = Instant::now();
    assert_eq!(short.acquire().await.unwrap_err().kind(), ErrorKind::Timeout);
    assert!(started.elapsed() >= Duration::from_millis(600));
    let long = through.mutex("f84").wait(Duration::from_secs(3600)).label("long");
    let waiting = tokio::spawn(long.acquire());
    let in_line = async |gateway: &Gateway| {
        until("it waits", async || {
            let seen = gateway.get("/v1/locks/f84").await.ok();
            (seen["waiters"].as_array().unwrap().len() == 1).then_some(())
        })
        .await;
    };
    in_line(&gateway).await;
    gateway.kill().await;
    let gateway = Gateway::at(at, &engine, |_| {}).await;
    in_line(&gateway).await;
    held.release().await.unwrap();
    let granted = tokio::time::timeout(PATIENCE, waiting)
        .await
        .expect("it is granted");
    granted.unwrap().unwrap().release().await.unwrap();
    gateway.stop().await;
}

/// Twenty leases live through a stop in good order: the next gateway renews and releases them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f90_after_a_stop_in_good_order_leases_go_on_at_the_next_gateway() {
    let dir = tempfile::tempdir().unwrap();
    let engine = format!("file://{}/locks", dir.path().display());
    let gateway = Gateway::on(&engine).await;
    let mut leases = Vec::new();
    for i in 0..20 {
        let path = format!("/v1/locks/f90:{i}/acquire");
        leases.push(gateway.post(&path, json!({"ttl": "60s"})).await.ok());
    }
    gateway.stop().await;
    let next = Gateway::on(&engine).await;
    let all: Vec<Value> = leases
        .iter()
        .map(|lease| json!({"handle": lease["handle"]}))
        .collect();
    let renewed = next.post("/v1/renew", json!({"leases": all})).await.ok();
    let renewed = renewed["renewed"].as_array().unwrap();
    assert_eq!(renewed.len(), 20);
    assert!(renewed.iter().all(|one| one["lease"].is_object()), "{renewed:?}");
    for (i, handle) in all.into_iter().enumerate() {
        next.post(&format!("/v1/locks/f90:{i}/release"), handle)
            .await
            .ok();
    }
    next.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f99_a_bad_name_gets_the_same_answer_everywhere() {
    let gateway = Gateway::on("memory:").await;
    let long = "k".repeat(513);
    for key in ["", "a%00b", "a%0Ab", "%FF", "a%C3b", &long] {
        let path = format!("/v1/locks/{key}");
        let handle = json!({"handle": "dl1/00000000-0000-0000-0000-000000000000/1/m/0/-/30000000000/k"});
        for (verb, body) in [
            ("acquire", json!({})),
            ("renew", handle.clone()),
            ("release", handle.clone()),
            ("extend", json!({"handle": handle["handle"], "ttl": "5s"})),
            ("break", json!({"reason": "a test"})),
        ] {
            let reply = gateway.post(&format!("{path}/{verb}"), body).await;
            reply.problem(400, "invalid_key");
        }
        gateway.get(&path).await.problem(400, "invalid_key");
        gateway
            .get(&format!("{path}/events"))
            .await
            .problem(400, "invalid_key");
    }
    for key in ["", "a\u{0}b", "a\nb", &long] {
        let several = json!({"locks": [{"key": "f99:good"}, {"key": key}]});
        gateway
            .post("/v1/acquire", several)
            .await
            .problem(400, "invalid_key");
    }
    // A blank is a name like any other, and nothing was taken with the bad ones.
    gateway.post("/v1/locks/%20/acquire", json!({})).await.ok();
    gateway.post("/v1/locks/f99:good/acquire", json!({})).await.ok();
    gateway.stop().await;
}
