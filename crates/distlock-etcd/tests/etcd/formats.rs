//! What is in the store, and what the gate and the doctor say.

use distlock_core::driver::{Break, Kind, LostReason};
use distlock_core::{Client, ErrorKind, FencingToken};
use distlock_etcd::{Config, EtcdGate, GuardTxn, Txn, Writes};
use distlock_fence::{FenceError, FenceGate};
use futures_util::future::join_all;

use crate::cluster::{MS, SECS, client, config, ctl, etcd, keys, until};

async fn shut(client: Client) {
    assert!(client.shutdown(SECS(5)).await);
}

#[tokio::test]
async fn a_hold_is_one_key_on_a_lease_and_leaves_nothing() {
    let etcd = etcd!(1);
    let at = &etcd.addresses()[0];
    let locks = client(config(&etcd), "ns").await;
    let first = locks.mutex("order:1/a").acquire().await.unwrap();
    let stored = keys(at, "").await;
    assert_eq!(stored.len(), 1, "{stored:?}");
    let place = stored[0].strip_prefix("ns:order:1%2Fa/").unwrap();
    let (lease, n) = place.split_once('.').unwrap();
    assert_eq!(n, "0");
    assert!(ctl(at, &["lease", "list"]).await.contains(lease));
    let token = first.token().unwrap();
    let revision = ctl(at, &["get", &stored[0], "-w", "json"]).await;
    assert!(
        revision.contains(&format!("\"create_revision\":{token}")),
        "{revision}"
    );
    first.release().await.unwrap();
    assert!(keys(at, "").await.is_empty());
    let second = locks.mutex("order:1/a").acquire().await.unwrap();
    assert!(second.token().unwrap() > token);
    // Names are used again: the store remembers deleted ones until it is compacted, and walks over them.
    assert_eq!(keys(at, "").await, stored);
    drop(second);
    until("a dropped guard's key is gone", async || {
        keys(at, "").await.is_empty()
    })
    .await;
    shut(locks).await;
    assert!(
        !ctl(at, &["lease", "list"]).await.contains(lease),
        "the lease is left"
    );
}

#[tokio::test]
async fn f32_a_wait_that_timed_out_leaves_no_key() {
    let etcd = etcd!(1);
    let at = &etcd.addresses()[0];
    let (a, b) = (
        client(config(&etcd), "ns").await,
        client(config(&etcd), "ns").await,
    );
    let held = a.mutex("k").acquire().await.unwrap();
    for _ in 0..20 {
        let e = b
            .mutex("k")
            .wait(std::time::Duration::from_millis(20))
            .acquire()
            .await
            .unwrap_err();
        // On a busy machine the wait may be over before the first answer.
        assert!(
            matches!(e.kind(), ErrorKind::Timeout | ErrorKind::OutcomeUnknown),
            "{e}"
        );
        assert!(b.mutex("k").try_acquire().await.unwrap().is_none());
    }
    for _ in 0..3 {
        let interrupted = tokio::spawn(b.mutex("k").acquire());
        until("it waits", async || keys(at, "ns:k/").await.len() == 2).await;
        interrupted.abort();
        until("only the holder's key is there", async || {
            keys(at, "ns:k/").await.len() == 1
        })
        .await;
    }
    held.release().await.unwrap();
    assert!(b.mutex("k").try_acquire().await.unwrap().is_some());
}

#[tokio::test]
async fn f65_a_lease_is_as_long_as_asked() {
    let etcd = etcd!(1);
    let at = &etcd.addresses()[0];
    let locks = client(config(&etcd), "ns").await;
    for (ttl, granted) in [
        (MS(1_500), 2),
        (SECS(4_000), 4_000),
        (SECS(366 * 86_400), 366 * 86_400),
    ] {
        let held = locks.mutex("k").ttl(ttl).acquire().await.unwrap();
        let key = keys(at, "ns:k/").await.remove(0);
        let lease = key
            .strip_prefix("ns:k/")
            .unwrap()
            .split_once('.')
            .unwrap()
            .0
            .to_owned();
        let said = ctl(at, &["lease", "timetolive", &lease]).await;
        assert!(
            said.contains(&format!("granted with TTL({granted}s)")),
            "{ttl:?}: {said}"
        );
        held.release().await.unwrap();
    }
}

#[tokio::test]
async fn a_waiter_has_the_token_of_its_grant_and_not_of_its_arrival() {
    let etcd = etcd!(1);
    let (a, b, c) = (
        client(config(&etcd), "n").await,
        client(config(&etcd), "n").await,
        client(config(&etcd), "n").await,
    );
    let held = a.mutex("k").acquire().await.unwrap();
    let waiting = tokio::spawn(b.mutex("k").acquire());
    until("it waits", async || {
        c.inspect("k").await.unwrap().waiters.len() == 1
    })
    .await;
    let later = c.mutex("other").acquire().await.unwrap();
    held.release().await.unwrap();
    let granted = waiting.await.unwrap().unwrap();
    assert!(granted.token() > later.token());
    // At once: the break waits until the token is in the key.
    let broken = c
        .break_lock(
            "k",
            Break {
                expect: granted.token(),
                ..Break::default()
            },
        )
        .await
        .unwrap();
    assert_eq!(broken.len(), 1);
    until("the holder is told", async || !granted.is_held()).await;
    // The same for people who look, and a token that is not the holder's is refused.
    let held = a.mutex("k").acquire().await.unwrap();
    let stale = held.token();
    let waiting = tokio::spawn(b.mutex("k").acquire());
    until("it waits", async || {
        c.inspect("k").await.unwrap().waiters.len() == 1
    })
    .await;
    held.release().await.unwrap();
    let granted = waiting.await.unwrap().unwrap();
    assert_eq!(c.inspect("k").await.unwrap().token, granted.token());
    let how = Break {
        expect: stale,
        ..Break::default()
    };
    assert_eq!(
        c.break_lock("k", how).await.unwrap_err().kind(),
        ErrorKind::NotHeld
    );
}

#[tokio::test]
async fn a_broken_holder_is_told_the_reason_within_a_second() {
    let etcd = etcd!(1);
    let (a, b) = (client(config(&etcd), "n").await, client(config(&etcd), "n").await);
    let held = a.mutex("k").acquire().await.unwrap();
    // Old enough to be watched.
    until("it is watched", async || {
        held.valid_for() < SECS(3) - std::time::Duration::from_millis(500)
    })
    .await;
    let how = Break {
        reason: Some("maintenance".into()),
        ..Break::default()
    };
    b.break_lock("k", how).await.unwrap();
    let told = tokio::time::timeout(SECS(1), held.lost())
        .await
        .expect("told within a second");
    assert_eq!(
        told,
        LostReason::Broken {
            reason: Some("maintenance".into())
        }
    );
}

#[tokio::test]
async fn a_transaction_is_applied_only_while_the_lock_is_held() {
    let etcd = etcd!(1);
    let at = &etcd.addresses()[0];
    let locks = client(config(&etcd), "ns").await;
    let held = locks.mutex("k").acquire().await.unwrap();
    let applied = held.txn().unwrap().put("data", "1").commit().await.unwrap();
    assert!(applied.revision as u64 > held.token().unwrap().get());
    let late = Txn::of(held.owner()).unwrap().put("data", "2");
    ctl(at, &["del", "--prefix", "ns:k/"]).await;
    assert_eq!(late.commit().await.unwrap_err().kind(), ErrorKind::NotHeld);
    assert!(ctl(at, &["get", "data"]).await.contains("\n1\n"));
    drop(held);
    until("it is not held", async || locks.held() == 0).await;
}

#[tokio::test]
async fn exact_names_that_nest_are_diagnosed() {
    let etcd = etcd!(1);
    let locks = client(config(&etcd), "").await;
    let inner = locks.mutex("a/b").acquire().await.unwrap();
    for e in [
        locks.mutex("a").wait(SECS(5)).acquire().await.unwrap_err(),
        locks.mutex("a").try_acquire().await.unwrap_err(),
    ] {
        assert_eq!(e.kind(), ErrorKind::InvalidKey, "{e}");
        assert!(e.to_string().contains("a/b/"), "{e}");
    }
    inner.release().await.unwrap();
    locks.mutex("a").acquire().await.unwrap().release().await.unwrap();
    let e = locks.mutex("distlock.session").acquire().await.unwrap_err();
    assert_eq!(e.kind(), ErrorKind::InvalidKey);
}

#[tokio::test]
async fn the_doctor_knows_old_versions_and_the_least_ttl() {
    let mut etcd = etcd!(1);
    // The second is an endpoint at which nobody listens.
    let locks = client(
        Config::new([etcd.addresses()[0].clone(), "127.0.0.1:9".into()]),
        "ns",
    )
    .await;
    let found = locks.doctor().await.unwrap();
    let ids: Vec<_> = found.iter().map(|f| &*f.id).collect();
    assert!(ids.contains(&"etcd-one-member"), "{found:?}");
    assert!(ids.contains(&"etcd-endpoint-down"), "{found:?}");
    if ctl(&etcd.addresses()[0], &["endpoint", "status"])
        .await
        .contains("3.4.23")
    {
        assert!(ids.contains(&"etcd-version"), "{found:?}");
    }
    assert_eq!(locks.inspect("k").await.unwrap().kind, None::<Kind>);
    etcd.member(0).kill9().unwrap();
    assert!(locks.doctor().await.is_err());
}

#[tokio::test]
async fn a_gate_refuses_old_tokens_and_writes_nothing_of_theirs() {
    let etcd = etcd!(1);
    let at = &etcd.addresses()[0];
    let gate = EtcdGate::connect(&config(&etcd), "fence/").await.unwrap();
    let pass = async |token, data: &str| {
        let writes = Writes::new().put("data", data).delete("pending");
        gate.pass("a", FencingToken::new(token), writes).await
    };
    let data = async || {
        ctl(at, &["get", "data", "--print-value-only"])
            .await
            .trim()
            .to_owned()
    };
    ctl(at, &["put", "pending", "x"]).await;
    pass(5, "first").await.unwrap();
    assert_eq!(ctl(at, &["get", "pending"]).await.trim(), "");
    pass(60, "second").await.unwrap();
    let e = pass(5, "stale").await.unwrap_err();
    assert!(
        matches!(e, FenceError::Stale { newest, .. } if newest == FencingToken::new(60)),
        "{e}"
    );
    assert_eq!(data().await, "second");
    // A holder writes often.
    pass(60, "third").await.unwrap();
    // Whoever comes in between, the latest holder's write stays.
    let race = (100..104).map(|token| {
        let pass = &pass;
        async move { drop(pass(token, &token.to_string()).await) }
    });
    join_all(race).await;
    assert_eq!(data().await, "103");
    let e = gate
        .pass("", FencingToken::new(1), Writes::new())
        .await
        .unwrap_err();
    assert!(matches!(e, FenceError::InvalidResource { .. }), "{e}");
    ctl(at, &["put", "fence/a", "x"]).await;
    let e = pass(u64::MAX, "unjudged").await.unwrap_err();
    assert!(matches!(e, FenceError::Damaged { .. }), "{e}");
    assert_eq!(data().await, "103");
}
