//! Two gateways on one engine.

use distlock::{ErrorKind, Locks};
use distlock_testkit::servers::{Redis, or_skip};
use serde_json::json;

use crate::gateway::{Gateway, PATIENCE};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_one_granted_another_renews_and_releases() {
    let Some(server) = or_skip(Redis::start().await) else {
        return;
    };
    let (a, b) = (Gateway::on(&server.url()).await, Gateway::on(&server.url()).await);
    let path = |verb: &str| format!("/v1/locks/two/{verb}");
    let lease = a.post(&path("acquire"), json!({"ttl": "20s"})).await.ok();
    b.post(&path("acquire"), json!({})).await.problem(409, "busy");
    let handle = json!({"handle": lease["handle"]});
    b.post(&path("renew"), handle.clone()).await.ok();
    a.kill().await;
    b.post(&path("renew"), handle.clone()).await.ok();
    b.post(&path("release"), handle).await.ok();
    // A direct client of the engine sees what the gateway did.
    let locks = Locks::connect(&server.url()).await.unwrap();
    let guard = locks
        .mutex("two")
        .try_acquire()
        .await
        .unwrap()
        .expect("it was released");
    assert!(guard.token().unwrap().get() > lease["token"].as_u64().unwrap());
    b.post(&path("acquire"), json!({})).await.problem(409, "busy");
    guard.release().await.unwrap();
    b.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_engine_goes_on_at_the_next_gateway() {
    let dir = tempfile::tempdir().unwrap();
    let engine = format!("file://{}/locks", dir.path().display());
    let (a, b) = (Gateway::on(&engine).await, Gateway::on(&engine).await);
    let url = format!("http://{},{}", a.at, b.at);
    let (mine, other) = (
        Locks::connect(&url).await.unwrap(),
        Locks::connect(&url).await.unwrap(),
    );
    let guard = mine.mutex("moves").acquire().await.unwrap();
    let waiter = tokio::spawn(async move {
        other
            .mutex("moves")
            .wait(PATIENCE)
            .acquire()
            .await
            .map(|g| (g, other))
    });
    a.kill().await;
    // The hold goes on, and the wait does.
    guard
        .verify()
        .await
        .or_else(|e| match e.kind() {
            ErrorKind::OutcomeUnknown | ErrorKind::Unavailable => Ok(()),
            _ => Err(e),
        })
        .unwrap();
    guard.verify().await.unwrap();
    guard.release().await.unwrap();
    let (next, _other) = waiter.await.unwrap().unwrap();
    next.release().await.unwrap();
    b.stop().await;
}
