//! What is stored, and what other products store under the same names.

use std::sync::Arc;

use distlock_core::driver::{DriverErrorKind, Mode, Order, Refusal, Released, Renewal, Standing, Want};

use crate::common::{MS, Peer, config, int, is_held, keys, renew, token, until};

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
