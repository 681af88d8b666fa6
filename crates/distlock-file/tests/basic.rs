//! The port's questions, answered on one directory by several clients of one process.
#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod kit;

use std::time::Duration;

use distlock_core::clock::{Clock, ManualClock};
use distlock_core::driver::{Break, DriverErrorKind, LostReason, Mode, Refusal, Released, Renewal, Standing};
use distlock_core::{FencingToken, Key};
use distlock_file::Config;
use kit::{client, client_on, mutex, until};

const LONG: Duration = Duration::from_secs(20);

#[tokio::test]
async fn two_clients_exclude_each_other_and_tokens_grow() {
    let dir = tempfile::tempdir().unwrap();
    let (a, b) = (client(dir.path()), client(dir.path()));
    let mut x = a.contender(mutex("k"));
    let first = x.look().await.unwrap().unwrap();
    let mut y = b.contender(mutex("k").never());
    assert!(y.look().await.unwrap().is_none());
    assert_eq!(x.claim.release(None).await.unwrap(), Released::Freed);
    assert_eq!(x.claim.release(None).await.unwrap(), Released::NotHeld);
    let second = y.look().await.unwrap().unwrap();
    assert!(second > first, "{second} > {first}");
    let again = y.claim.try_acquire().await.unwrap_err();
    assert!(matches!(again.kind, DriverErrorKind::Closed));
}

#[tokio::test]
async fn a_try_leaves_nothing_and_names_the_holder() {
    let dir = tempfile::tempdir().unwrap();
    let (a, b) = (client(dir.path()), client(dir.path()));
    let mut x = a.contender(mutex("k"));
    x.look().await.unwrap();
    let mut y = b.contender(mutex("k").never());
    let Standing::Waiting { holder, ahead, .. } = y.claim.try_acquire().await.unwrap() else {
        panic!("held twice");
    };
    let holder = holder.unwrap();
    assert_eq!(holder.pid, Some(std::process::id()));
    assert_eq!(holder.label.as_deref(), Some("test"));
    assert_eq!(ahead, Some(1));
    let info = b.driver.inspect().unwrap().inspect(&x.want.key).await.unwrap();
    assert_eq!((info.holders.len(), info.waiters.len()), (1, 0));
}

#[tokio::test]
async fn an_attempt_is_idempotent_by_owner() {
    let dir = tempfile::tempdir().unwrap();
    let a = client(dir.path());
    let want = mutex("k").want(&a.engine);
    let mut first = a.driver.claim(want.clone()).unwrap();
    let mut second = a.driver.claim(want).unwrap();
    let (Standing::Held(x), Standing::Held(y)) = (
        first.try_acquire().await.unwrap(),
        second.try_acquire().await.unwrap(),
    ) else {
        panic!("the owner did not find its own place");
    };
    assert_eq!(x.token, y.token);
    let key = Key::new("k").unwrap();
    let info = a.driver.inspect().unwrap().inspect(&key).await.unwrap();
    assert_eq!(info.holders.len(), 1);
}

#[tokio::test]
async fn a_release_wakes_the_waiter_of_another_client() {
    let dir = tempfile::tempdir().unwrap();
    let (a, b) = (client(dir.path()), client(dir.path()));
    let mut x = a.contender(mutex("k"));
    x.look().await.unwrap();
    let mut y = b.contender(mutex("k"));
    assert!(y.look().await.unwrap().is_none());
    x.claim.release(None).await.unwrap();
    tokio::time::timeout(LONG, y.want.bell.rung())
        .await
        .expect("rung");
    assert!(y.look().await.unwrap().is_some());
}

#[tokio::test]
async fn fifo_waiters_are_granted_in_order_and_any_does_not_pass_them() {
    let dir = tempfile::tempdir().unwrap();
    let (a, b) = (client(dir.path()), client(dir.path()));
    let mut x = a.contender(mutex("k"));
    x.look().await.unwrap();
    let mut line: Vec<_> = (0..3).map(|_| b.contender(mutex("k").fifo())).collect();
    for c in &mut line {
        assert!(c.look().await.unwrap().is_none());
    }
    x.claim.release(None).await.unwrap();
    let mut barger = a.contender(mutex("k").never());
    assert!(barger.look().await.unwrap().is_none(), "passed a waiting Fifo");
    assert!(line[1].look().await.unwrap().is_none());
    let mut last = 0;
    for c in &mut line {
        tokio::time::timeout(LONG, c.want.bell.rung())
            .await
            .expect("rung");
        let token = c.look().await.unwrap().expect("its turn");
        assert!(token > last);
        last = token;
        c.claim.release(None).await.unwrap();
    }
}

#[tokio::test]
async fn a_waiter_that_leaves_hands_its_watch_to_the_next() {
    let dir = tempfile::tempdir().unwrap();
    let (a, b) = (client(dir.path()), client(dir.path()));
    let mut x = a.contender(mutex("k"));
    x.look().await.unwrap();
    let (mut y, mut z) = (b.contender(mutex("k").fifo()), b.contender(mutex("k").fifo()));
    y.look().await.unwrap();
    z.look().await.unwrap();
    assert_eq!(y.claim.release(None).await.unwrap(), Released::NotHeld);
    tokio::time::timeout(LONG, z.want.bell.rung())
        .await
        .expect("rung");
    x.claim.release(None).await.unwrap();
    assert!(z.look().await.unwrap().is_some());
}

#[tokio::test]
async fn readers_share_and_do_not_pass_a_waiting_writer() {
    let dir = tempfile::tempdir().unwrap();
    let a = client(dir.path());
    let reader = || a.contender(mutex("k").mode(Mode::Read));
    let (mut r1, mut r2, mut r3) = (reader(), reader(), reader());
    let mut w = a.contender(mutex("k").mode(Mode::Write));
    assert_eq!(r1.look().await.unwrap(), Some(0));
    assert_eq!(r2.look().await.unwrap(), Some(0));
    assert_eq!(w.look().await.unwrap(), None);
    assert_eq!(r3.look().await.unwrap(), None);
    r1.claim.release(None).await.unwrap();
    assert_eq!(w.look().await.unwrap(), None);
    r2.claim.release(None).await.unwrap();
    tokio::time::timeout(LONG, w.want.bell.rung())
        .await
        .expect("rung");
    assert!(w.look().await.unwrap().unwrap() > 0);
    assert_eq!(r3.look().await.unwrap(), None);
    w.claim.release(None).await.unwrap();
    tokio::time::timeout(LONG, r3.want.bell.rung())
        .await
        .expect("rung");
    assert_eq!(r3.look().await.unwrap(), Some(0));
}

#[tokio::test]
async fn a_semaphore_has_so_many_slots_and_other_kinds_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (a, b) = (client(dir.path()), client(dir.path()));
    let slot = |of| mutex("k").mode(Mode::Slot { of });
    let (mut x, mut y, mut z) = (a.contender(slot(2)), b.contender(slot(2)), b.contender(slot(2)));
    assert!(x.look().await.unwrap().is_some() && y.look().await.unwrap().is_some());
    assert!(z.look().await.unwrap().is_none());
    for (other, words) in [
        (slot(3), ["of 2", "of 3"]),
        (mutex("k"), ["semaphore", "mutex"]),
        (mutex("k").mode(Mode::Read), ["semaphore", "read/write"]),
    ] {
        let e = b.contender(other).look().await.unwrap_err();
        let DriverErrorKind::Refused(Refusal::KindMismatch { have, want }) = &e.kind else {
            panic!("{e:?}");
        };
        assert!(
            have.contains(words[0]) && want.contains(words[1]),
            "{have} / {want}"
        );
    }
    x.claim.release(None).await.unwrap();
    tokio::time::timeout(LONG, z.want.bell.rung())
        .await
        .expect("rung");
    assert!(z.look().await.unwrap().is_some());
    y.claim.release(None).await.unwrap();
    z.claim.release(None).await.unwrap();
    assert!(a.contender(mutex("k")).look().await.unwrap().is_some());
}

#[tokio::test]
async fn renewals_extend_and_never_acquire() {
    let dir = tempfile::tempdir().unwrap();
    let time = ManualClock::new();
    let a = client_on(Clock::Manual(time.clone()), Config::new(dir.path())).unwrap();
    let mut x = a.contender(mutex("k").ttl(1000));
    x.look().await.unwrap();
    time.advance(Duration::from_millis(900)).await;
    assert!(matches!(
        a.renew(&x, Duration::from_secs(1)).await,
        Renewal::Good(_)
    ));
    time.advance(Duration::from_millis(900)).await;
    let mut y = a.contender(mutex("k").ttl(1000));
    let Standing::Waiting { recheck, .. } = y.claim.try_acquire().await.unwrap() else {
        panic!("held twice");
    };
    assert_eq!(recheck, Duration::from_millis(100));
    time.advance(recheck).await;
    let lost = a.renew(&x, Duration::from_secs(1)).await;
    assert!(matches!(lost, Renewal::Lost(LostReason::Expired)), "{lost:?}");
    assert!(y.look().await.unwrap().is_some());
    let lost = a.renew(&x, Duration::from_secs(1)).await;
    assert!(matches!(lost, Renewal::Lost(LostReason::Taken)), "{lost:?}");
    assert_eq!(x.claim.release(None).await.unwrap(), Released::NotHeld);
    assert!(matches!(
        a.renew(&y, Duration::from_secs(1)).await,
        Renewal::Good(_)
    ));
}

#[tokio::test]
async fn a_kept_record_keeps_everybody_out_until_its_end() {
    let dir = tempfile::tempdir().unwrap();
    let time = ManualClock::new();
    let a = client_on(Clock::Manual(time.clone()), Config::new(dir.path())).unwrap();
    let (mut x, mut y) = (a.contender(mutex("k")), a.contender(mutex("k")));
    x.look().await.unwrap();
    assert!(y.look().await.unwrap().is_none());
    let keep = Duration::from_secs(5);
    assert_eq!(x.claim.release(Some(keep)).await.unwrap(), Released::Freed);
    assert!(y.want.bell.take(), "the end has changed");
    let Standing::Waiting { recheck, .. } = y.claim.try_acquire().await.unwrap() else {
        panic!("not kept");
    };
    assert_eq!(recheck, keep);
    time.advance(recheck).await;
    assert!(y.look().await.unwrap().is_some());
}

#[tokio::test]
async fn a_broken_lock_is_told_and_a_grace_keeps_others_out() {
    let dir = tempfile::tempdir().unwrap();
    let time = ManualClock::new();
    let a = client_on(Clock::Manual(time.clone()), Config::new(dir.path())).unwrap();
    let mut x = a.contender(mutex("k"));
    let token = x.look().await.unwrap().unwrap();
    let mut y = a.contender(mutex("k"));
    y.look().await.unwrap();
    let inspect = a.driver.inspect().unwrap();
    let wrong = Break {
        expect: Some(FencingToken::new(token + 1)),
        ..Break::default()
    };
    let e = inspect.break_lock(&x.want.key, &wrong).await.unwrap_err();
    assert!(matches!(
        e.kind,
        DriverErrorKind::Refused(Refusal::TokenMismatch { have: Some(have) }) if have.get() == token
    ));
    let how = Break {
        expect: Some(FencingToken::new(token)),
        grace: Duration::from_secs(2),
        reason: Some("deploy".into()),
    };
    let broken = inspect.break_lock(&x.want.key, &how).await.unwrap();
    assert_eq!(broken.len(), 1);
    assert!(x.want.bell.take(), "told at once");
    let lost = a.renew(&x, Duration::from_secs(1)).await;
    assert!(
        matches!(&lost, Renewal::Lost(LostReason::Broken { reason: Some(r) }) if r == "deploy"),
        "{lost:?}"
    );
    assert!(y.look().await.unwrap().is_none(), "within the grace");
    time.advance(Duration::from_secs(2)).await;
    assert!(y.look().await.unwrap().unwrap() > token);
}

#[tokio::test]
async fn a_closed_client_counts_as_dead_but_its_leases_live() {
    let dir = tempfile::tempdir().unwrap();
    let (a, b) = (client(dir.path()), client(dir.path()));
    let (mut x, mut l) = (a.contender(mutex("k")), a.contender(mutex("lease").lease()));
    x.look().await.unwrap();
    l.look().await.unwrap();
    let mut y = b.contender(mutex("k"));
    assert!(y.look().await.unwrap().is_none());
    a.driver.close().await;
    assert!(until(LONG, async || y.look().await.unwrap().is_some()).await);
    assert!(
        b.contender(mutex("lease").never())
            .look()
            .await
            .unwrap()
            .is_none()
    );
    // Another process renews the lease with the owner alone, and releases it with a claim of that owner.
    assert!(matches!(
        b.renew(&l, Duration::from_secs(9)).await,
        Renewal::Good(_)
    ));
    let mut resumed = b.driver.claim(l.want.clone()).unwrap();
    assert_eq!(resumed.release(None).await.unwrap(), Released::Freed);
    assert!(
        b.contender(mutex("lease").never())
            .look()
            .await
            .unwrap()
            .is_some()
    );
    let fifos = std::fs::read_dir(dir.path().join("p")).unwrap().count();
    assert_eq!(fifos, 1, "the closed client's FIFO is gone");
}

#[tokio::test]
async fn unusual_keys_are_distinct_and_leave_no_files() {
    let dir = tempfile::tempdir().unwrap();
    let a = client(dir.path());
    let long = "x".repeat(512);
    let longer = format!("{}y", "x".repeat(511));
    let keys = [
        "a", "A", "a/b", "a//b", "../a", "..", ".", "/", "{a}", "{}", "*", "?", "[a]", "a b", "é", "日本",
        "a:b", "a%3Ab", "\\", "'", "-", &long, &longer,
    ];
    let mut held = Vec::new();
    for key in keys {
        let mut c = a.contender(mutex(key));
        assert!(c.look().await.unwrap().is_some(), "{key:?} is somebody else's");
        held.push(c);
    }
    let inspect = a.driver.inspect().unwrap();
    assert_eq!(inspect.list("", None, 100).await.unwrap().len(), keys.len());
    let slash = inspect.list("a/", None, 100).await.unwrap();
    assert_eq!(slash.len(), 2, "prefixes are literal");
    let page = inspect.list("", Some(&slash[0].key), 3).await.unwrap();
    assert!(page.len() == 3 && page.iter().all(|i| i.key > slash[0].key));
    let mut files: Vec<_> = std::fs::read_dir(dir.path())
        .unwrap()
        .map(|f| f.unwrap().file_name())
        .collect();
    files.sort();
    assert_eq!(files, ["p", "table"]);
}
