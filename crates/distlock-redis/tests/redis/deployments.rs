//! The same locks over Sentinel, TLS with an ACL user, and a unix socket.

use std::time::Duration;

use crate::common::{MS, client, config, secured, secured_config, sentinel_config, until};
use distlock_core::driver::{LostReason, Order};
use distlock_core::{ErrorKind, Release};
use distlock_redis::{Config, Endpoint, Tls};
use distlock_testkit::servers::{Redis, RedisSentinel};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tls_and_an_acl_user_with_only_the_documented_rights() {
    let redis = redis!(secured().start());
    let mut config = secured_config(&redis);
    let locks = client(config.clone()).await;
    for order in [Order::Any, Order::Fifo] {
        let guard = locks
            .mutex("t")
            .order(order)
            .ttl(Duration::from_secs(3))
            .acquire()
            .await
            .unwrap();
        let (waiter, reader) = (
            locks.clone(),
            locks.rw("r").read().order(order).acquire().await.unwrap(),
        );
        let waits = tokio::spawn(async move { waiter.mutex("t").order(order).acquire().await });
        let permit = locks.semaphore("s", 2).order(order).acquire().await.unwrap();
        guard.verify().await.unwrap();
        guard.release().await.unwrap();
        waits.await.unwrap().unwrap().release().await.unwrap();
        assert_eq!(reader.release().await.unwrap(), Release::Clean);
        assert_eq!(permit.release().await.unwrap(), Release::Clean);
        locks
            .rw("r")
            .write()
            .order(order)
            .acquire()
            .await
            .unwrap()
            .release()
            .await
            .unwrap();
    }
    assert!(locks.list("", None, 10).await.is_ok());
    let findings = locks.doctor().await.unwrap();
    assert!(
        !findings.iter().any(|f| f.id.starts_with("redis-acl")),
        "{findings:?}"
    );
    // Without the right root certificate it is refused.
    config.tls = Some(Tls::default());
    assert!(crate::common::Peer::open(config).await.is_err());
}

#[tokio::test]
async fn a_unix_socket() {
    let redis = redis!(Redis::options().unix_socket().start());
    let url = redis.unix_url().unwrap();
    let path = url.strip_prefix("redis+unix://").unwrap();
    let locks = client(Config::new(Endpoint::Unix(path.into()))).await;
    let guard = locks.mutex("u").acquire().await.unwrap();
    assert!(locks.mutex("u").try_acquire().await.unwrap().is_none());
    guard.release().await.unwrap();
}

#[tokio::test]
async fn another_database_is_another_world() {
    let redis = redis!();
    let mut other = config(&redis.address());
    other.db = 3;
    let (a, b) = (client(config(&redis.address())).await, client(other).await);
    let _guard = a.mutex("d").acquire().await.unwrap();
    let _other = b.mutex("d").try_acquire().await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f50_f61_a_failover_leaves_nobody_stuck() {
    let mut group = redis!(RedisSentinel::start());
    let (a, b) = (
        client(sentinel_config(&group)).await,
        client(sentinel_config(&group)).await,
    );
    let guard = a.mutex("f").ttl(Duration::from_secs(20)).acquire().await.unwrap();
    let replicas = group.nodes().len() - 1;
    let first = group.master().await.unwrap();
    until("the lock to be replicated", async || {
        let mut have = 0;
        for (n, node) in group.nodes().iter().enumerate() {
            have += usize::from(n != first && !crate::common::keys(node, "distlock:f").await.is_empty());
        }
        have == replicas
    })
    .await;
    let waiters: Vec<_> = [Order::Any, Order::Fifo, Order::Fifo]
        .into_iter()
        .map(|order| {
            let locks = b.clone();
            tokio::spawn(async move {
                let got = locks
                    .mutex("f")
                    .order(order)
                    .wait(Duration::from_secs(40))
                    .acquire()
                    .await?;
                got.release().await
            })
        })
        .collect();
    group.node(first).kill9().unwrap();
    // The hold was replicated, so it survives, and is verified on the new master.
    let start = tokio::time::Instant::now();
    while guard.verify().await.is_err() {
        assert!(guard.is_held(), "a replicated hold was lost");
        assert!(start.elapsed() < Duration::from_secs(15), "no new master in 15 s");
        tokio::time::sleep(100 * MS).await;
    }
    assert_ne!(group.master().await, Some(first));
    assert_eq!(guard.release().await.unwrap(), Release::Clean);
    for waiter in waiters {
        let said = waiter.await.unwrap();
        assert!(said.is_ok(), "{said:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f53_a_promoted_replica_that_does_not_know_the_lock_is_told_of() {
    let mut group = redis!(RedisSentinel::start());
    let locks = client(sentinel_config(&group)).await;
    // Tokens grow over all of this: the first one is known everywhere.
    let known = locks.mutex("n").acquire().await.unwrap();
    known.release().await.unwrap();
    let first = group.master().await.unwrap();
    for (n, node) in group.nodes().iter().enumerate() {
        if n != first {
            node.pause().unwrap();
        }
    }
    group
        .node(first)
        .command(&["CLIENT", "KILL", "TYPE", "replica"])
        .await
        .unwrap();
    let guard = locks
        .mutex("n")
        .ttl(Duration::from_secs(60))
        .acquire()
        .await
        .unwrap();
    group.node(first).kill9().unwrap();
    for (n, node) in group.nodes().iter().enumerate() {
        if n != first {
            node.resume().unwrap();
        }
    }
    let told = tokio::time::timeout(Duration::from_secs(20), guard.lost()).await;
    assert_eq!(told.expect("not told in 20 s"), LostReason::Taken);
    let next = locks
        .mutex("n")
        .wait(Duration::from_secs(20))
        .acquire()
        .await
        .unwrap();
    assert!(next.token() > guard.token(), "the token protects the data");
}

#[tokio::test]
async fn a_wrong_group_and_absent_sentinels_are_told() {
    let mut config = Config::new(Endpoint::Sentinel {
        sentinels: vec![("127.0.0.1".into(), 1)],
        master: "m".into(),
    });
    config.connect_timeout = 200 * MS;
    let open = move |engine| async move { distlock_redis::open(engine, config).await };
    let e = distlock_core::Client::builder().build(open).await.unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Unavailable, "{e}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn min_replicas_gives_back_what_was_not_confirmed() {
    let redis = redis!();
    let mut alone = config(&redis.address());
    alone.set("min_replicas", "1").unwrap();
    let locks = client(alone).await;
    let e = locks.mutex("m").try_acquire().await.unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Unavailable, "{e}");
    assert!(e.to_string().contains("0 of 1 replicas"), "{e}");
    assert!(crate::common::keys(&redis, "distlock:m").await.is_empty());
    let port = redis.port().to_string();
    let replica = Redis::options().args([
        "--replicaof",
        "127.0.0.1",
        &port,
        "--repl-diskless-sync-delay",
        "0",
    ]);
    let replica = replica.start().await.unwrap();
    for wanted in ["1", "majority", "all"] {
        let mut some = config(&redis.address());
        some.set("min_replicas", wanted).unwrap();
        let locks = client(some).await;
        let lock = || locks.mutex("m").wait(Duration::from_secs(20));
        let guard = lock().acquire().await.unwrap();
        guard.release().await.unwrap();
        // Nobody else waits for the replica that does not answer.
        let guard = locks.mutex("held").acquire().await.unwrap();
        replica.pause().unwrap();
        let tried = async {
            let start = std::time::Instant::now();
            let e = locks.mutex("m").try_acquire().await.unwrap_err();
            (e, start.elapsed())
        };
        let verified = async {
            let start = std::time::Instant::now();
            guard.verify().await.unwrap();
            start.elapsed()
        };
        let ((e, refused), verified) = tokio::join!(tried, verified);
        replica.resume().unwrap();
        assert!(e.to_string().contains("0 of 1 replicas"), "{wanted}: {e}");
        assert!(crate::common::keys(&redis, "distlock:m").await.is_empty());
        assert!(
            verified < refused,
            "{wanted}: {verified:?} behind a WAIT of {refused:?}"
        );
        guard.release().await.unwrap();
    }
    // Those that were there count when they are gone.
    let mut all = config(&redis.address());
    all.set("min_replicas", "all").unwrap();
    let locks = client(all).await;
    let guard = locks
        .mutex("m")
        .wait(Duration::from_secs(20))
        .acquire()
        .await
        .unwrap();
    guard.release().await.unwrap();
    drop(replica);
    until("the master to miss its replica", async || {
        redis.info("connected_slaves").await.unwrap().as_deref() == Some("0")
    })
    .await;
    let e = locks.mutex("m").try_acquire().await.unwrap_err();
    assert!(e.to_string().contains("0 of 1 replicas"), "{e}");
}
