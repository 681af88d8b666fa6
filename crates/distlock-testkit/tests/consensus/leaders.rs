//! Servers that die, stop, come back and are cut off, while a lock is held and waited for.

use std::time::{Duration, Instant};

use distlock_testkit::servers::Cut;
use distlock_testkit::worker::{Answer, Do, Worker};
use tokio::join;

use crate::scene::{Engine, Scene, is_held, loss, on_both, release, stays_held};

const SECOND: Duration = Duration::from_secs(1);
/// Long enough to outlive a change of leaders, also when it takes several elections on a busy machine.
const TTL: Duration = Duration::from_secs(20);
/// Within which the others serve when the leader is gone. Clients notice a silent server by a time-out only, on
/// ZooKeeper a fifth of the session's.
const FAILOVER: Duration = Duration::from_secs(10);
/// From the release, once both clients are served: a server that was cut off may just be coming back. 2.4 s, and one
/// for a busy machine.
const HAND_ON: Duration = Duration::from_millis(3400);

on_both! {
    a_leader_that_is_killed_costs_neither_hold_nor_place
    a_leader_that_stops_costs_neither_hold_nor_place
    servers_that_restart_in_turn_cost_neither_hold_nor_place
    a_leader_that_is_cut_off_costs_neither_hold_nor_place
    a_leader_that_hears_nothing_costs_neither_hold_nor_place
    a_holder_that_reaches_the_cut_off_leader_alone_is_told_before_the_next_grant
}

/// One holds, the other waits; something happens to the servers; the hold is there afterwards, and so is the place.
async fn outlives(scene: &mut Scene, mut happens: impl AsyncFnMut(&mut Scene, &Worker)) {
    let (a, b, other) = (scene.worker(), scene.worker(), scene.worker());
    let (hold, first) = scene.take(&a).await;
    scene.serves(&other, FAILOVER).await;
    let mut waiting = std::pin::pin!(b.ask(Do::Acquire(scene.ask())));
    tokio::select! {
        answer = &mut waiting => panic!("granted beside the holder: {answer:?}"),
        () = happens(scene, &other) => {}
    }
    // Each may be the last to have noticed.
    tokio::select! {
        answer = &mut waiting => panic!("granted beside the holder: {answer:?}"),
        () = async {
            scene.serves(&a, FAILOVER).await;
            scene.serves(&b, FAILOVER).await;
        } => {}
    }
    assert!(is_held(&a, hold).await, "the hold was lost");
    let freed = async {
        // "No" when the answer was lost with its connection: the core says `Unsure` then.
        release(&a, hold).await;
        Instant::now()
    };
    let (answer, freed) = join!(waiting, freed);
    let (next, second) = crate::scene::granted(answer.unwrap());
    assert!(freed.elapsed() < HAND_ON, "granted after {:?}", freed.elapsed());
    assert!(second > first);
    assert_eq!(release(&b, next).await, Answer::Yes);
}

async fn a_leader_that_is_killed_costs_neither_hold_nor_place(engine: Engine) {
    let Some(mut scene) = Scene::start(engine, 3, TTL).await else {
        return;
    };
    outlives(&mut scene, async |scene, other| {
        let leader = scene.strike().await;
        scene.server(leader).kill9().unwrap();
        scene.serves(other, FAILOVER).await;
    })
    .await;
}

async fn a_leader_that_stops_costs_neither_hold_nor_place(engine: Engine) {
    let Some(mut scene) = Scene::start(engine, 3, TTL).await else {
        return;
    };
    outlives(&mut scene, async |scene, other| {
        let leader = scene.strike().await;
        scene.server(leader).pause().unwrap();
        scene.serves(other, FAILOVER).await;
        scene.server(leader).resume().unwrap();
    })
    .await;
}

async fn servers_that_restart_in_turn_cost_neither_hold_nor_place(engine: Engine) {
    let Some(mut scene) = Scene::start(engine, 3, TTL).await else {
        return;
    };
    outlives(&mut scene, async |scene, other| {
        for n in 0..3 {
            scene.server(n).kill9().unwrap();
            scene.restart(n).await;
            scene.serves(other, FAILOVER).await;
        }
    })
    .await;
}

async fn cut_off(engine: Engine, cut: Cut) {
    let Some(mut scene) = Scene::start_on_hosts(engine, TTL).await else {
        return;
    };
    outlives(&mut scene, async |scene, other| {
        let leader = scene.strike().await;
        scene.net().cut(leader, cut).unwrap();
        scene.serves(other, FAILOVER).await;
        scene.net().heal();
    })
    .await;
}

async fn a_leader_that_is_cut_off_costs_neither_hold_nor_place(engine: Engine) {
    cut_off(engine, Cut::Both).await;
}

async fn a_leader_that_hears_nothing_costs_neither_hold_nor_place(engine: Engine) {
    cut_off(engine, Cut::Deaf).await;
}

/// The holder's only server is cut off from the others with it, and cannot tell it of anything.
async fn a_holder_that_reaches_the_cut_off_leader_alone_is_told_before_the_next_grant(engine: Engine) {
    let Some(mut scene) = Scene::start_on_hosts(engine, SECOND * 4).await else {
        return;
    };
    let leader = scene.leader().await;
    let b = scene.worker();
    scene.fleet.url = scene.url(Some(leader));
    let a = scene.worker();
    let (hold, first) = scene.take(&a).await;
    let mut waiting = std::pin::pin!(scene.take(&b));
    tokio::select! {
        granted = &mut waiting => panic!("granted beside the holder: {granted:?}"),
        () = stays_held(&a, hold, SECOND) => {}
    }
    scene.net().cut(leader, Cut::Both).unwrap();
    let cut = Instant::now();
    let granted = async {
        let (_, second) = waiting.await;
        (second, Instant::now())
    };
    let (told, (second, granted)) = join!(loss(&a, hold), granted);
    assert!(told < granted, "told {:?} after the next grant", told - granted);
    assert!(second > first);
    let took = granted - cut;
    assert!(took < scene.recovery(true), "granted after {took:?}");
}
