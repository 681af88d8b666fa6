//! Who is woken, and in which order.

use std::sync::Arc;
use std::time::Duration;

use distlock_core::driver::{Line, Mode, Order, Released, Standing, Want};
use distlock_redis::{Layout, ValueFormat};

use crate::common::{MS, Peer, client, config, is_held, keys};

#[tokio::test]
async fn a_release_rings_the_waiter_of_every_kind() {
    let redis = redis!();
    let (a, b) = (
        Peer::new(config(&redis.address())).await,
        Peer::new(config(&redis.address())).await,
    );
    let mut string = config(&redis.address());
    string.layout = Layout::String {
        prefix: "s:".into(),
        value: ValueFormat::Hex,
    };
    let (c, d) = (Peer::new(string.clone()).await, Peer::new(string).await);
    for (holder, waiter, have, wants, order) in [
        (&a, &b, Mode::Mutex, Mode::Mutex, Order::Any),
        (&a, &b, Mode::Mutex, Mode::Mutex, Order::Fifo),
        (&a, &b, Mode::Write, Mode::Read, Order::Any),
        (&a, &b, Mode::Read, Mode::Write, Order::Any),
        (&a, &b, Mode::Slot { of: 1 }, Mode::Slot { of: 1 }, Order::Any),
        (&c, &d, Mode::Mutex, Mode::Mutex, Order::Any),
    ] {
        let key = format!("wake:{have:?}:{order:?}").replace(['{', '}', ' '], "");
        let mut held = holder
            .driver
            .claim(Arc::new(Want {
                mode: have,
                order,
                ..holder.want(&key)
            }))
            .unwrap();
        assert!(is_held(&held.try_acquire().await.unwrap()));
        let want = Arc::new(Want {
            mode: wants,
            order,
            ..waiter.want(&key)
        });
        let mut waits = waiter.driver.claim(want.clone()).unwrap();
        let Standing::Waiting {
            recheck,
            holder: seen,
            ..
        } = waits.try_acquire().await.unwrap()
        else {
            panic!("{have:?} {order:?}: two hold");
        };
        assert!(
            recheck > 500 * MS,
            "{have:?} {order:?}: the waiter is not subscribed: {recheck:?}"
        );
        if let Some(seen) = seen {
            assert!(!seen.here);
        }
        want.bell.take();
        assert_eq!(held.release(None).await.unwrap(), Released::Freed);
        let rung = tokio::time::timeout(Duration::from_secs(2), want.bell.rung()).await;
        assert!(rung.is_ok(), "{have:?} {order:?}: no ring");
        assert!(is_held(&waits.try_acquire().await.unwrap()), "{have:?} {order:?}");
        waits.release(None).await.unwrap();
    }
}

#[tokio::test]
async fn fifo_is_first_come_first_served_and_nobody_passes() {
    let redis = redis!();
    let peer = Peer::new(config(&redis.address())).await;
    let fifo = || {
        Arc::new(Want {
            order: Order::Fifo,
            ..peer.want("q")
        })
    };
    let mut holder = peer.driver.claim(fifo()).unwrap();
    assert!(is_held(&holder.try_acquire().await.unwrap()));
    let mut line = Vec::new();
    for place in 0..3 {
        let want = fifo();
        let mut claim = peer.driver.claim(want.clone()).unwrap();
        let Standing::Waiting { ahead, .. } = claim.try_acquire().await.unwrap() else {
            panic!("two hold")
        };
        assert_eq!(ahead, Some(place));
        line.push((want, claim));
    }
    // The second one gives up.
    let (_, mut second) = line.remove(1);
    assert_eq!(second.release(None).await.unwrap(), Released::NotHeld);
    line.iter().for_each(|(want, _)| {
        want.bell.take();
    });
    holder.release(None).await.unwrap();
    // Free, but in line: neither a try nor an unordered contender gets in.
    let mut tries = peer
        .driver
        .claim(Arc::new(Want {
            line: Line::Never,
            ..peer.want("q")
        }))
        .unwrap();
    assert!(!is_held(&tries.try_acquire().await.unwrap()));
    let mut late = peer
        .driver
        .claim(Arc::new(Want {
            order: Order::Fifo,
            line: Line::Never,
            ..peer.want("q")
        }))
        .unwrap();
    assert!(!is_held(&late.try_acquire().await.unwrap()));
    assert!(!is_held(&line[1].1.try_acquire().await.unwrap()));
    tokio::time::timeout(Duration::from_secs(2), line[0].0.bell.rung())
        .await
        .unwrap();
    assert!(is_held(&line[0].1.try_acquire().await.unwrap()));
    line[0].1.release(None).await.unwrap();
    tokio::time::timeout(Duration::from_secs(2), line[1].0.bell.rung())
        .await
        .unwrap();
    assert!(is_held(&line[1].1.try_acquire().await.unwrap()));
    line[1].1.release(None).await.unwrap();
    assert_eq!(keys(&redis, "*").await, ["{distlock:q}:distlock"]);
}

#[tokio::test]
async fn f43_dead_waiters_at_the_head_are_passed_in_bounded_time() {
    let redis = redis!();
    let peer = Peer::new(config(&redis.address())).await;
    let dead = Peer::new(config(&redis.address())).await;
    let fifo = |p: &Peer| {
        Arc::new(Want {
            order: Order::Fifo,
            ttl: 500 * MS,
            ..p.want("dead")
        })
    };
    let mut holder = dead.driver.claim(fifo(&dead)).unwrap();
    assert!(is_held(&holder.try_acquire().await.unwrap()));
    let mut gone = Vec::new();
    for _ in 0..19 {
        let mut claim = dead.driver.claim(fifo(&dead)).unwrap();
        assert!(!is_held(&claim.try_acquire().await.unwrap()));
        gone.push(claim);
    }
    let mut last = peer.driver.claim(fifo(&peer)).unwrap();
    let start = tokio::time::Instant::now();
    loop {
        let Standing::Waiting { recheck, .. } = last.try_acquire().await.unwrap() else {
            break;
        };
        assert!(
            start.elapsed() < Duration::from_secs(16),
            "still waiting behind the dead"
        );
        tokio::time::sleep(recheck.min(Duration::from_secs(1))).await;
    }
}

#[tokio::test]
async fn f44_waiters_that_come_back_do_not_push_the_queues_deadlines() {
    let redis = redis!();
    let peer = Peer::new(config(&redis.address())).await;
    let fifo = || {
        Arc::new(Want {
            order: Order::Fifo,
            ..peer.want("again")
        })
    };
    let mut holder = peer.driver.claim(fifo()).unwrap();
    assert!(is_held(&holder.try_acquire().await.unwrap()));
    let mut first = peer.driver.claim(fifo()).unwrap();
    assert!(!is_held(&first.try_acquire().await.unwrap()));
    for _ in 0..30 {
        let mut waiter = peer.driver.claim(fifo()).unwrap();
        assert!(!is_held(&waiter.try_acquire().await.unwrap()));
        waiter.release(None).await.unwrap();
    }
    let last = fifo();
    let mut waiter = peer.driver.claim(last.clone()).unwrap();
    assert!(!is_held(&waiter.try_acquire().await.unwrap()));
    let score = [
        "ZSCORE",
        "redisson_lock_timeout:{distlock:again}",
        &last.owner.to_string(),
    ];
    let score = redis.command(&score).await.unwrap();
    let now = redis.command(&["TIME"]).await.unwrap();
    let now: f64 = now.items()[0].text().unwrap().parse().unwrap();
    let left = score.text().unwrap().parse::<f64>().unwrap() / 1000.0 - now;
    // Redisson's five minutes for each of the two in the queue, and the holder's lease.
    assert!(left < 2.0 * 300.0 + 10.0, "{left} s");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f106_waiters_hardly_ask() {
    let redis = redis!();
    let locks = client(config(&redis.address())).await;
    let guard = locks
        .mutex("busy")
        .ttl(Duration::from_secs(60))
        .acquire()
        .await
        .unwrap();
    let others = [
        client(config(&redis.address())).await,
        client(config(&redis.address())).await,
    ];
    let waiters: Vec<_> = (0..300)
        .map(|n| {
            let locks = others[n % 2].clone();
            tokio::spawn(async move { locks.mutex("busy").acquire().await?.release().await })
        })
        .collect();
    let asked = async || {
        let stats = redis.command(&["INFO", "commandstats"]).await.unwrap();
        let line = stats
            .text()
            .unwrap()
            .lines()
            .find(|l| l.starts_with("cmdstat_evalsha:"));
        let calls = line.and_then(|l| l.split(['=', ',']).nth(1)?.parse::<u32>().ok());
        calls.unwrap_or(0)
    };
    let before = asked().await;
    // One more, for three seconds.
    let waited = locks.mutex("busy").wait(Duration::from_secs(3)).acquire().await;
    assert_eq!(waited.unwrap_err().kind(), distlock_core::ErrorKind::Timeout);
    // Each client's only contender looks, listens, and looks again; now and then a count is checked for its hold.
    let calls = asked().await - before;
    assert!(calls <= 20, "{calls} scripts for 300 waiters in 3 s");
    guard.release().await.unwrap();
    for waiter in waiters {
        assert!(waiter.await.unwrap().is_ok());
    }
}
