//! The engine port on a standalone server: formats, idempotence, wake-ups, notices.
#![allow(clippy::unwrap_used, missing_docs)]

mod common;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::{MS, Peer, config, int, is_held, keys, token, until};
use distlock_core::FencingToken;
use distlock_core::driver::{
    Break, DriverErrorKind, Hold, Line, LostReason, Mode, Order, Refusal, Released, Renewal, Standing, Want,
};
use distlock_redis::{Layout, ValueFormat};
use distlock_testkit::servers::{Redis, Resp, or_skip};

macro_rules! redis {
    () => {
        match or_skip(Redis::start().await) {
            Some(redis) => redis,
            None => return,
        }
    };
}

async fn renew(peer: &Peer, want: &Arc<Want>, floor: Option<FencingToken>) -> Renewal {
    let hold = Hold {
        want: want.clone(),
        mark: 0,
        ttl: want.ttl,
        floor,
    };
    let said = Mutex::new(None);
    let answer = |_, renewal| *said.lock().unwrap() = Some(renewal);
    peer.driver.renew(&[hold], &answer).await;
    said.into_inner().unwrap().unwrap()
}

#[tokio::test]
async fn a_mutex_is_redissons_hash_and_leaves_only_its_record() {
    let redis = redis!();
    let peer = Peer::new(config(&redis.address())).await;
    let want = Arc::new(peer.want("a"));
    let mut claim = peer.driver.claim(want.clone()).unwrap();
    let standing = claim.try_acquire().await.unwrap();
    let first = token(&standing).unwrap();
    let count = redis
        .command(&["HGET", "distlock:a", &want.owner.to_string()])
        .await
        .unwrap();
    assert_eq!(count.text(), Some("1"));
    assert!((4000..=5000).contains(&int(&redis, &["PTTL", "distlock:a"]).await));
    assert_eq!(claim.release(None).await.unwrap(), Released::Freed);
    assert_eq!(claim.release(None).await.unwrap(), Released::NotHeld);
    assert_eq!(keys(&redis, "*").await, ["{distlock:a}:distlock"]);
    let mut next = peer.driver.claim(Arc::new(peer.want("a"))).unwrap();
    assert!(token(&next.try_acquire().await.unwrap()).unwrap() > first);
}

#[tokio::test]
async fn asking_again_is_the_same_hold_and_the_same_token() {
    let redis = redis!();
    let peer = Peer::new(config(&redis.address())).await;
    for (mode, order) in [
        (Mode::Mutex, Order::Any),
        (Mode::Mutex, Order::Fifo),
        (Mode::Write, Order::Any),
        (Mode::Read, Order::Any),
        (Mode::Slot { of: 2 }, Order::Any),
    ] {
        let key = format!("again:{mode:?}:{order:?}").replace(['{', '}', ' '], "");
        let want = Arc::new(Want {
            mode,
            order,
            ..peer.want(&key)
        });
        // As after a reply that was lost: another claim of the same owner.
        let first = peer
            .driver
            .claim(want.clone())
            .unwrap()
            .try_acquire()
            .await
            .unwrap();
        let mut claim = peer.driver.claim(want.clone()).unwrap();
        let second = claim.try_acquire().await.unwrap();
        assert!(is_held(&first) && is_held(&second), "{mode:?}");
        assert_eq!(token(&first), token(&second), "{mode:?}");
        assert_eq!(token(&first).is_some(), mode.is_exclusive());
        assert_eq!(claim.release(None).await.unwrap(), Released::Freed, "{mode:?}");
        let mut other = peer
            .driver
            .claim(Arc::new(Want {
                mode,
                order,
                ..peer.want(&key)
            }))
            .unwrap();
        assert!(
            is_held(&other.try_acquire().await.unwrap()),
            "{mode:?}: one release was not enough"
        );
        assert!(matches!(
            other.try_acquire().await.unwrap_err().kind,
            DriverErrorKind::Closed
        ));
    }
}

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
async fn renewal_extends_what_is_held_and_never_acquires() {
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
async fn f104_what_is_not_a_lock_is_named_and_never_touched() {
    let redis = redis!();
    let peer = Peer::new(config(&redis.address())).await;
    for (name, make) in [
        ("s", &["SET", "distlock:s", "data"][..]),
        ("l", &["RPUSH", "distlock:l", "x"]),
        ("h", &["HSET", "distlock:h", "name", "Bob"]),
        ("z", &["ZADD", "distlock:z", "1", "x"]),
    ] {
        redis.command(make).await.unwrap();
        let before = redis
            .command(&["DUMP", &format!("distlock:{name}")])
            .await
            .unwrap();
        for (mode, order) in [
            (Mode::Mutex, Order::Any),
            (Mode::Mutex, Order::Fifo),
            (Mode::Read, Order::Any),
            (Mode::Write, Order::Any),
            (Mode::Slot { of: 2 }, Order::Any),
        ] {
            let mut claim = peer
                .driver
                .claim(Arc::new(Want {
                    mode,
                    order,
                    ..peer.want(name)
                }))
                .unwrap();
            let e = claim.try_acquire().await.unwrap_err();
            let mismatch = matches!(&e.kind, DriverErrorKind::Refused(Refusal::KindMismatch { .. }));
            assert!(mismatch && !e.retry, "{name} {mode:?}: {e}");
            assert_eq!(
                claim.release(None).await.unwrap(),
                Released::NotHeld,
                "{name} {mode:?}"
            );
        }
        let after = redis
            .command(&["DUMP", &format!("distlock:{name}")])
            .await
            .unwrap();
        assert_eq!(format!("{before:?}"), format!("{after:?}"), "{name}");
    }
}

#[tokio::test]
async fn kinds_do_not_mix_on_one_name() {
    let redis = redis!();
    let peer = Peer::new(config(&redis.address())).await;
    let kinds = [
        Mode::Mutex,
        Mode::Write,
        Mode::Read,
        Mode::Slot { of: 2 },
        Mode::Slot { of: 3 },
    ];
    for have in kinds {
        let key = format!("mix:{have:?}").replace(['{', '}', ' '], "");
        let mut held = peer
            .driver
            .claim(Arc::new(Want {
                mode: have,
                ..peer.want(&key)
            }))
            .unwrap();
        assert!(is_held(&held.try_acquire().await.unwrap()));
        for want in kinds.into_iter().filter(|k| k.kind() != have.kind()) {
            let mut other = peer
                .driver
                .claim(Arc::new(Want {
                    mode: want,
                    ..peer.want(&key)
                }))
                .unwrap();
            let e = other.try_acquire().await.unwrap_err();
            let mismatch = matches!(&e.kind, DriverErrorKind::Refused(Refusal::KindMismatch { .. }));
            assert!(mismatch, "{have:?} / {want:?}: {e}");
            if let (Mode::Slot { of: a }, Mode::Slot { of: b }) = (have, want) {
                assert!(
                    e.to_string().contains(&a.to_string()) && e.to_string().contains(&b.to_string()),
                    "{e}"
                );
            }
        }
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
async fn min_hold_leaves_an_ownerless_record() {
    let redis = redis!();
    let peer = Peer::new(config(&redis.address())).await;
    for (mode, rival) in [
        (Mode::Mutex, Mode::Mutex),
        (Mode::Write, Mode::Read),
        (Mode::Read, Mode::Write),
        (Mode::Slot { of: 1 }, Mode::Slot { of: 1 }),
    ] {
        let key = format!("keep:{mode:?}").replace(['{', '}', ' '], "");
        let want = Arc::new(Want {
            mode,
            ..peer.want(&key)
        });
        let mut claim = peer.driver.claim(want.clone()).unwrap();
        assert!(is_held(&claim.try_acquire().await.unwrap()));
        assert_eq!(claim.release(Some(400 * MS)).await.unwrap(), Released::Freed);
        assert_eq!(claim.release(None).await.unwrap(), Released::NotHeld, "{mode:?}");
        assert!(matches!(renew(&peer, &want, None).await, Renewal::Lost(_)));
        let mut other = peer
            .driver
            .claim(Arc::new(Want {
                mode: rival,
                ..peer.want(&key)
            }))
            .unwrap();
        let standing = other.try_acquire().await.unwrap();
        assert!(
            matches!(&standing, Standing::Waiting { recheck, .. } if *recheck <= 401 * MS),
            "{mode:?} {standing:?}"
        );
        until("the ownerless record to end", async || {
            is_held(&other.try_acquire().await.unwrap())
        })
        .await;
    }
}

#[tokio::test]
async fn redissons_fence_counter_is_shared() {
    let redis = redis!();
    let mut config = config(&redis.address());
    config.set("fenced", "redisson").unwrap();
    let peer = Peer::new(config).await;
    let future = 9_000_000_000_000_000_u64;
    redis
        .command(&["SET", "redisson_lock_token:{distlock:f}", &future.to_string()])
        .await
        .unwrap();
    for order in [Order::Any, Order::Fifo] {
        let mut claim = peer
            .driver
            .claim(Arc::new(Want {
                order,
                ..peer.want("f")
            }))
            .unwrap();
        let got = token(&claim.try_acquire().await.unwrap()).unwrap();
        assert!(got.get() > future);
        let stored = redis
            .command(&["GET", "redisson_lock_token:{distlock:f}"])
            .await
            .unwrap();
        assert_eq!(stored.text(), Some(got.to_string().as_str()));
        claim.release(None).await.unwrap();
    }
    assert_eq!(
        int(&redis, &["PTTL", "redisson_lock_token:{distlock:f}"]).await,
        -1
    );
}

#[tokio::test]
async fn f50_scripts_that_the_server_forgot_are_sent_again() {
    let redis = redis!();
    let peer = Peer::new(config(&redis.address())).await;
    let flush = async || {
        let said = redis.command(&["SCRIPT", "FLUSH"]).await.unwrap();
        assert!(!matches!(said, Resp::Error(_)));
    };
    for (mode, order) in [
        (Mode::Mutex, Order::Any),
        (Mode::Mutex, Order::Fifo),
        (Mode::Read, Order::Any),
        (Mode::Write, Order::Any),
        (Mode::Slot { of: 2 }, Order::Any),
    ] {
        let key = format!("flush:{mode:?}").replace(['{', '}', ' '], "");
        let want = Arc::new(Want {
            mode,
            order,
            ..peer.want(&key)
        });
        flush().await;
        let mut claim = peer.driver.claim(want.clone()).unwrap();
        assert!(is_held(&claim.try_acquire().await.unwrap()));
        flush().await;
        assert!(
            matches!(renew(&peer, &want, None).await, Renewal::Good(_)),
            "{mode:?}"
        );
        flush().await;
        assert_eq!(claim.release(None).await.unwrap(), Released::Freed, "{mode:?}");
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
