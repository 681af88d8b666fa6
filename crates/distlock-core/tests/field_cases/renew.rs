//! The watchdog.

use distlock_core::driver::{Break, LostReason};
use distlock_core::memory::{Answer, Call, Fault, Rule};
use distlock_core::{Client, ErrorKind, Release, Renew, RunError};

use crate::telling::Lines;
use crate::{MS, SECS, Scene, key};

#[tokio::test]
async fn f20_after_a_loss_the_key_is_renewed_again() {
    let (lines, _guard) = Lines::catch();
    let scene = Scene::new();
    let a = scene.client();
    let first = a.mutex("k").ttl(SECS(6)).acquire().await.unwrap();
    scene.memory.faults().partition_for(a.id(), SECS(10));
    scene.time.advance(SECS(10)).await;
    assert_eq!(first.lost().await, LostReason::Expired);
    let second = a.mutex("k").ttl(SECS(6)).acquire().await.unwrap();
    for _ in 0..30 {
        scene.time.advance(SECS(1)).await;
        assert!(second.is_held());
        assert!(!scene.is_free("k").await);
    }
    assert_eq!(first.release().await.unwrap(), Release::Lost(LostReason::Expired));
    assert_eq!(second.release().await.unwrap(), Release::Clean);
    assert_eq!(lines.with("a lock was lost").len(), 1);
}

#[tokio::test]
async fn f21_a_release_that_races_a_renewal_leaves_no_watchdog_behind() {
    let scene = Scene::new();
    let (a, faults) = (scene.client(), scene.memory.faults());
    let mut renewed_late = 0;
    for round in 0..1000u64 {
        // Replies take 0 to 5 ms; the release is sent around the moment of the first renewal.
        let renewal = if round % 2 == 0 {
            Fault::Slow(MS(round % 6))
        } else {
            Fault::Late(MS(round % 6))
        };
        faults.queue(Call::Renew, renewal);
        faults.queue(Call::Release, Fault::Slow(MS(round % 5)));
        let held = a.mutex("k").ttl(MS(300)).acquire().await.unwrap();
        scene
            .time
            .advance(MS([0, 1, 89, 99, 100, 101, 102][round as usize % 7]))
            .await;
        faults.record();
        let released = tokio::spawn(held.release());
        scene.time.advance(MS(5)).await;
        assert!(released.is_finished());
        assert_eq!(released.await.unwrap().unwrap(), Release::Clean);
        faults.clear();
        renewed_late = scene.asked(Call::Renew).len();
    }
    assert!(renewed_late > 0, "vacuous: no renewal met a release");
    assert_eq!(a.held(), 0);
    let before = scene.asked(Call::Renew).len();
    scene.time.advance(SECS(3)).await;
    assert_eq!(scene.asked(Call::Renew).len(), before);
    assert!(a.inspect("k").await.unwrap().holders.is_empty());
    assert!(scene.is_free("k").await);
}

#[tokio::test]
async fn f23_a_renewal_never_prolongs_a_strangers_lock() {
    // A's renewal was sent before the cut and arrives when B holds.
    let scene = Scene::new();
    let (a, b, faults) = (scene.client(), scene.client(), scene.memory.faults());
    faults.add(Rule::new(Call::Renew, Fault::Late(SECS(10))).of(a.id()).times(1));
    faults.add(Rule::new(Call::Renew, Fault::Silent).of(a.id()).always());
    let held = a.mutex("k").ttl(SECS(5)).acquire().await.unwrap();
    scene.time.advance(SECS(5)).await;
    assert!(!held.is_held());
    let next = b
        .mutex("k")
        .ttl(SECS(60))
        .renew(Renew::Never)
        .acquire()
        .await
        .unwrap();
    faults.clear();
    faults.record();
    scene.time.advance(SECS(10)).await;
    let renewals = scene.asked(Call::Renew);
    assert_eq!(renewals.len(), 1, "vacuous: {renewals:?}");
    assert!(matches!(renewals[0].answer, Answer::Lost(_)), "{renewals:?}");
    let found = b.inspect("k").await.unwrap();
    assert_eq!(found.holders[0].expires_in, Some(SECS(50)));
    assert_eq!(found.token, next.token());
    drop((held, next));
    scene.time.settle().await;

    // The record is deleted and a stranger's put in its place, by hand.
    let held = a.mutex("k").ttl(SECS(5)).acquire().await.unwrap();
    faults.delete(&key("k"));
    let foreign = faults.steal(&key("k"), SECS(60));
    assert_eq!(held.verify().await.unwrap_err().kind(), ErrorKind::Lost);
    assert_eq!(held.lost().await, LostReason::Taken);
    scene.time.advance(SECS(20)).await;
    let found = b.inspect("k").await.unwrap();
    assert_eq!(found.holders[0].expires_in, Some(SECS(40)));
    assert_eq!(found.holders[0].token, foreign);
    assert_eq!(held.release().await.unwrap(), Release::Lost(LostReason::Taken));
    assert!(b.inspect("k").await.unwrap().same_people(&found));
}

#[tokio::test]
async fn f24_a_loss_is_told_once_and_ends_nothing_else() {
    let (lines, _guard) = Lines::catch();
    let scene = Scene::new();
    let a = scene.client();
    let other = a.mutex("other").ttl(SECS(5)).acquire().await.unwrap();
    let held = a.mutex("k").ttl(SECS(5)).acquire().await.unwrap();
    let told = tokio::spawn(held.lost());
    let cancelled = held.cancel_token();
    scene.time.advance(SECS(2)).await;
    scene.memory.faults().delete(&key("k"));
    scene.time.advance(SECS(60)).await;
    assert!(told.is_finished() && cancelled.is_cancelled());
    assert_eq!(told.await.unwrap(), LostReason::Taken);
    assert_eq!(held.ensure().unwrap_err().kind(), ErrorKind::Lost);
    assert_eq!(lines.with("a lock was lost").len(), 1);
    // The watchdog lives.
    assert!(other.is_held());

    // In `run` the body is dropped, and the caller told.
    let lock = a.mutex("k").ttl(SECS(5));
    let run = tokio::spawn(lock.run(async |_| -> Result<(), ()> { std::future::pending().await }));
    scene.time.advance(SECS(2)).await;
    scene.memory.faults().delete(&key("k"));
    scene.time.advance(SECS(1)).await;
    assert!(run.is_finished());
    let out = run.await.unwrap();
    assert!(
        matches!(
            out,
            Err(RunError::Lost {
                reason: LostReason::Taken,
                ..
            })
        ),
        "{out:?}"
    );
    assert_eq!(lines.with("a lock was lost").len(), 2);
}

#[tokio::test]
async fn f25_a_hung_holder_is_renewed_until_its_maximum() {
    let scene = Scene::new();
    let (a, b) = (scene.client(), scene.client());
    let clock = b.clock().clone();
    let waiting = async |held_for: Option<u64>| {
        let lock = a.mutex("k").ttl(SECS(6));
        let lock = held_for
            .into_iter()
            .fold(lock, |lock, max| lock.max_hold(SECS(max)));
        let (hung, start) = (lock.acquire().await.unwrap(), clock.now());
        let (next, at) = (b.mutex("k").wait(SECS(60)).acquire(), clock.clone());
        let next = tokio::spawn(async move {
            drop(next.await.unwrap());
            at.now()
        });
        (hung, next, start)
    };

    let (hung, next, start) = waiting(Some(10)).await;
    scene.time.advance(MS(9_990)).await;
    assert!(hung.is_held());
    scene.time.advance(MS(20)).await;
    assert!(!hung.is_held());
    assert_eq!(hung.lost().await, LostReason::MaxHold);
    scene.time.advance(SECS(20)).await;
    let granted = next.await.unwrap().since(start);
    assert!(granted >= SECS(10) && granted <= SECS(16), "{granted:?}");
    drop(hung);
    scene.time.settle().await;

    // Without a maximum, an operator sees for how long, and can end it.
    let (hung, next, _) = waiting(None).await;
    scene.time.advance(SECS(30)).await;
    assert!(hung.is_held() && !next.is_finished());
    let since = b.inspect("k").await.unwrap().holders[0].since.unwrap();
    let held_for = since.elapsed().unwrap();
    assert!(held_for >= SECS(29) && held_for < SECS(40), "{held_for:?}");
    b.break_lock("k", Break::default()).await.unwrap();
    scene.time.advance(SECS(1)).await;
    assert!(!hung.is_held() && next.is_finished());
}

#[tokio::test]
async fn f27_the_renewal_interval_leaves_room_for_two_retries() {
    for ttl in [MS(30), MS(300), SECS(5), SECS(30), SECS(86_400)] {
        let scene = Scene::new();
        let (a, faults) = (scene.client(), scene.memory.faults());
        faults.record();
        faults.add(Rule::new(Call::Renew, Fault::NotSent).times(2));
        let held = a.mutex("k").ttl(ttl).acquire().await.unwrap();
        scene.time.advance(ttl * 2).await;
        assert!(held.is_held(), "{ttl:?}");
        let asked = scene.asked(Call::Renew);
        assert!(
            asked[0].at.since(distlock_core::clock::Moment::START) <= ttl / 3,
            "{ttl:?}"
        );
        assert_eq!(faults.pending(), 0, "vacuous");
    }
    // A round trip almost as long as the TTL cannot keep it: that is told before anybody else gets in.
    let scene = Scene::new();
    let a = scene.client();
    scene
        .memory
        .faults()
        .add(Rule::new(Call::Renew, Fault::Slow(SECS(4))).always());
    let held = a.mutex("k").ttl(SECS(5)).acquire().await.unwrap();
    for _ in 0..600 {
        scene.time.advance(MS(10)).await;
        assert!(!(held.is_held() && scene.is_free("k").await));
    }
    assert!(!held.is_held());
}

#[tokio::test]
async fn f29_an_explicit_ttl_is_renewed_like_any_other() {
    let scene = Scene::new();
    let by_default = scene.builder().ttl(SECS(3)).memory(&scene.memory).unwrap();
    let a = scene.client();
    type Settings = fn(&Client) -> distlock_core::Lock;
    let cases: [(&Client, Settings, bool); 5] = [
        (&a, |c| c.mutex("k").ttl(SECS(3)), true),
        (&a, |c| c.mutex("k").ttl(SECS(3)).renew(Renew::Auto), true),
        (&a, |c| c.mutex("k").ttl(SECS(3)).renew(Renew::Never), false),
        (&by_default, |c| c.mutex("k"), true),
        (&by_default, |c| c.mutex("k").renew(Renew::Never), false),
    ];
    for (n, (client, lock, renews)) in cases.into_iter().enumerate() {
        let held = lock(client).acquire().await.unwrap();
        assert_eq!(held.renews(), renews, "case {n}");
        assert_eq!(held.held().renews(), renews, "case {n}");
        for second in 1..=10 {
            scene.time.advance(SECS(1)).await;
            let kept = renews || second < 3;
            assert_eq!(scene.is_free("k").await, !kept, "case {n}, second {second}");
            assert_eq!(held.is_held(), kept, "case {n}, second {second}");
        }
        drop(held);
        scene.time.settle().await;
    }
}
