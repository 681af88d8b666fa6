//! The server is there and refuses.

use distlock_core::ErrorKind;
use distlock_testkit::servers::Redis;

use super::TTL;
use crate::common::{MS, client, config, keys, until};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f51_out_of_memory_refuses_new_locks_and_keeps_the_old() {
    let redis = redis!(Redis::start());
    let locks = client(config(&redis.address())).await;
    let guard = locks.mutex("old").ttl(TTL).acquire().await.unwrap();
    redis.command(&["CONFIG", "SET", "maxmemory", "1"]).await.unwrap();
    let e = locks.mutex("new").wait(200 * MS).acquire().await.unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Unavailable, "{e}");
    assert!(e.to_string().contains("out of memory"), "{e}");
    assert!(keys(&redis, "distlock:new").await.is_empty());
    guard.verify().await.unwrap();
    guard.release().await.unwrap();
    redis.command(&["CONFIG", "SET", "maxmemory", "0"]).await.unwrap();
    let _new = locks.mutex("new").wait(TTL).acquire().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f47_a_server_that_became_a_replica_is_used_again_when_it_is_the_master() {
    let redis = redis!(Redis::start());
    let other = redis!(Redis::start());
    let locks = client(config(&redis.address())).await;
    locks.mutex("x").acquire().await.unwrap().release().await.unwrap();
    redis
        .command(&["REPLICAOF", "127.0.0.1", &other.port().to_string()])
        .await
        .unwrap();
    let e = locks.mutex("x").wait(200 * MS).acquire().await.unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Unavailable, "{e}");
    let waiter = locks.clone();
    let waits = tokio::spawn(async move { waiter.mutex("x").wait(5 * TTL).acquire().await });
    redis.command(&["REPLICAOF", "NO", "ONE"]).await.unwrap();
    drop(waits.await.unwrap().unwrap());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn misconf_is_unavailable_with_advice() {
    let mut redis = redis!(Redis::start());
    if redis
        .info("redis_version")
        .await
        .unwrap()
        .is_some_and(|v| !v.starts_with("6."))
    {
        redis = redis!(
            Redis::options()
                .args(["--enable-protected-configs", "yes"])
                .start()
        );
    }
    let locks = client(config(&redis.address())).await;
    let gone = redis.dir().join("gone");
    std::fs::create_dir(&gone).unwrap();
    redis
        .command(&["CONFIG", "SET", "dir", gone.to_str().unwrap()])
        .await
        .unwrap();
    std::fs::remove_dir(&gone).unwrap();
    redis.command(&["CONFIG", "SET", "save", "3600 1"]).await.unwrap();
    redis.command(&["SET", "x", "1"]).await.unwrap();
    redis.command(&["BGSAVE"]).await.unwrap();
    until("the save to fail", async || {
        redis.info("rdb_last_bgsave_status").await.unwrap().as_deref() == Some("err")
    })
    .await;
    let e = locks.mutex("m").wait(200 * MS).acquire().await.unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Unavailable, "{e}");
    assert!(e.to_string().contains("cannot save"), "{e}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f59_missing_rights_and_passwords_are_told_and_not_tried_for_ever() {
    let rules = ["~*", "&*", "+@all", "-publish"];
    let redis = redis!(Redis::options().user("app", "secret", rules).start());
    let mut wrong = config(&redis.address());
    wrong.user = Some("app".into());
    wrong.password = Some(distlock_redis::Secret::new("nope"));
    let e = crate::common::Peer::open(wrong.clone()).await.err().unwrap();
    assert!(!e.retry && e.to_string().contains("password"), "{e}");
    assert!(!format!("{e:?}").contains("nope"));
    wrong.password = Some(distlock_redis::Secret::new("secret"));
    let e = crate::common::Peer::open(wrong).await.err().unwrap();
    assert!(!e.retry && e.to_string().contains("PUBLISH"), "{e}");
    assert!(keys(&redis, "*").await.is_empty());
}
