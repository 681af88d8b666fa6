//! Renewal, and how a holder learns that its lock was taken away.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use distlock_core::FencingToken;
use distlock_core::driver::{Break, Hold, LostReason, Mode, Order, Renewal, Want};
use distlock_redis::{Layout, ValueFormat};
use distlock_testkit::servers::{Redis, Resp};

use crate::common::{MS, Peer, config, int, is_held, renew, token, until};

#[tokio::test]
async fn f26_renewal_extends_what_is_held_and_never_acquires() {
    let redis = redis!();
    let peer = Peer::new(config(&redis.address())).await;
    for mode in [Mode::Mutex, Mode::Write, Mode::Read, Mode::Slot { of: 3 }] {
        let key = format!("renew:{mode:?}").replace(['{', '}', ' '], "");
        let want = Arc::new(Want {
            mode,
            ..peer.want(&key)
        });
        assert!(
            matches!(renew(&peer, &want, None).await, Renewal::Lost(LostReason::Taken)),
            "{mode:?}"
        );
        let mut claim = peer.driver.claim(want.clone()).unwrap();
        assert!(is_held(&claim.try_acquire().await.unwrap()));
        let longer = Arc::new(Want {
            ttl: Duration::from_secs(60),
            owner: want.owner,
            mode,
            ..peer.want(&key)
        });
        assert!(
            matches!(renew(&peer, &longer, None).await, Renewal::Good(_)),
            "{mode:?}"
        );
        let record = format!("distlock:{key}");
        assert!(int(&redis, &["PTTL", &record]).await > 50_000, "{mode:?}");
        claim.release(None).await.unwrap();
        assert!(
            matches!(renew(&peer, &longer, None).await, Renewal::Lost(_)),
            "{mode:?}"
        );
    }
}

#[tokio::test]
async fn f23_a_renewal_never_prolongs_a_strangers_lock() {
    let redis = redis!();
    let peer = Peer::new(config(&redis.address())).await;
    for mode in [Mode::Mutex, Mode::Write, Mode::Slot { of: 1 }] {
        let key = format!("stranger:{mode:?}").replace(['{', '}', ' '], "");
        let of = || {
            Arc::new(Want {
                mode,
                ttl: Duration::from_secs(60),
                ..peer.want(&key)
            })
        };
        let held = Arc::new(Want {
            mode,
            ..peer.want(&key)
        });
        let mut claim = peer.driver.claim(held).unwrap();
        assert!(is_held(&claim.try_acquire().await.unwrap()));
        assert!(
            matches!(renew(&peer, &of(), None).await, Renewal::Lost(_)),
            "{mode:?}"
        );
        let end = match mode {
            Mode::Slot { .. } => {
                let ends = [
                    "ZRANGE",
                    &format!("{{distlock:{key}}}:timeout"),
                    "0",
                    "0",
                    "WITHSCORES",
                ];
                let end = redis.command(&ends).await.unwrap();
                let now = redis.command(&["TIME"]).await.unwrap();
                let number =
                    |of: &Resp, at: usize| -> i64 { of.items()[at].text().unwrap().parse().unwrap() };
                number(&end, 1) - number(&now, 0) * 1000
            }
            _ => int(&redis, &["PTTL", &format!("distlock:{key}")]).await,
        };
        assert!((1..=6000).contains(&end), "{mode:?}: {end}");
        claim.release(None).await.unwrap();
    }
}

#[tokio::test]
async fn a_quorums_floor_raises_the_stored_token() {
    let redis = redis!();
    let peer = Peer::new(config(&redis.address())).await;
    let want = Arc::new(peer.want("floor"));
    let mut claim = peer.driver.claim(want.clone()).unwrap();
    let granted = token(&claim.try_acquire().await.unwrap()).unwrap();
    let floor = FencingToken::new(granted.get() + 3_600_000_000);
    assert!(matches!(renew(&peer, &want, Some(floor)).await, Renewal::Good(_)));
    claim.release(None).await.unwrap();
    let mut next = peer.driver.claim(Arc::new(peer.want("floor"))).unwrap();
    assert_eq!(
        token(&next.try_acquire().await.unwrap()),
        Some(FencingToken::new(floor.get() + 1))
    );
}

#[tokio::test]
async fn a_lock_that_is_taken_away_is_told_within_a_second() {
    let redis = redis!();
    let peer = Peer::new(config(&redis.address())).await;
    let mut string = config(&redis.address());
    string.layout = Layout::String {
        prefix: String::new(),
        value: ValueFormat::Owner,
    };
    let plain = Peer::new(string).await;
    for (peer, key, away) in [
        (&peer, "del", &["DEL", "distlock:del"][..]),
        (&peer, "evict", &["UNLINK", "distlock:evict"]),
        (&peer, "forced", &["HSET", "distlock:forced", "f", "1"]),
        (&plain, "plain", &["SET", "distlock:plain", "other"]),
        (&peer, "flush", &["FLUSHALL"]),
    ] {
        let want = Arc::new(peer.want(key));
        let mut claim = peer.driver.claim(want.clone()).unwrap();
        assert!(is_held(&claim.try_acquire().await.unwrap()));
        // Renewed once, as the keeper does: the notice must survive our own writes.
        assert!(matches!(renew(peer, &want, None).await, Renewal::Good(_)));
        want.bell.take();
        // Past the first check of the hub, which rings everybody once when it connects.
        let _ = tokio::time::timeout(700 * MS, want.bell.rung()).await;
        assert!(matches!(renew(peer, &want, None).await, Renewal::Good(_)));
        want.bell.take();
        if key == "forced" {
            redis
                .command(&["HDEL", "distlock:forced", &want.owner.to_string()])
                .await
                .unwrap();
        }
        redis.command(away).await.unwrap();
        let told = tokio::time::timeout(Duration::from_secs(1), want.bell.rung()).await;
        assert!(told.is_ok(), "{key}: not told");
        assert!(
            matches!(renew(peer, &want, None).await, Renewal::Lost(LostReason::Taken)),
            "{key}"
        );
    }
}

#[tokio::test]
async fn a_break_is_told_at_once_with_its_reason_for_every_kind() {
    let redis = redis!();
    let (a, b) = (
        Peer::new(config(&redis.address())).await,
        Peer::new(config(&redis.address())).await,
    );
    for (mode, order) in [
        (Mode::Mutex, Order::Any),
        (Mode::Mutex, Order::Fifo),
        (Mode::Read, Order::Any),
        (Mode::Write, Order::Any),
        (Mode::Slot { of: 2 }, Order::Any),
    ] {
        let key = format!("broken:{mode:?}:{order:?}").replace(['{', '}', ' '], "");
        let want = Arc::new(Want {
            mode,
            order,
            ..a.want(&key)
        });
        let mut claim = a.driver.claim(want.clone()).unwrap();
        assert!(is_held(&claim.try_acquire().await.unwrap()));
        let _ = tokio::time::timeout(700 * MS, want.bell.rung()).await;
        want.bell.take();
        let how = Break {
            reason: Some("deploy".into()),
            ..Break::default()
        };
        let told = b
            .driver
            .inspect()
            .unwrap()
            .break_lock(&want.key, &how)
            .await
            .unwrap();
        assert_eq!(told.len(), 1, "{mode:?}: {told:?}");
        let rung = tokio::time::timeout(Duration::from_secs(1), want.bell.rung()).await;
        assert!(rung.is_ok(), "{mode:?}: not told");
        let said = renew(&a, &want, None).await;
        assert!(
            matches!(&said, Renewal::Lost(LostReason::Broken { reason: Some(why) }) if why == "deploy"),
            "{mode:?}: {said:?}"
        );
    }
}

/// CPU time of the server, in seconds.
async fn cpu(redis: &Redis) -> f64 {
    let info = redis.command(&["INFO", "cpu"]).await.unwrap();
    let text = info.text().unwrap();
    let seconds = |name: &str| -> f64 {
        let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.trim_start_matches(':').trim().parse().unwrap()
    };
    seconds("used_cpu_user:") + seconds("used_cpu_sys:")
}

/// A server that tells of changes may note, for every read of a script, all keys of the script.
#[tokio::test]
async fn many_renewals_in_one_script_cost_the_server_no_more_than_few() {
    let redis = redis!();
    let peer = Peer::new(config(&redis.address())).await;
    let mut holds = Vec::new();
    let mut claims = Vec::new();
    for n in 0..256 {
        let want = Arc::new(Want {
            ttl: Duration::from_secs(60),
            ..peer.want(&format!("many:{n}"))
        });
        let mut claim = peer.driver.claim(want.clone()).unwrap();
        assert!(is_held(&claim.try_acquire().await.unwrap()));
        claims.push(claim);
        holds.push(Hold {
            ttl: want.ttl,
            want,
            mark: 0,
            floor: None,
        });
    }
    let good = AtomicUsize::new(0);
    let answer = |_, renewal| {
        good.fetch_add(
            usize::from(matches!(renewal, Renewal::Good(_))),
            Ordering::Relaxed,
        );
    };
    // The connection that is told of changes is the one that renews, once it is up.
    until("the keys to be tracked", async || {
        peer.driver.renew(&holds, &answer).await;
        redis.info("tracking_total_keys").await.unwrap().as_deref() == Some("256")
    })
    .await;
    good.store(0, Ordering::Relaxed);
    let mut spent = Vec::new();
    for size in [8, 256] {
        let before = cpu(&redis).await;
        for _ in 0..40 {
            for batch in holds.chunks(size) {
                peer.driver.renew(batch, &answer).await;
            }
        }
        spent.push(cpu(&redis).await - before);
    }
    assert_eq!(good.load(Ordering::Relaxed), 2 * 40 * 256);
    assert!(
        spent[1] < 1.5 * spent[0],
        "seconds for few, and for many: {spent:?}"
    );
}
