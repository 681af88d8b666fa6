//! The clients that are there to be copied: they hold, renew, and stop on loss.

use std::path::PathBuf;
use std::time::Duration;

use distlock_testkit::servers::skip;
use serde_json::json;
use tokio::process::{Child, Command};

use crate::gateway::{Gateway, PATIENCE, until};
use crate::page::program;

/// A client that is started with the lock `key` and this command.
struct Client {
    interpreter: PathBuf,
    file: &'static str,
}

impl Client {
    fn find(interpreter: &str, file: &'static str) -> Option<Self> {
        let found = program(&[interpreter]).map(|interpreter| Self { interpreter, file });
        if found.is_none() {
            skip(&format!("the client {file}: no {interpreter}"));
        }
        found
    }

    fn start(&self, gateway: &Gateway, key: &str, command: &[&str]) -> Child {
        let file = format!(
            "{}/../../examples/service/{}",
            env!("CARGO_MANIFEST_DIR"),
            self.file
        );
        Command::new(&self.interpreter)
            .args([&file, &gateway.url(), key])
            .args(command)
            .env("DISTLOCK_TTL", "3s")
            .kill_on_drop(true)
            .spawn()
            .unwrap()
    }
}

async fn code(mut child: Child) -> Option<i32> {
    let ended = tokio::time::timeout(PATIENCE, child.wait())
        .await
        .expect("the client ends");
    ended.unwrap().code()
}

async fn holder(gateway: &Gateway, key: &str, expected: usize) {
    until("the holder", async || {
        let seen = gateway.get(&format!("/v1/locks/{key}")).await.ok();
        (seen["holders"].as_array().unwrap().len() == expected).then_some(())
    })
    .await;
}

async fn behaves(client: Client) {
    let gateway = Gateway::on("memory:").await;
    let key = client.file;
    // It ends as its command does, with the token at hand, and gives the lock back.
    let script = "test -n \"$DISTLOCK_TOKEN\" && exit 7";
    assert_eq!(
        code(client.start(&gateway, key, &["sh", "-c", script])).await,
        Some(7)
    );
    holder(&gateway, key, 0).await;
    // A lock that is taken away stops the command.
    let running = client.start(&gateway, key, &["sleep", "60"]);
    holder(&gateway, key, 1).await;
    let path = format!("/v1/locks/{key}/break");
    gateway
        .post(&path, json!({"reason": "a test", "grace": "0s"}))
        .await
        .ok();
    assert_eq!(code(running).await, Some(79));
    // A busy one is waited for, and left at the end of the wait.
    let taken = gateway
        .post(&format!("/v1/locks/{key}/acquire"), json!({"ttl": "60s"}))
        .await
        .ok();
    let waiting = client.start(&gateway, key, &["true"]);
    until("it waits", async || {
        let seen = gateway.get(&format!("/v1/locks/{key}")).await.ok();
        (seen["waiters"].as_array().unwrap().len() == 1).then_some(())
    })
    .await;
    let handle = json!({"handle": taken["handle"]});
    gateway
        .post(&format!("/v1/locks/{key}/release"), handle)
        .await
        .ok();
    assert_eq!(code(waiting).await, Some(0));
    // Without the gateway it is lost when the lease ends, by the client's own clock.
    let running = client.start(&gateway, key, &["sleep", "60"]);
    holder(&gateway, key, 1).await;
    let started = std::time::Instant::now();
    gateway.kill().await;
    assert_eq!(code(running).await, Some(79));
    assert!(
        started.elapsed() > Duration::from_secs(1),
        "it did not wait for its deadline"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_python_client() {
    if let Some(client) = Client::find("python3", "client.py") {
        behaves(client).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_node_client() {
    if let Some(client) = Client::find("node", "client.mjs") {
        behaves(client).await;
    }
}
