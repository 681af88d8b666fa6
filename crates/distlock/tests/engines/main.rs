//! The same few lines on every engine, told by nothing but the URL.

#![allow(clippy::unwrap_used, reason = "a test")]

mod deployments;
mod gates;
mod links;
mod names;
mod spread;
mod stores;
mod table;

use std::time::Duration;

use deployments::Engine;
use distlock::driver::{Break, Order};
use distlock::{ErrorKind, Locks, OnCrash, Ran, Release, RunError};

/// What every engine must give to whoever only knows its URL.
async fn use_it(url: &str) {
    let (a, b) = (
        Locks::connect(url).await.unwrap(),
        Locks::connect(url).await.unwrap(),
    );
    assert!(
        a.url()
            .is_some_and(|shown| url.starts_with(shown.split('?').next().unwrap())),
        "{:?}",
        a.url()
    );
    let key = "order:close:42";
    let wait = Duration::from_secs(10);

    let held = a.mutex(key).reason("a test").acquire().await.unwrap();
    let first = held.token().unwrap();
    assert!(b.mutex(key).try_acquire().await.unwrap().is_none());
    let e = b
        .mutex(key)
        .wait(Duration::from_secs(1))
        .acquire()
        .await
        .unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Timeout, "{e}");
    let listed = b.list("order:", None, 10).await.unwrap();
    assert_eq!(listed.iter().map(|l| l.key.as_str()).collect::<Vec<_>>(), [key]);
    assert_eq!(b.inspect(key).await.unwrap().holders.len(), 1);
    held.verify().await.unwrap();

    let waiter = tokio::spawn({
        let b = b.clone();
        async move {
            b.mutex(key)
                .order(Order::Fifo)
                .wait(wait)
                .acquire()
                .await
                .unwrap()
        }
    });
    let waits = async {
        while b.inspect(key).await.unwrap().waiters.is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(wait, waits).await.expect("a waiter is seen");
    assert_eq!(held.release().await.unwrap(), Release::Clean);
    let next = waiter.await.unwrap();
    assert!(next.token().unwrap() > first);

    let lost = next.lost();
    let how = Break {
        expect: next.token(),
        reason: Some("on purpose".into()),
        ..Break::default()
    };
    assert_eq!(a.break_lock(key, how).await.unwrap().len(), 1);
    tokio::time::timeout(wait, lost).await.unwrap();
    drop(next);

    let out = a
        .mutex(key)
        .wait(wait)
        .run(async |held| Ok::<_, ()>(held.token()))
        .await;
    assert!(out.unwrap().unwrap() > first);
    let both = (
        a.rw("r").read().acquire().await.unwrap(),
        b.rw("r").read().acquire().await.unwrap(),
    );
    assert!(a.rw("r").write().try_acquire().await.unwrap().is_none());
    drop(both);
    let slot = a.semaphore("s", 2).acquire().await.unwrap();
    assert_eq!(slot.release().await.unwrap(), Release::Clean);
    once(&a, &b).await;
    table::check(a.capabilities());
    gates::refuse_stale_writes(url, &a, &b).await;
    let probe = distlock::doctor::probe(&a, &b).await.unwrap();
    assert_eq!(probe.findings, [], "{probe:?}");
    if let Some(offset) = probe.clock {
        assert!(
            offset.by <= offset.within + Duration::from_millis(100),
            "{offset}: the same host"
        );
    }
    let tells = ["redis", "redis-cluster", "postgres", "mysql"].contains(&a.capabilities().engine);
    assert_eq!(probe.clock.is_some(), tells, "{}", a.capabilities().engine);
    assert!(a.shutdown(wait).await && b.shutdown(wait).await);
}

/// At most once in a window, whoever calls, or a refusal where the engine cannot keep a record.
async fn once(a: &Locks, b: &Locks) {
    let hour = Duration::from_secs(3600);
    for (on_crash, key) in [(OnCrash::Retry, "once:retry"), (OnCrash::Skip, "once:skip")] {
        let body = async |_| Ok::<_, ()>(1);
        let first = a.once(key, hour, on_crash).run(body).await;
        let promised =
            a.capabilities().keep && (a.capabilities().lease_records || on_crash == OnCrash::Retry);
        if !promised {
            assert!(matches!(first, Err(RunError::Lock(e)) if e.kind() == ErrorKind::Unsupported));
            continue;
        }
        assert_eq!(first.unwrap(), Ran::Now(1));
        let second = b.once(key, hour, on_crash).run(body).await.unwrap();
        assert!(matches!(second, Ran::Already { .. }), "{on_crash:?}: {second:?}");
    }
}

#[tokio::test]
async fn memory() {
    // One engine per process: both clients share it.
    use_it("memory:").await;
}

#[tokio::test]
async fn file() {
    let dir = tempfile::tempdir().unwrap();
    use_it(&format!("file://{}/locks?share=user", dir.path().display())).await;
}

#[tokio::test]
async fn redis() {
    on_one(Engine::Redis).await;
}

#[tokio::test]
async fn etcd() {
    on_one(Engine::Etcd).await;
}

#[tokio::test]
async fn zookeeper() {
    on_one(Engine::ZooKeeper).await;
}

#[tokio::test]
async fn postgres() {
    on_one(Engine::Postgres).await;
}

#[tokio::test]
async fn mariadb() {
    on_one(Engine::MariaDb).await;
}

async fn on_one(engine: Engine) {
    if let Some(deployment) = engine.start().await {
        use_it(&deployment.url).await;
    }
}

#[tokio::test]
async fn redis_cluster() {
    use distlock_testkit::servers::{RedisCluster, or_skip};
    let Some(cluster) = or_skip(RedisCluster::start().await) else {
        return;
    };
    use_it(&cluster.url()).await;
}

#[cfg(feature = "redis")]
#[tokio::test]
async fn redis_cluster_with_tls() {
    use distlock_testkit::servers::{RedisCluster, or_skip};
    let Some(cluster) = or_skip(RedisCluster::start_tls().await) else {
        return;
    };
    let url = cluster.tls_url().unwrap();
    let ca = cluster.nodes()[0].certificates().unwrap().ca();
    let locks = Locks::connect(&format!("{url}?ca={}", ca.display()))
        .await
        .unwrap();
    let other = Locks::connect(&format!("{url}?ca={}", ca.display()))
        .await
        .unwrap();
    for n in 0..20 {
        // On all masters, and woken.
        let key = format!("k{n}");
        let held = locks.mutex(&*key).acquire().await.unwrap();
        let waiter = other.mutex(&*key).wait(Duration::from_secs(10));
        let (next, released) = tokio::join!(waiter.acquire(), held.release());
        assert_eq!(released.unwrap(), Release::Clean);
        assert_eq!(next.unwrap().release().await.unwrap(), Release::Clean);
    }
    // Without the right root certificate it is refused.
    assert!(Locks::connect(&url).await.is_err());
}

/// A majority has no line, no semaphores and no readers: what it has is used here.
#[tokio::test]
async fn redlock() {
    use distlock_testkit::servers::{Redis, eventually, or_skip};
    let Some(nodes) = or_skip(Redis::several(5, &Redis::options()).await) else {
        return;
    };
    let hosts: Vec<String> = nodes.iter().map(Redis::address).collect();
    let url = format!("redlock://{}", hosts.join(","));
    // A busy machine may need longer than 50 ms.
    let strict = format!("{url}?node_timeout=1s&restart_guard=strict");
    let (a, b) = (
        Locks::connect(&strict).await.unwrap(),
        Locks::connect(&strict).await.unwrap(),
    );
    assert_eq!(a.url(), Some(&*url));
    table::check(a.capabilities());
    let e = a.mutex("k").try_acquire().await.unwrap_err();
    assert_eq!(e.kind(), ErrorKind::NoQuorum);
    assert!(e.to_string().contains("no vote for another"), "{e}");
    assert_eq!(distlock::vouch(&url).await.unwrap(), hosts);
    let wait = Duration::from_secs(10);
    let held = a.mutex("k").wait(wait).acquire().await.unwrap();
    assert!(b.mutex("k").try_acquire().await.unwrap().is_none());
    // The first look may come before the token has reached the nodes that were not needed for the grant.
    let same = eventually(wait, async || {
        let holder = b.inspect("k").await.unwrap().holders.remove(0);
        (holder.token == held.token()).then_some(())
    });
    same.await.expect("the holder's token is not shown");
    let waiter = tokio::spawn(async move { b.mutex("k").wait(wait).acquire().await.unwrap() });
    let first = held.token();
    assert_eq!(held.release().await.unwrap(), Release::Clean);
    let next = waiter.await.unwrap();
    assert!(next.token() > first);
    assert_eq!(next.release().await.unwrap(), Release::Clean);
    let found = a.doctor().await.unwrap();
    assert!(found.iter().any(|f| f.id == "redlock-same-host"), "{found:?}");
    for url in [
        "redlock://a,b",
        "redlock://a,b,c?layout=redisson",
        "redlock://a,b,a:6379",
    ] {
        let e = Locks::connect(url).await.unwrap_err();
        assert_eq!(e.kind(), ErrorKind::InvalidConfig, "{url}: {e}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn http() {
    use distlock::{Client, memory::Memory};
    use distlock_server::{Config, Listener, Server};
    let memory = Memory::new();
    let config = Config::new(std::sync::Arc::new(move |namespace| {
        let made = Client::builder().namespace(namespace.as_str()).memory(&memory);
        Box::pin(std::future::ready(made))
    }));
    let listener = Listener::tcp("127.0.0.1:0".parse().unwrap(), None).await.unwrap();
    let url = listener.url();
    let server = Server::start(config, vec![listener]).unwrap();
    use_it(&url).await;
    assert!(server.shutdown(Duration::from_secs(10)).await);
}
