//! Other products on the same names, as they act on the server. The real ones are in `interop/`.

use std::time::Duration;

use crate::common::{client, config, int, until};
use distlock_redis::{Layout, ValueFormat};
use distlock_testkit::servers::{Redis, or_skip};
use tokio::time::Instant;

/// redis-py, redsync and their like publish nothing when they release.
#[tokio::test]
async fn a_release_that_nobody_tells_is_noticed_soon() {
    let Some(redis) = or_skip(Redis::start().await) else {
        return;
    };
    for (key, value) in [("a", ValueFormat::Owner), ("b", ValueFormat::Hex)] {
        let mut config = config(&redis.address());
        config.layout = Layout::String {
            prefix: String::new(),
            value,
        };
        let locks = client(config).await;
        // The record of a holder of ours must not be taken for the present holder's.
        locks.mutex(key).acquire().await.unwrap().release().await.unwrap();
        let stored = format!("distlock:{key}");
        let set = ["SET", &stored, "d41d8cd98f00b204", "NX", "PX", "30000"];
        redis.command(&set).await.unwrap();
        let lock = locks.mutex(key).wait(Duration::from_secs(20));
        let waiter = tokio::spawn(async move { lock.acquire().await });
        let channel = format!("distlock_channel:{{distlock:{key}}}");
        until("a waiter that listens", async || {
            let channels = redis.command(&["PUBSUB", "CHANNELS", &channel]).await;
            channels.unwrap().items().len() == 1
        })
        .await;
        redis.command(&["DEL", &stored]).await.unwrap();
        let released = Instant::now();
        waiter.await.unwrap().unwrap().release().await.unwrap();
        assert!(
            released.elapsed() < Duration::from_secs(2),
            "{value:?}: {:?}",
            released.elapsed()
        );
    }
}

/// A Java client that found our count when it came (`trySetPermits` said no) waits for it, and does not make it anew.
#[tokio::test]
async fn a_count_of_permits_outlives_its_last_permit_where_others_share_the_name() {
    let Some(redis) = or_skip(Redis::start().await) else {
        return;
    };
    let open = |engine| {
        let config = config(&redis.address());
        async move { distlock_redis::open(engine, config).await }
    };
    let shared = distlock_core::Client::builder()
        .namespace("")
        .build(open)
        .await
        .unwrap();
    let own = client(config(&redis.address())).await;
    for locks in [&shared, &own] {
        locks
            .semaphore("s", 1)
            .acquire()
            .await
            .unwrap()
            .release()
            .await
            .unwrap();
    }
    assert_eq!(int(&redis, &["EXISTS", "distlock:s"]).await, 0);
    let count = redis.command(&["GET", "s"]).await.unwrap();
    assert_eq!(count.text(), Some("1"));
    assert!(
        int(&redis, &["PTTL", "s"]).await > 80_000_000,
        "it has no end, or a near one"
    );
}
