//! Client processes that are killed and stopped, and whose clock is set.

use std::time::{Duration, Instant};

use distlock::Locks;
use distlock_testkit::servers::{FakeClock, eventually, or_skip};
use distlock_testkit::worker::{Answer, Do};
use tokio::join;

use crate::scene::{Engine, Scene, is_held, loss, on_both, release, stays_held};

const SECOND: Duration = Duration::from_secs(1);
const TTL: Duration = Duration::from_secs(2);

on_both! {
    f85_a_killed_holder_is_in_the_way_for_its_lease
    a_stopped_holder_is_fenced_and_told_when_it_goes_on
    a_hundred_waiters_whose_process_dies_are_passed
    the_clients_clock_does_not_matter
}

/// The holder's last renewal is at most a third of the lease old.
const NOT_BEFORE: Duration = Duration::from_millis(1200);

async fn f85_a_killed_holder_is_in_the_way_for_its_lease(engine: Engine) {
    let Some(scene) = Scene::start(engine, 1, TTL).await else {
        return;
    };
    let (a, b) = (scene.worker(), scene.worker());
    let (hold, first) = scene.take(&a).await;
    let killed = async {
        // It was renewed, so that the bound is not the one of the first grant.
        stays_held(&a, hold, TTL).await;
        a.kill9().unwrap();
        Instant::now()
    };
    let ((_, second), killed) = join!(scene.take(&b), killed);
    let took = killed.elapsed();
    assert!(second > first);
    assert!(
        (NOT_BEFORE..scene.recovery(false)).contains(&took),
        "after {took:?}"
    );
}

async fn a_stopped_holder_is_fenced_and_told_when_it_goes_on(engine: Engine) {
    let Some(scene) = Scene::start(engine, 1, TTL).await else {
        return;
    };
    let (a, b) = (scene.worker(), scene.worker());
    let (held, first) = scene.take(&a).await;
    assert_eq!(a.ask(Do::Write { hold: held }).await.unwrap(), Answer::Yes);
    a.stop().unwrap();
    let stopped = Instant::now();
    let (hold, second) = scene.take(&b).await;
    let took = stopped.elapsed();
    assert!(second > first);
    assert!(
        (NOT_BEFORE..scene.recovery(false)).contains(&took),
        "after {took:?}"
    );
    assert_eq!(b.ask(Do::Write { hold }).await.unwrap(), Answer::Yes);
    a.resume().unwrap();
    let resumed = Instant::now();
    // Its first word is the truth, and what it writes all the same is refused.
    assert!(!is_held(&a, held).await);
    let told = loss(&a, held).await - resumed;
    assert!(told < SECOND, "told after {told:?}");
    assert_eq!(a.ask(Do::Write { hold: held }).await.unwrap(), Answer::No);
    assert!(is_held(&b, hold).await);
    assert_eq!(release(&b, hold).await, Answer::Yes);
}

async fn a_hundred_waiters_whose_process_dies_are_passed(engine: Engine) {
    const WAITERS: usize = 100;
    let Some(scene) = Scene::start(engine, 1, TTL).await else {
        return;
    };
    let (a, doomed, b) = (scene.worker(), scene.worker(), scene.worker());
    let admin = Locks::connect(&scene.url(None)).await.unwrap();
    let in_line = async |n: usize| {
        let look = async || (admin.inspect("k").await.ok()?.waiters.len() == n).then_some(());
        eventually(Duration::from_secs(20), look)
            .await
            .expect("all stand in line");
    };
    let (hold, _) = scene.take(&a).await;
    let waits = futures_util::future::join_all((0..WAITERS).map(|_| doomed.ask(Do::Acquire(scene.ask()))));
    tokio::select! {
        _ = waits => panic!("a waiter was answered"),
        () = in_line(WAITERS) => {}
    }
    let freed = async {
        in_line(WAITERS + 1).await;
        doomed.kill9().unwrap();
        assert_eq!(release(&a, hold).await, Answer::Yes);
        Instant::now()
    };
    let (_, freed) = join!(scene.take(&b), freed);
    let took = freed.elapsed();
    assert!(took < scene.recovery(false), "after {took:?}");
    let look = async || admin.inspect("k").await.ok()?.waiters.is_empty().then_some(());
    eventually(Duration::from_secs(10), look)
        .await
        .expect("nothing is left in line");
}

/// The wall clock of a holder and of a waiter jumps by an hour, both ways, while they hold and wait.
async fn the_clients_clock_does_not_matter(engine: Engine) {
    let Some(mut scene) = Scene::start(engine, 1, TTL).await else {
        return;
    };
    let Some(clock) = or_skip(FakeClock::new()) else {
        return;
    };
    for (name, value) in clock.env() {
        let text = |text: std::ffi::OsString| text.into_string().unwrap();
        scene.fleet.env.push((text(name), text(value)));
    }
    let (a, b) = (scene.worker(), scene.worker());
    let (hold, _) = scene.take(&a).await;
    let jumps = async {
        for offset in [3600, -3600, 0] {
            clock.set(offset).unwrap();
            stays_held(&a, hold, TTL).await;
        }
        assert_eq!(release(&a, hold).await, Answer::Yes);
        Instant::now()
    };
    let ((next, _), released) = join!(scene.take(&b), jumps);
    let took = released.elapsed();
    assert!(took < SECOND, "after {took:?}");
    assert_eq!(release(&b, next).await, Answer::Yes);
}
