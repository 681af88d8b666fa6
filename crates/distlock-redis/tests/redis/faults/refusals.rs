//! The server is there and refuses.

use std::time::Duration;

use distlock_core::ErrorKind;
use distlock_core::driver::LostReason;
use distlock_testkit::servers::Redis;

use super::TTL;
use crate::common::{MS, client, config, int, keys, until};

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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f59_rights_that_are_taken_away_end_a_hold_in_time() {
    let rules = ["~*", "&*", "+@all"];
    let redis = redis!(Redis::options().user("app", "secret", rules).start());
    let mut config = config(&redis.address());
    config.user = Some("app".into());
    config.password = Some(distlock_redis::Secret::new("secret"));
    let locks = client(config).await;
    for (take, give) in [
        (
            &["ACL", "SETUSER", "app", "-evalsha", "-eval"][..],
            &["ACL", "SETUSER", "app", "+@all"][..],
        ),
        (
            &["ACL", "SETUSER", "app", "off"],
            &["ACL", "SETUSER", "app", "on"],
        ),
    ] {
        let guard = locks.mutex("old").ttl(TTL).wait(TTL).acquire().await.unwrap();
        redis.command(take).await.unwrap();
        if take.contains(&"off") {
            redis.command(&["CLIENT", "KILL", "USER", "app"]).await.unwrap();
        }
        let e = locks.mutex("new").wait(200 * MS).acquire().await.unwrap_err();
        assert_eq!(e.kind(), ErrorKind::InvalidConfig, "{take:?}: {e}");
        assert_eq!(guard.lost().await, LostReason::Expired, "{take:?}");
        redis.command(give).await.unwrap();
        let again = locks.mutex("new").wait(TTL).acquire().await.unwrap();
        again.release().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f52_a_lock_that_is_evicted_is_told_within_a_second() {
    let redis = redis!(Redis::start());
    let locks = client(config(&redis.address())).await;
    let guard = locks.mutex("evicted").ttl(20 * TTL).acquire().await.unwrap();
    until("the server to watch the key", async || {
        redis.info("tracking_total_keys").await.unwrap().as_deref() == Some("1")
    })
    .await;
    redis
        .command(&["CONFIG", "SET", "maxmemory-policy", "allkeys-random"])
        .await
        .unwrap();
    redis
        .command(&["CONFIG", "SET", "maxmemory", "4mb"])
        .await
        .unwrap();
    let fill = "x".repeat(10_000);
    let mut n = 0;
    while int(&redis, &["EXISTS", "distlock:evicted"]).await == 1 {
        redis
            .command(&["SET", &format!("fill:{n}"), &fill])
            .await
            .unwrap();
        n += 1;
        assert!(n < 100_000, "not evicted");
    }
    let told = tokio::time::timeout(Duration::from_secs(1), guard.lost()).await;
    assert_eq!(told.expect("not told"), LostReason::Taken);
}
