//! Clients that are slow, or do nothing: they are ended, and others are answered meanwhile.

use std::io::ErrorKind;
use std::time::{Duration, Instant};

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

use crate::gateway::{Gateway, PATIENCE, until};
use crate::wire::{Reply, send};

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

/// A head that comes byte by byte: each byte is in time, all together are not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn trickling_requests_are_ended() {
    let gateway = Gateway::with("memory:", |config| {
        config.limits.head = Duration::from_millis(400);
        config.limits.answer = Duration::from_millis(400);
    })
    .await;
    let heads = [
        "",
        "POST /v1/locks/slow:trickle/acquire HTTP/1.1\r\nhost: x\r\ncontent-length: 9999\r\n\r\n",
    ];
    for head in heads {
        let mut stream = TcpStream::connect(gateway.at).await.unwrap();
        stream.write_all(head.as_bytes()).await.unwrap();
        let (mut told, mut trickle) = stream.into_split();
        let trickling = tokio::spawn(async move {
            let mut every = tokio::time::interval(Duration::from_millis(30));
            loop {
                every.tick().await;
                if trickle.write_all(b"G").await.is_err() {
                    return;
                }
            }
        });
        let mut rest = Vec::new();
        let ended = tokio::time::timeout(PATIENCE, told.read_to_end(&mut rest)).await;
        assert!(ended.is_ok(), "it goes on after {head:?}");
        trickling.abort();
    }
    gateway.stop().await;
}

/// Clients that ask for more and more and take nothing: of answers that are long, and of streams.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_that_take_nothing_are_ended_and_others_are_answered() {
    let gateway = Gateway::with("memory:", |config| {
        config.limits.stalled = Duration::from_millis(500);
    })
    .await;
    let long = "l".repeat(1000);
    for i in 0..200 {
        let path = format!("/v1/locks/slow:reader:{i}/acquire");
        gateway
            .post(&path, json!({"label": long, "reason": long}))
            .await
            .ok();
    }
    let mut asked = Vec::new();
    for _ in 0..20 {
        // With little room of its own, so that it is soon full.
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(4096).unwrap();
        let mut stream = socket.connect(gateway.at).await.unwrap();
        let ask = b"GET /v1/locks?prefix=slow:reader&limit=1000 HTTP/1.1\r\nhost: localhost\r\n\r\n";
        stream.write_all(&ask.repeat(100)).await.unwrap();
        asked.push(stream);
    }
    let started = Instant::now();
    gateway.post("/v1/locks/slow:other/acquire", json!({})).await.ok();
    assert!(
        started.elapsed() < Duration::from_secs(3),
        "{:?}",
        started.elapsed()
    );
    // Nothing is there any more that would take what they say.
    for stream in &asked {
        until("a reader that takes nothing is ended", async || {
            let refused = stream.try_write(b"G").err()?;
            (refused.kind() != ErrorKind::WouldBlock).then_some(())
        })
        .await;
    }
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_client_does_not_take_all_streams() {
    let gateway = Gateway::with("memory:", |config| config.limits.streams_per_client = 2).await;
    let follow =
        b"GET /v1/locks/slow:streams/events HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    let mut open = Vec::new();
    for _ in 0..2 {
        let mut stream = TcpStream::connect(gateway.at).await.unwrap();
        stream.write_all(follow).await.unwrap();
        let mut begun = [0; 12];
        stream.read_exact(&mut begun).await.unwrap();
        assert_eq!(&begun, b"HTTP/1.1 200");
        open.push(stream);
    }
    let told = Reply::parse(&send(gateway.at, follow).await).unwrap();
    told.problem(429, "limited");
    // One that is left is one's own again.
    open.pop();
    until("a stream is free again", async || {
        let mut stream = TcpStream::connect(gateway.at).await.unwrap();
        stream.write_all(follow).await.unwrap();
        let mut begun = [0; 12];
        stream.read_exact(&mut begun).await.unwrap();
        (&begun == b"HTTP/1.1 200").then_some(())
    })
    .await;
    gateway.stop().await;
}
