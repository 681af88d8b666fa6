//! What is in the store.

use std::time::Duration;

use distlock_core::driver::{Mode, Standing};
use distlock_core::{ErrorKind, FencingToken, Namespace};
use distlock_fence::{FenceError, FenceGate};
use distlock_testkit::servers::{ZooKeeper, or_skip};
use distlock_zookeeper::{GuardMulti, MultiError, Writes, ZooKeeperGate};
use futures_util::FutureExt;
use futures_util::future::join_all;
use zookeeper_client as zk;

use crate::common::{MS, Peer, client, config, until};

const SESSION: Duration = Duration::from_secs(8);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_are_curators() {
    let Some(server) = or_skip(ZooKeeper::start(1).await) else {
        return;
    };
    let hosts = server.addresses();
    let a = Peer::in_namespace(config(&hosts, SESSION), Namespace::new("").unwrap()).await;
    let admin = zk::Client::connect(&hosts[0]).await.unwrap();
    let expected = [
        (Mode::Mutex, "/locks/m", "-lock-"),
        (Mode::Write, "/locks/w", "-__WRIT__"),
        (Mode::Read, "/locks/r", "-__READ__"),
        (Mode::Slot { of: 2 }, "/locks/s", "-lease-"),
    ];
    for (mode, key, label) in expected {
        let mut claim = a.driver.claim(a.want(key, mode)).unwrap();
        assert!(matches!(claim.try_acquire().await.unwrap(), Standing::Held(_)));
        let dir = if label == "-lease-" {
            format!("{key}/leases")
        } else {
            key.to_owned()
        };
        let nodes = admin.list_children(&dir).await.unwrap();
        let [node] = &nodes[..] else { panic!("{nodes:?}") };
        let (id, sequence) = node.strip_prefix("_c_").unwrap().split_once(label).unwrap();
        assert_eq!((id.len(), sequence), (36, "0000000000"), "{node}");
        let stat = admin.check_stat(&format!("{dir}/{node}")).await.unwrap().unwrap();
        assert_ne!(stat.ephemeral_owner, 0);
        claim.release(None).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f65_a_session_is_as_long_as_asked() {
    let Some(server) = or_skip(ZooKeeper::start(1).await) else {
        return;
    };
    for seconds in [8, 60] {
        let a = client(config(&server.addresses(), Duration::from_secs(seconds))).await;
        let held = a.mutex("k").acquire().await.unwrap();
        let sessions = server.four_letters(0, "cons").await.unwrap();
        assert!(
            sessions.contains(&format!("to={},", seconds * 1000)),
            "{sessions}"
        );
        held.release().await.unwrap();
    }
    // The servers allow a minute here; what they do not give is refused.
    let a = client(config(&server.addresses(), Duration::from_secs(3_600))).await;
    let longer = a
        .mutex("k")
        .ttl(Duration::from_secs(61))
        .acquire()
        .await
        .unwrap_err();
    assert_eq!(longer.kind(), ErrorKind::InvalidConfig, "{longer}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn negative_sequences_sort_first_and_strays_are_ignored() {
    let Some(server) = or_skip(ZooKeeper::start(1).await) else {
        return;
    };
    let hosts = server.addresses();
    let a = Peer::new(config(&hosts, SESSION)).await;
    let admin = zk::Client::connect(&hosts[0]).await.unwrap();
    let mut holder = a.driver.claim(a.want("k", Mode::Mutex)).unwrap();
    holder.try_acquire().await.unwrap();
    // A stranger that is no contender, and one from before the wrap: ours waits for the one and ignores the other.
    let options = zk::CreateMode::Ephemeral.with_acls(zk::Acls::anyone_all());
    admin.create("/distlock/k/!stray", b"", &options).await.unwrap();
    let old = "/distlock/k/_c_00000000-0000-0000-0000-000000000000-lock--2147483648";
    admin.create(old, b"10.0.0.1", &options).await.unwrap();
    holder.release(None).await.unwrap();
    let mut next = a.driver.claim(a.want("k", Mode::Mutex)).unwrap();
    let Standing::Waiting { holder, ahead, .. } = next.try_acquire().await.unwrap() else {
        panic!("granted")
    };
    assert_eq!(
        (holder.unwrap().host.as_deref(), ahead),
        (Some("10.0.0.1"), Some(1))
    );
    admin.delete(old, None).await.unwrap();
    assert!(matches!(next.try_acquire().await.unwrap(), Standing::Held(_)));
    next.release(None).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_multi_is_applied_only_while_the_lock_is_held() {
    let Some(server) = or_skip(ZooKeeper::start(1).await) else {
        return;
    };
    let hosts = server.addresses();
    let mut below = config(&hosts, SESSION);
    below.chroot = "/apps".into();
    let a = client(below).await;
    let admin = zk::Client::connect(&hosts[0]).await.unwrap();
    let held = a.mutex("k").acquire().await.unwrap();
    held.multi().unwrap().create("/data", "1").commit().await.unwrap();
    let data = async || admin.get_data("/apps/data").await.unwrap().0;
    assert_eq!(data().await, b"1");
    // All or nothing, and the one that was refused is named.
    let e = held.multi().unwrap().set("/data", "2", None).create("/data", "3");
    let e = e.commit().await.unwrap_err();
    assert!(matches!(e, MultiError::Refused { index: 1, .. }), "{e}");
    let old = held.multi().unwrap().set("/data", "2", Some(7));
    assert!(matches!(
        old.commit().await.unwrap_err(),
        MultiError::Refused { index: 0, .. }
    ));
    assert_eq!(data().await, b"1");
    // Curator's `Revoker` writes into the node; that is no loss.
    let path = held.multi().unwrap().paths().next().unwrap().to_owned();
    admin.set_data(&path, b"__REVOKE__", None).await.unwrap();
    held.multi()
        .unwrap()
        .set("/data", "2", Some(0))
        .commit()
        .await
        .unwrap();
    assert_eq!(data().await, b"2");
    // Stale: the holder has not been told yet, or has.
    let late = held.multi().unwrap().set("/data", "stale", None);
    admin.delete(&path, None).await.unwrap();
    let MultiError::Lock(e) = late.commit().await.unwrap_err() else {
        panic!("not the lock's error")
    };
    assert_eq!(e.kind(), ErrorKind::NotHeld);
    assert_eq!(data().await, b"2");
    drop(held);
    let next = a.mutex("k").acquire().await.unwrap();
    next.multi()
        .unwrap()
        .delete("/data", None)
        .commit()
        .await
        .unwrap();
    assert!(admin.check_stat("/apps/data").await.unwrap().is_none());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f32_waits_that_run_out_leave_neither_nodes_nor_watches() {
    let Some(server) = or_skip(ZooKeeper::start(1).await) else {
        return;
    };
    let hosts = server.addresses();
    let (a, b) = (
        client(config(&hosts, SESSION)).await,
        client(config(&hosts, SESSION)).await,
    );
    let held = a.mutex("k").acquire().await.unwrap();
    for _ in 0..30 {
        let e = b.mutex("k").wait(20 * MS).acquire().await.unwrap_err();
        // On a busy machine the wait may be over before the first answer.
        assert!(
            matches!(e.kind(), ErrorKind::Timeout | ErrorKind::OutcomeUnknown),
            "{e}"
        );
        assert!(b.mutex("k").try_acquire().await.unwrap().is_none());
    }
    let admin = zk::Client::connect(&hosts[0]).await.unwrap();
    let nodes = async || admin.list_children("/distlock/k").await.unwrap().len();
    for _ in 0..3 {
        let interrupted = tokio::spawn(b.mutex("k").acquire());
        until("it waits", async || nodes().await == 2).await;
        interrupted.abort();
        until("only the holder's node is there", async || nodes().await == 1).await;
    }
    // One for the holder's own node, at most one for the latest waiter.
    until("the watches are gone", async || {
        let words = server.four_letters(0, "wchs").await.unwrap();
        let watches = words.split("Total watches:").nth(1).unwrap().trim();
        watches.parse::<u32>().unwrap() <= 2
    })
    .await;
    held.release().await.unwrap();
    assert!(b.mutex("k").try_acquire().await.unwrap().is_some());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_parent_that_vanishes_is_made_again() {
    let Some(server) = or_skip(ZooKeeper::start(1).await) else {
        return;
    };
    let hosts = server.addresses();
    let a = client(config(&hosts, SESSION)).await;
    let admin = zk::Client::connect(&hosts[0]).await.unwrap();
    let over = std::sync::atomic::AtomicBool::new(false);
    let deletes = async {
        let mut deleted = 0;
        while !over.load(std::sync::atomic::Ordering::Relaxed) {
            deleted += u32::from(admin.delete("/distlock/k", None).await.is_ok());
        }
        deleted
    };
    let locks = async {
        let mut last = None;
        for _ in 0..100 {
            let guard = a.mutex("k").acquire().await.unwrap();
            // Though the sequence numbers start again.
            assert!(guard.token() > last);
            last = guard.token();
            guard.release().await.unwrap();
        }
        over.store(true, std::sync::atomic::Ordering::Relaxed);
    };
    let (deleted, ()) = tokio::join!(deletes, locks);
    assert!(deleted > 0, "the parent was never deleted");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gate_refuses_old_tokens_and_writes_nothing_of_theirs() {
    let Some(server) = or_skip(ZooKeeper::start(1).await) else {
        return;
    };
    let hosts = server.addresses();
    let mut below = config(&hosts, SESSION);
    below.chroot = "/apps".into();
    let gate = ZooKeeperGate::connect(below, "/fence").await.unwrap();
    let admin = zk::Client::connect(&hosts[0]).await.unwrap();
    let pass = async |token, writes| gate.pass("a/b", FencingToken::new(token), writes).await;
    let set = |data: &str| Writes::new().set("/data", data, None);
    let data = async || admin.get_data("/apps/data").await.unwrap().0;
    pass(5, Writes::new().create("/data", "first")).await.unwrap();
    pass(6, set("second")).await.unwrap();
    let e = pass(5, set("stale")).await.unwrap_err();
    assert!(
        matches!(e, FenceError::Stale { newest, .. } if newest == FencingToken::new(6)),
        "{e}"
    );
    assert_eq!(data().await, b"second");
    // A holder writes often; what is refused for another reason is not remembered.
    pass(6, set("third")).await.unwrap();
    let e = pass(9, Writes::new().set("/none", "", None)).await.unwrap_err();
    assert!(matches!(e, FenceError::Store(_)), "{e}");
    pass(7, set("fourth")).await.unwrap();
    // Whoever comes in between, the latest holder's write stays.
    let race = (10..14).map(|token| pass(token, set(&token.to_string())).map(|_| ()));
    join_all(race.collect::<Vec<_>>()).await;
    assert_eq!(data().await, b"13");
    let e = gate.pass("", FencingToken::new(1), set("")).await.unwrap_err();
    assert!(matches!(e, FenceError::InvalidResource { .. }), "{e}");
    admin.set_data("/apps/fence/a%2Fb", b"x", None).await.unwrap();
    let e = pass(99, set("unjudged")).await.unwrap_err();
    assert!(matches!(e, FenceError::Damaged { .. }), "{e}");
    assert_eq!(data().await, b"13");
}
