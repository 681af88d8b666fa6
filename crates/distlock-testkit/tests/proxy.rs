//! The proxy does to bytes what it says, in each direction.

#![allow(clippy::unwrap_used)]

use std::io;
use std::time::{Duration, Instant};

use distlock_testkit::proxy::{Fault, Proxy};
use distlock_testkit::servers::eventually;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

/// A server that echoes, and a proxy before it.
async fn echo() -> Proxy {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let (mut from, mut to) = stream.split();
                tokio::io::copy(&mut from, &mut to).await
            });
        }
    });
    Proxy::start(address).await.unwrap()
}

async fn connect(proxy: &Proxy) -> TcpStream {
    TcpStream::connect(proxy.address()).await.unwrap()
}

async fn say(stream: &mut TcpStream, text: &str) -> io::Result<String> {
    stream.write_all(text.as_bytes()).await?;
    hear(stream, text.len()).await
}

async fn hear(stream: &mut TcpStream, n: usize) -> io::Result<String> {
    let mut answer = vec![0; n];
    timeout(Duration::from_secs(10), stream.read_exact(&mut answer)).await??;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

async fn silent(stream: &mut TcpStream) -> bool {
    timeout(Duration::from_millis(150), stream.read_u8())
        .await
        .is_err()
}

fn is_reset(e: &io::Error) -> bool {
    matches!(
        e.kind(),
        io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe
    )
}

#[tokio::test]
async fn passes_and_passes_the_end_on() {
    let proxy = echo().await;
    let mut stream = connect(&proxy).await;
    assert_eq!(say(&mut stream, "hello").await.unwrap(), "hello");
    stream.shutdown().await.unwrap();
    assert_eq!(
        stream.read(&mut [0]).await.unwrap(),
        0,
        "a clean end, not a reset"
    );
    assert_eq!(proxy.passed(), (5, 5));
}

#[tokio::test]
async fn holds_replies_until_healed() {
    let proxy = echo().await;
    let mut stream = connect(&proxy).await;
    proxy.replies(Fault::Hold);
    stream.write_all(b"late").await.unwrap();
    eventually(Duration::from_secs(10), async || {
        (proxy.held() == (0, 4)).then_some(())
    })
    .await
    .expect("held");
    assert!(silent(&mut stream).await);
    assert_eq!(proxy.passed().0, 4, "the request has arrived");
    proxy.heal();
    assert_eq!(hear(&mut stream, 4).await.unwrap(), "late");
    assert_eq!(proxy.held(), (0, 0));
}

#[tokio::test]
async fn a_blackhole_swallows_and_spoils_the_connection() {
    let proxy = echo().await;
    let (mut spoilt, mut idle) = (connect(&proxy).await, connect(&proxy).await);
    say(&mut spoilt, "a").await.unwrap();
    say(&mut idle, "a").await.unwrap();
    proxy.requests(Fault::Blackhole);
    spoilt.write_all(b"lost").await.unwrap();
    assert!(silent(&mut spoilt).await);
    assert_eq!(proxy.passed().0, 2);
    proxy.heal();
    let e = hear(&mut spoilt, 1).await.unwrap_err();
    assert!(is_reset(&e), "{e}");
    assert_eq!(
        say(&mut idle, "b").await.unwrap(),
        "b",
        "a connection that lost nothing goes on"
    );
}

#[tokio::test]
async fn cuts_with_a_reset_and_refuses() {
    let proxy = echo().await;
    let mut stream = connect(&proxy).await;
    say(&mut stream, "a").await.unwrap();
    proxy.cut();
    let e = hear(&mut stream, 1).await.unwrap_err();
    assert!(is_reset(&e), "{e}");
    assert_eq!(
        say(&mut connect(&proxy).await, "b").await.unwrap(),
        "b",
        "new connections are served"
    );
    proxy.refuse();
    let e = say(&mut connect(&proxy).await, "c").await.unwrap_err();
    assert!(is_reset(&e), "{e}");
    proxy.heal();
    assert_eq!(say(&mut connect(&proxy).await, "d").await.unwrap(), "d");
}

#[tokio::test]
async fn cuts_after_so_many_bytes_of_one_direction() {
    let proxy = echo().await;
    let mut stream = connect(&proxy).await;
    proxy.replies(Fault::CutAfter(7));
    assert_eq!(say(&mut stream, "four").await.unwrap(), "four");
    let e = say(&mut stream, "more").await.unwrap_err();
    assert!(is_reset(&e) || e.kind() == io::ErrorKind::UnexpectedEof, "{e}");
    assert_eq!(
        proxy.passed(),
        (8, 7),
        "the whole request, and seven bytes of replies"
    );
    assert_eq!(
        say(&mut connect(&proxy).await, "new").await.unwrap(),
        "new",
        "the fault is used up"
    );
}

#[tokio::test]
async fn delays_in_order_and_each_way() {
    let proxy = echo().await;
    let mut stream = connect(&proxy).await;
    let (by, jitter) = (Duration::from_millis(40), Duration::from_millis(20));
    proxy.both(Fault::Delay { by, jitter });
    let start = Instant::now();
    assert_eq!(say(&mut stream, "x").await.unwrap(), "x");
    assert!(start.elapsed() >= by * 2, "{:?}", start.elapsed());
    let mut expected = String::new();
    for n in 0..50 {
        let piece = format!("{n},");
        stream.write_all(piece.as_bytes()).await.unwrap();
        expected.push_str(&piece);
    }
    assert_eq!(hear(&mut stream, expected.len()).await.unwrap(), expected);
}

#[tokio::test]
async fn chunks_arrive_whole() {
    let proxy = echo().await;
    let mut stream = connect(&proxy).await;
    proxy.both(Fault::Chunk(3));
    assert_eq!(
        say(&mut stream, "a longer sentence").await.unwrap(),
        "a longer sentence"
    );
}

#[tokio::test]
async fn a_server_that_is_gone_resets_and_another_can_take_its_place() {
    let gone = TcpListener::bind("127.0.0.1:0")
        .await
        .unwrap()
        .local_addr()
        .unwrap()
        .to_string();
    let proxy = Proxy::start(gone).await.unwrap();
    let e = say(&mut connect(&proxy).await, "a").await.unwrap_err();
    assert!(is_reset(&e), "{e}");
    let other = echo().await;
    proxy.to(other.address());
    assert_eq!(say(&mut connect(&proxy).await, "a").await.unwrap(), "a");
}
