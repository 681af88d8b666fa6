//! Ways to the servers past distlock.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// `host:port` of a URL.
pub(crate) fn address(url: &str) -> String {
    let rest = url.split("://").nth(1).unwrap();
    rest.split(['/', '?']).next().unwrap().to_owned()
}

/// Asks etcd's JSON gateway.
pub(crate) async fn ask_etcd(address: &str, path: &str, body: &str) -> String {
    let head = format!(
        "POST {path} HTTP/1.0\r\nHost: etcd\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all((head + body).as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.contains(" 200 OK"), "{answer}");
    answer
}

pub(crate) async fn redis(url: &str) -> redis::aio::MultiplexedConnection {
    let client = redis::Client::open(url).unwrap();
    client.get_multiplexed_async_connection().await.unwrap()
}

pub(crate) async fn redis_cluster(url: &str) -> redis::cluster_async::ClusterConnection {
    let nodes: Vec<String> = address(url)
        .split(',')
        .map(|node| format!("redis://{node}"))
        .collect();
    let client = redis::cluster::ClusterClient::new(nodes).unwrap();
    client.get_async_connection().await.unwrap()
}
