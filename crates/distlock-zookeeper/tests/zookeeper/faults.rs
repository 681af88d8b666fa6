//! What happens to locks when sessions, servers and clients die.

use std::time::{Duration, Instant};

use crate::common::{MS, Peer, client, config, kill_session, owner_of, until};
use distlock_core::driver::{LostReason, Mode, Reached, Renewal, Standing};
use distlock_core::{ErrorKind, Wait};
use distlock_testkit::proxy::{Fault, Proxy};
use distlock_testkit::servers::{Data, ZooKeeper, or_skip};
use distlock_zookeeper::Bridge;
use zookeeper_client as zk;

const SESSION: Duration = Duration::from_secs(8);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f07_a_session_closed_by_an_admin_is_told_within_a_second_and_waiters_queue_again() {
    let Some(server) = or_skip(ZooKeeper::start(3).await) else {
        return;
    };
    // The session is closed through another server than its owner's, which then hears of it as of any end.
    let addresses = server.addresses();
    let hosts = &addresses[..1];
    let (a, b) = (
        client(config(hosts, SESSION)).await,
        client(config(hosts, SESSION)).await,
    );
    let held = a.mutex("k").acquire().await.unwrap();
    let session = owner_of(&server.four_letters(0, "dump").await.unwrap(), "/distlock/k/").unwrap();
    // A waiter of the same client, on another key, loses its place with the session and must get a new one.
    let other = b.mutex("other").acquire().await.unwrap();
    let waiter = tokio::spawn(async move { a.mutex("other").acquire().await });
    until("it waits", async || {
        b.inspect("other").await.unwrap().waiters.len() == 1
    })
    .await;
    kill_session(&addresses[1], session).await;
    let start = Instant::now();
    held.lost().await;
    let told = start.elapsed();
    assert!(told < Duration::from_secs(1), "told after {told:?}");
    let said = held.ensure().unwrap_err();
    // The node's end may be heard of before the session's.
    let reason = said.lost_reason();
    assert!(
        matches!(reason, Some(LostReason::SessionEnded | LostReason::Taken)),
        "{reason:?}"
    );
    b.mutex("k")
        .wait(20_000 * MS)
        .acquire()
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    other.release().await.unwrap();
    let got = tokio::time::timeout(Duration::from_secs(30), waiter)
        .await
        .unwrap()
        .unwrap()
        .unwrap();
    got.release().await.unwrap();
}

/// Owner and intruder throw each other out there, and a request of the owner may find no session and no answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_closed_on_its_owners_own_server_is_told_within_a_second() {
    let Some(server) = or_skip(ZooKeeper::start(1).await) else {
        return;
    };
    let hosts = server.addresses();
    for round in 0..10 {
        let a = client(config(&hosts, SESSION)).await;
        let key = format!("k{round}");
        let held = a.mutex(&key).acquire().await.unwrap();
        let dump = server.four_letters(0, "dump").await.unwrap();
        let session = owner_of(&dump, &format!("/distlock/{key}/")).unwrap();
        kill_session(&hosts[0], session).await;
        let start = Instant::now();
        held.lost().await;
        let told = start.elapsed();
        assert!(
            told < Duration::from_secs(1),
            "round {round}: told after {told:?}"
        );
        drop(held);
        let next = a.mutex(&key).wait(20_000 * MS).acquire().await.unwrap();
        next.release().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_restart_loses_neither_hold_nor_waiter() {
    let Some(mut server) = or_skip(ZooKeeper::start(1).await) else {
        return;
    };
    let hosts = server.addresses();
    let session = Duration::from_secs(30);
    let (a, b) = (
        client(config(&hosts, session)).await,
        client(config(&hosts, session)).await,
    );
    let held = a.mutex("k").acquire().await.unwrap();
    let token = held.token().unwrap();
    let waiting = b.clone();
    let waiter = tokio::spawn(async move { waiting.mutex("k").acquire().await });
    until("it waits", async || {
        b.inspect("k").await.unwrap().waiters.len() == 1
    })
    .await;
    server.server(0).kill9().unwrap();
    server.restart(0, Data::Keep).await.unwrap();
    until("the hold is verified", async || held.verify().await.is_ok()).await;
    assert!(held.is_held());
    // A waiter is woken once its own connection is back; it still waits then.
    until("the waiter's client is connected again", async || {
        b.inspect("k").await.is_ok_and(|k| k.waiters.len() == 1)
    })
    .await;
    assert!(!waiter.is_finished());
    let start = Instant::now();
    held.release().await.unwrap();
    let next = tokio::time::timeout(Duration::from_secs(30), waiter)
        .await
        .unwrap()
        .unwrap()
        .unwrap();
    assert!(next.token().unwrap() > token);
    // By the watch, which outlived the restart, not by the recheck or the old session's end.
    assert!(
        start.elapsed() < Duration::from_secs(4),
        "woken after {:?}",
        start.elapsed()
    );
    next.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f55_a_disconnected_hold_is_unknown_until_its_deadline_and_then_lost() {
    let Some(mut server) = or_skip(ZooKeeper::start(1).await) else {
        return;
    };
    let a = Peer::new(config(&server.addresses(), Duration::from_secs(4))).await;
    let want = a.want("k", Mode::Mutex);
    let mut claim = a.driver.claim(want.clone()).unwrap();
    let Standing::Held(grant) = claim.try_acquire().await.unwrap() else {
        panic!("not free")
    };
    let users = client(config(&server.addresses(), Duration::from_secs(4))).await;
    let held = users.mutex("other").acquire().await.unwrap();
    server.server(0).kill9().unwrap();
    until("it is noticed", async || {
        matches!(a.renew(&want).await, Renewal::Unknown(_))
    })
    .await;
    assert!(a.engine.clock().now() < grant.valid_until + Duration::from_secs(4));
    let lost = tokio::time::timeout(Duration::from_secs(30), held.lost()).await;
    lost.unwrap();
    let reason = held.ensure().unwrap_err();
    assert_eq!(reason.lost_reason(), Some(&LostReason::Expired), "{reason}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deleted_node_is_told_within_a_second() {
    let Some(server) = or_skip(ZooKeeper::start(1).await) else {
        return;
    };
    let hosts = server.addresses();
    let a = client(config(&hosts, SESSION)).await;
    let held = a.mutex("k").acquire().await.unwrap();
    let admin = zk::Client::connect(&hosts[0]).await.unwrap();
    let nodes = admin.list_children("/distlock/k").await.unwrap();
    // Curator's `Revoker` writes into the owner's node: that alone is no loss.
    let path = format!("/distlock/k/{}", nodes[0]);
    admin.set_data(&path, b"__REVOKE__", None).await.unwrap();
    held.verify().await.unwrap();
    assert!(held.is_held());
    admin.delete(&path, None).await.unwrap();
    let start = Instant::now();
    held.lost().await;
    assert!(
        start.elapsed() < Duration::from_secs(1),
        "told after {:?}",
        start.elapsed()
    );
    assert_eq!(held.ensure().unwrap_err().lost_reason(), Some(&LostReason::Taken));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f56_f02_a_lost_reply_of_a_create_makes_no_second_node() {
    let Some(server) = or_skip(ZooKeeper::start(1).await) else {
        return;
    };
    let hosts = server.addresses();
    let proxy = Proxy::start(&hosts[0]).await.unwrap();
    let mut through = config(&[proxy.address()], SESSION);
    through.timeout = 300 * MS;
    let a = Peer::new(through.clone()).await;
    through.bridge = Bridge::Kazoo;
    let bridged = Peer::new(through).await;
    let admin = zk::Client::connect(&hosts[0]).await.unwrap();
    // Each with the nodes that a holder and a waiter have.
    for (a, mode, dir, nodes) in [
        (&a, Mode::Mutex, "/distlock/k", 2),
        (&a, Mode::Slot { of: 1 }, "/distlock/s/locks", 1),
        (&bridged, Mode::Mutex, "/distlock/b", 4),
    ] {
        let key = dir.trim_start_matches("/distlock/").trim_end_matches("/locks");
        let mut first = a.driver.claim(a.want(key, mode)).unwrap();
        first.try_acquire().await.unwrap();
        let mut claim = a.driver.claim(a.want(key, mode)).unwrap();
        proxy.replies(Fault::Hold);
        let e = claim.try_acquire().await.unwrap_err();
        assert_eq!((e.reached, e.retry), (Reached::Maybe, true), "{e}");
        let arrived = async || admin.list_children(dir).await.unwrap().len();
        until("the create arrives", async || arrived().await >= 1).await;
        proxy.cut();
        proxy.heal();
        let mut ask = async || {
            claim
                .try_acquire()
                .await
                .is_ok_and(|s| matches!(s, Standing::Waiting { .. }))
        };
        until("it finds its place", async || ask().await).await;
        until("the holder has left the line", async || arrived().await == nodes).await;
        until("the first leaves", async || first.release(None).await.is_ok()).await;
        let mut ask = async || {
            claim
                .try_acquire()
                .await
                .is_ok_and(|s| matches!(s, Standing::Held(_)))
        };
        until("it is its turn", async || ask().await).await;
        until("it leaves", async || claim.release(None).await.is_ok()).await;
        until("nothing is left", async || arrived().await == 0).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f60_a_holder_that_is_cut_off_is_told_before_the_next_one_is_granted() {
    let Some(server) = or_skip(ZooKeeper::start(1).await) else {
        return;
    };
    let hosts = server.addresses();
    let proxy = Proxy::start(&hosts[0]).await.unwrap();
    let session = Duration::from_secs(3);
    let (a, b) = (
        client(config(&[proxy.address()], session)).await,
        client(config(&hosts, session)).await,
    );
    let held = a.mutex("k").acquire().await.unwrap();
    let token = held.token();
    let start = Instant::now();
    until("it was renewed", async || start.elapsed() > session).await;
    assert!(held.is_held());
    proxy.both(Fault::Hold);
    let lost = held.lost();
    let told = tokio::spawn(async move {
        lost.await;
        Instant::now()
    });
    let next = b.mutex("k").wait(20_000 * MS).acquire().await.unwrap();
    let granted = Instant::now();
    let told = told.await.unwrap();
    assert!(told < granted, "told {:?} after the next grant", told - granted);
    assert!(!held.is_held());
    assert!(next.token() > token);
    proxy.heal();
    next.verify().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f01_a_cut_anywhere_leaves_no_lock_without_an_end() {
    let Some(server) = or_skip(ZooKeeper::start(1).await) else {
        return;
    };
    let hosts = server.addresses();
    let proxy = Proxy::start(&hosts[0]).await.unwrap();
    let mut through = config(&[proxy.address()], SESSION);
    through.timeout = 500 * MS;
    let (a, b) = (client(through).await, client(config(&hosts, SESSION)).await);
    let admin = zk::Client::connect(&hosts[0]).await.unwrap();
    a.mutex("k").acquire().await.unwrap().release().await.unwrap();
    let before = proxy.passed();
    let whole = a.mutex("k").acquire().await.unwrap();
    let after = proxy.passed();
    whole.release().await.unwrap();
    let mut cuts = Vec::new();
    for part in 1..6 {
        cuts.push((true, (after.0 - before.0) * part / 6));
        cuts.push((false, (after.1 - before.1) * part / 6));
    }
    for (request, bytes) in cuts {
        match request {
            true => proxy.requests(Fault::CutAfter(bytes)),
            false => proxy.replies(Fault::CutAfter(bytes)),
        }
        drop(a.mutex("k").wait(Wait::Try).acquire().await);
        for node in admin.list_children("/distlock/k").await.unwrap() {
            let stat = admin.check_stat(&format!("/distlock/k/{node}")).await.unwrap();
            assert!(
                stat.is_none_or(|stat| stat.ephemeral_owner != 0),
                "{node} has no session"
            );
        }
        proxy.heal();
        let next = b.mutex("k").wait(20_000 * MS).acquire().await;
        next.unwrap().release().await.unwrap();
        until("it is connected again", async || a.inspect("k").await.is_ok()).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f34_without_servers_calls_end_in_time_and_say_so() {
    let Some(mut server) = or_skip(ZooKeeper::start(1).await) else {
        return;
    };
    let mut short = config(&server.addresses(), SESSION);
    short.timeout = 400 * MS;
    let a = client(short).await;
    a.mutex("warm").acquire().await.unwrap().release().await.unwrap();
    server.server(0).pause().unwrap();
    let unheard =
        |e: &distlock_core::Error| matches!(e.kind(), ErrorKind::OutcomeUnknown | ErrorKind::Unavailable);
    let start = Instant::now();
    let e = a.mutex("k").wait(1_000 * MS).acquire().await.unwrap_err();
    assert!(unheard(&e), "{e}");
    let e = a.mutex("k").try_acquire().await.unwrap_err();
    assert!(unheard(&e), "{e}");
    assert!(
        start.elapsed() < Duration::from_secs(6),
        "after {:?}",
        start.elapsed()
    );
    server.server(0).resume().unwrap();
    let guard = a.mutex("k").wait(20_000 * MS).acquire().await.unwrap();
    guard.release().await.unwrap();
    server.server(0).kill9().unwrap();
    let e = a.mutex("k").wait(1_000 * MS).acquire().await.unwrap_err();
    assert!(unheard(&e), "{e}");
}
