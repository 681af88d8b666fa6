//! The supervisor of Redis servers does what tests rely on.

#![allow(clippy::unwrap_used)]

use std::io::{Read, Write};
use std::time::Duration;

use distlock_testkit::servers::{
    Data, Redis, RedisCluster, RedisSentinel, Resp, RespClient, eventually, or_skip,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};

#[tokio::test]
async fn a_redis_starts_stops_and_comes_back() {
    let Some(mut redis) = or_skip(Redis::options().durable().unix_socket().start().await) else {
        return;
    };
    assert_eq!(
        redis.command(&["SET", "k", "v"]).await.unwrap(),
        Resp::Text("OK".into())
    );

    redis.pause().unwrap();
    redis
        .command(&["GET", "k"])
        .await
        .expect_err("a stopped server does not answer");
    redis.resume().unwrap();
    assert_eq!(redis.command(&["GET", "k"]).await.unwrap().text(), Some("v"));

    redis.kill9().unwrap();
    redis
        .command(&["GET", "k"])
        .await
        .expect_err("a dead server does not answer");
    redis.restart(Data::Keep).await.unwrap();
    assert_eq!(redis.command(&["GET", "k"]).await.unwrap().text(), Some("v"));
    redis.restart(Data::Empty).await.unwrap();
    assert_eq!(redis.command(&["GET", "k"]).await.unwrap(), Resp::Nil);

    let pid = redis.process().pid();
    redis.pause().unwrap();
    drop(redis);
    assert!(
        !std::path::Path::new(&format!("/proc/{pid}")).exists(),
        "dropped while stopped: it is gone"
    );
}

#[tokio::test]
async fn a_missing_program_is_told_apart_from_a_failure() {
    let e = Redis::options()
        .program("/no/such/redis-server")
        .start()
        .await
        .unwrap_err();
    assert!(e.to_string().contains("not installed"), "{e}");
    if let Some(redis) = or_skip(Redis::start().await) {
        let e = Redis::options()
            .args(["--no-such-option", "x"])
            .start()
            .await
            .unwrap_err();
        assert!(e.to_string().contains("before it was ready"), "{e}");
        drop(redis);
    }
}

#[tokio::test]
async fn tls_and_a_user_of_its_own() {
    let options = Redis::options()
        .tls()
        .user("app", "secret", ["~distlock:*", "+@all"]);
    let Some(redis) = or_skip(options.start().await) else {
        return;
    };
    let mut app = RespClient::connect(&redis.address()).await.unwrap();
    assert!(matches!(app.command(&["PING"]).await.unwrap(), Resp::Error(e) if e.starts_with("NOAUTH")));
    assert_eq!(
        app.command(&["AUTH", "app", "secret"]).await.unwrap(),
        Resp::Text("OK".into())
    );
    assert!(
        matches!(app.command(&["GET", "other"]).await.unwrap(), Resp::Error(e) if e.starts_with("NOPERM"))
    );
    assert_eq!(app.command(&["GET", "distlock:k"]).await.unwrap(), Resp::Nil);

    let certificates = redis.certificates().unwrap();
    let mut roots = rustls::RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_file(certificates.ca()).unwrap())
        .unwrap();
    let config = rustls::ClientConfig::builder_with_provider(rustls::crypto::ring::default_provider().into())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from("127.0.0.1").unwrap();
    let mut tls = rustls::ClientConnection::new(config.into(), name).unwrap();
    let address = redis
        .tls_url()
        .unwrap()
        .replace("rediss://app:secret@", "")
        .replace('/', "");
    let mut socket = std::net::TcpStream::connect(address).unwrap();
    let mut stream = rustls::Stream::new(&mut tls, &mut socket);
    stream.write_all(b"PING\r\n").unwrap();
    let mut answer = [0; 7];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"-NOAUTH");
}

#[tokio::test]
async fn sentinels_replace_a_lost_master() {
    let Some(mut redis) = or_skip(RedisSentinel::start().await) else {
        return;
    };
    assert_eq!(redis.master().await, Some(0));
    redis.node(0).kill9().unwrap();
    let next = eventually(Duration::from_secs(30), async || {
        redis.master().await.filter(|n| *n != 0)
    })
    .await;
    let next = next.expect("a new master");
    eventually(Duration::from_secs(30), async || {
        let role = redis.nodes()[next].info("role").await.ok()??;
        (role == "master").then_some(())
    })
    .await
    .expect("it says so itself");
}

#[tokio::test]
async fn a_cluster_replaces_a_lost_master() {
    let Some(mut redis) = or_skip(RedisCluster::start().await) else {
        return;
    };
    let first = redis.master_of("k").await.unwrap();
    redis.node(first).kill9().unwrap();
    eventually(Duration::from_secs(30), async || {
        let now = redis.master_of("k").await.filter(|n| *n != first)?;
        let set = redis.nodes()[now].command(&["SET", "k", "v"]).await.ok()?;
        (set == Resp::Text("OK".into())).then_some(())
    })
    .await
    .expect("the slot is writable again");
}

#[tokio::test]
async fn five_servers_that_know_nothing_of_each_other() {
    let Some(five) = or_skip(Redis::several(5, &Redis::options()).await) else {
        return;
    };
    five[0].command(&["SET", "k", "v"]).await.unwrap();
    for other in &five[1..] {
        assert_eq!(other.command(&["GET", "k"]).await.unwrap(), Resp::Nil);
    }
}
