//! Nodes that are gone, cut off, silent or late.

use std::time::Duration;

use distlock_core::clock::Clock;
use distlock_core::driver::{Break, Order};
use distlock_core::memory::{Call, Fault, Rule};
use distlock_core::quorum::Rules;
use distlock_core::{Client, ErrorKind, Key, Release};

use super::world::{KEY, MS, TTL, World};

const CALLS: [Call; 3] = [Call::Try, Call::Renew, Call::Release];

#[tokio::test]
async fn two_of_five_cut_off_change_nothing() {
    let world = World::new();
    let (a, b) = (world.client(), world.client());
    world.cut(&a, &[0, 1]);
    let guard = world.take(&a).await;
    assert!(world.run(b.mutex(KEY).try_acquire()).await.unwrap().is_none());
    // Renewed by three of five, for ten leases.
    world.time.advance(TTL * 10).await;
    assert!(guard.is_held());
    world.run(guard.verify()).await.unwrap();
    assert_eq!(world.run(guard.release()).await.unwrap(), Release::Clean);
    assert!(world.holding().await.is_empty());
}

#[tokio::test]
async fn f54_two_silent_nodes_cost_no_time() {
    let world = World::new();
    let a = world.client();
    for node in [1, 3] {
        for call in CALLS {
            world.faults(node).add(Rule::new(call, Fault::Silent).always());
        }
    }
    let start = world.time.now();
    let guard = world.take(&a).await;
    assert_eq!(world.time.now(), start, "the grant waited for a silent node");
    assert_eq!(world.run(guard.release()).await.unwrap(), Release::Clean);
    let took = world.time.now().since(start);
    assert!(took <= 2 * MS, "the release waited {took:?} for a silent node");
}

#[tokio::test]
async fn three_of_five_cut_off_are_no_quorum_and_every_vote_is_named() {
    let world = World::new();
    let a = world.client();
    world.cut(&a, &[0, 2, 4]);
    let e = world.run(a.mutex(KEY).try_acquire()).await.unwrap_err();
    assert_eq!(e.kind(), ErrorKind::NoQuorum);
    let text = e.to_string();
    for (node, vote) in [
        (0, "kept the request"),
        (1, "granted"),
        (2, "kept the request"),
        (3, "granted"),
    ] {
        assert!(
            text.contains(&format!("node {node}: ")) && text.contains(vote),
            "{text}"
        );
    }
    assert!(
        world.holding().await.is_empty(),
        "a refused attempt left something behind"
    );
}

#[tokio::test]
async fn f08_a_refused_attempt_leaves_nodes_whose_answer_was_lost() {
    for fault in [Fault::SilentApplied, Fault::LostReply, Fault::SlowReply(TTL)] {
        let world = World::new();
        let (a, b) = (world.client(), world.client());
        for node in [0, 1, 2] {
            world
                .faults(node)
                .add(Rule::new(Call::Try, fault).of(a.id()).always());
        }
        let e = world.run(a.mutex(KEY).try_acquire()).await.unwrap_err();
        assert_eq!(e.kind(), ErrorKind::NoQuorum, "{fault:?}");
        assert!(
            world.holding().await.is_empty(),
            "{fault:?} left something behind"
        );
        drop(world.take(&b).await);
    }
}

#[tokio::test]
async fn a_grant_that_arrives_after_its_attempt_was_refused_does_not_stay() {
    let world = World::new();
    let (a, b) = (world.client(), world.client());
    for node in [0, 1, 2] {
        // The core tries once more by itself.
        world
            .faults(node)
            .add(Rule::new(Call::Try, Fault::Late(2000 * MS)).of(a.id()).times(2));
    }
    world.cut(&a, &[4]);
    let e = world.run(a.mutex(KEY).try_acquire()).await.unwrap_err();
    assert_eq!(e.kind(), ErrorKind::NoQuorum, "{e}");
    world.time.advance(2000 * MS).await;
    assert_eq!(world.holding().await, [0, 1, 2], "the late requests have arrived");
    let start = world.time.now();
    let wait = b.mutex(KEY).wait(TTL);
    drop(world.run(wait.acquire()).await.unwrap());
    let took = world.time.now().since(start);
    assert!(took < TTL / 2, "late grants were in the way for {took:?}");
}

#[tokio::test]
async fn a_node_that_owes_an_answer_is_not_asked_again() {
    let world = World::new();
    let (a, b) = (world.client(), world.client());
    let guard = world.take(&b).await;
    let sick = world.faults(0);
    sick.record();
    for call in CALLS {
        sick.add(Rule::new(call, Fault::Silent).of(a.id()).always());
    }
    let waits = a.mutex(KEY).wait(TTL / 2);
    let e = world.run(waits.acquire()).await.unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Timeout, "{e}");
    let asked = sick
        .history()
        .iter()
        .filter(|e| e.call == Call::Try && e.owner.client == a.id())
        .count();
    assert_eq!(asked, 1, "a node that does not answer was asked at every attempt");
    drop(guard);
}

#[tokio::test]
async fn a_hold_without_a_majority_ends_by_our_own_clock() {
    let world = World::new();
    let a = world.client();
    let guard = world.take(&a).await;
    world.cut(&a, &[0, 1, 2]);
    world.time.advance(TTL).await;
    assert!(!guard.is_held());
    // Two nodes were renewed to the end; a newcomer must wait for none of them.
    drop(world.take(&world.client()).await);
}

#[tokio::test]
async fn a_hold_that_a_majority_has_lost_is_lost_at_the_next_renewal() {
    let world = World::new();
    let a = world.client();
    let guard = world.take(&a).await;
    let lost = guard.lost();
    for node in [0, 1] {
        world.faults(node).delete(&Key::new(KEY).unwrap());
    }
    world.time.advance(TTL).await;
    assert!(guard.is_held(), "three of five still have it");
    world.faults(2).delete(&Key::new(KEY).unwrap());
    world.run(lost).await;
    assert!(!guard.is_held());
}

#[tokio::test]
async fn tokens_grow_whichever_majority_grants() {
    let world = World::new();
    let clients: Vec<_> = (0..3).map(|_| world.client()).collect();
    // One node is far ahead of the others.
    for _ in 0..50 {
        let alone = Client::builder().clock(Clock::Manual(world.time.clone()));
        let alone = alone.memory(&world.nodes[0]).unwrap();
        alone.mutex(KEY).acquire().await.unwrap().release().await.unwrap();
    }
    let mut last = None;
    for round in 0..300 {
        let client = &clients[round % 3];
        let (x, y) = (round % 5, (round / 5 + 1 + round) % 5);
        world.cut(client, &[x, y]);
        let guard = world.take(client).await;
        assert!(
            guard.token() > last,
            "round {round}: {:?} after {last:?}",
            guard.token()
        );
        last = guard.token();
        world.run(guard.release()).await.unwrap();
    }
}

#[tokio::test]
async fn a_grant_that_took_too_long_is_given_back() {
    let world = World::new();
    let rules = Rules {
        node_timeout: TTL,
        max_ttl: TTL,
        ..Rules::default()
    };
    let a = world.client_with(rules);
    for node in 0..5 {
        world
            .faults(node)
            .add(Rule::new(Call::Try, Fault::SlowReply(TTL - 50 * MS)).always());
    }
    let e = world.run(a.mutex(KEY).try_acquire()).await.unwrap_err();
    assert!(e.to_string().contains("longer than its ttl"), "{e}");
    assert!(world.holding().await.is_empty());
}

#[tokio::test]
async fn a_lease_that_was_waited_for_changes_hands() {
    let world = World::new();
    let (a, b) = (world.client(), world.client());
    let first = world.take(&b).await;
    let waits = a.mutex(KEY).detachable().wait(TTL);
    let (guard, released) = world
        .run(async {
            tokio::join!(waits.acquire(), async {
                Clock::Manual(world.time.clone()).sleep(500 * MS).await;
                first.release().await
            })
        })
        .await;
    assert_eq!(released.unwrap(), Release::Clean);
    let lease = guard.unwrap().detach().unwrap();
    let resumed = world.run(b.resume(&lease)).await.unwrap();
    assert_eq!(resumed.token(), lease.token());
    assert_eq!(world.run(resumed.release()).await.unwrap(), Release::Clean);
    assert!(
        world.holding().await.is_empty(),
        "the lease's release found the wrong owner"
    );
    let again = world.run(a.resume(&lease)).await.unwrap_err();
    assert_eq!(again.kind(), ErrorKind::NotHeld);
}

#[tokio::test]
async fn a_break_reaches_a_majority_and_names_the_token_that_was_given() {
    let world = World::new();
    let (a, b) = (world.client(), world.client());
    let guard = world.take(&a).await;
    world.cut(&b, &[3, 4]);
    let how = Break {
        expect: guard.token(),
        ..Break::default()
    };
    let told = world.run(b.break_lock(KEY, how)).await.unwrap();
    assert_eq!(told.len(), 1);
    assert_eq!(told[0].token, guard.token());
    world.run(guard.lost()).await;
    world.cut(&b, &[0, 1, 2]);
    let e = world.run(b.inspect(KEY)).await.unwrap_err();
    assert_eq!(e.kind(), ErrorKind::NoQuorum, "{e}");
}

#[tokio::test]
async fn a_release_that_a_majority_did_not_answer_is_not_said_to_be_done() {
    let world = World::new();
    let a = world.client();
    let guard = world.take(&a).await;
    for node in [0, 1, 2] {
        world
            .faults(node)
            .add(Rule::new(Call::Release, Fault::LostReply).times(1));
    }
    // The core asks again; by then all nodes have let go.
    let released = world.run(guard.release()).await;
    assert!(
        matches!(released, Ok(Release::Clean | Release::Unsure)),
        "{released:?}"
    );
    assert!(world.holding().await.is_empty());
}

#[tokio::test]
async fn fifo_semaphores_and_long_leases_are_refused_before_anything_is_sent() {
    let world = World::new();
    let a = world.client();
    let fifo = a.mutex(KEY).order(Order::Fifo).try_acquire().await;
    assert_eq!(fifo.unwrap_err().kind(), ErrorKind::Unsupported);
    let permits = a.semaphore(KEY, 3).try_acquire().await;
    assert_eq!(permits.unwrap_err().kind(), ErrorKind::Unsupported);
    let long = a.mutex(KEY).ttl(TTL + Duration::from_secs(1)).try_acquire().await;
    let e = long.unwrap_err();
    assert_eq!(e.kind(), ErrorKind::InvalidConfig);
    assert!(
        e.to_string().contains("max_ttl") || e.to_string().contains("10s"),
        "{e}"
    );
}
