//! Nodes that come back without their data.

use distlock_core::ErrorKind;
use distlock_core::quorum::{RestartGuard, Rules};

use super::world::{KEY, MS, TTL, World};

const STRICT: Rules = Rules {
    node_timeout: std::time::Duration::from_millis(50),
    max_ttl: TTL,
    restart_guard: RestartGuard::Strict,
};

/// A holds on nodes 0, 1 and 2; node 2 forgets; B reaches 2, 3 and 4 as well as the others.
#[tokio::test]
async fn a_node_that_restarted_empty_gives_no_second_majority() {
    let world = World::new();
    let (a, b) = (world.client(), world.client());
    world.cut(&a, &[3, 4]);
    let guard = world.take(&a).await;
    world.cut(&a, &[]);
    world.faults(2).restart_empty();
    assert!(world.run(b.mutex(KEY).try_acquire()).await.unwrap().is_none());
    // Also when the two that remember cannot be reached by B: then there are three that say yes, one of them newborn.
    world.cut(&b, &[0, 1]);
    let e = world.run(b.mutex(KEY).try_acquire()).await.unwrap_err();
    assert_eq!(e.kind(), ErrorKind::NoQuorum);
    assert!(
        e.to_string()
            .contains("node 2: restarted empty, no vote for another"),
        "{e}"
    );
    // Two of five renew it: A loses it by its own clock before the newborn may vote.
    let lost = guard.lost();
    world.time.advance(TTL).await;
    drop(lost);
    assert!(!guard.is_held());
    drop(world.take(&b).await);
}

/// The same, but somebody vouched for the node that forgot: this is what the rule prevents.
#[tokio::test]
async fn without_the_rule_the_same_node_gives_a_second_majority() {
    let world = World::new();
    let (a, b) = (world.client(), world.client());
    world.cut(&a, &[3, 4]);
    let guard = world.take(&a).await;
    world.faults(2).restart_empty();
    world.faults(2).vouch();
    world.cut(&b, &[0, 1]);
    let other = world.take(&b).await;
    assert!(guard.is_held() && other.is_held(), "two holders at once");
}

#[tokio::test]
async fn a_new_deployment_grants_at_once_and_a_strict_one_says_how_long_it_waits() {
    let world = World::new();
    let (lenient, strict) = (world.client(), world.client_with(STRICT));
    for node in 0..5 {
        world.faults(node).restart_empty();
    }
    let guard = world.take(&lenient).await;
    world.run(guard.release()).await.unwrap();
    let e = world.run(strict.mutex(KEY).try_acquire()).await.unwrap_err();
    assert_eq!(e.kind(), ErrorKind::NoQuorum);
    assert!(e.to_string().contains("no vote for another"), "{e}");
    let start = world.time.now();
    let waits = strict.mutex(KEY).wait(TTL * 2);
    let guard = world.run(waits.acquire()).await.unwrap();
    let waited = world.time.now().since(start);
    assert!(
        waited >= TTL - 100 * MS && waited < TTL + 1100 * MS,
        "granted after {waited:?}"
    );
    world.run(guard.release()).await.unwrap();
}

#[tokio::test]
async fn a_deployment_that_somebody_vouches_for_grants_at_once() {
    let world = World::new();
    let strict = world.client_with(STRICT);
    for node in 0..5 {
        world.faults(node).restart_empty();
        world.faults(node).vouch();
    }
    drop(world.take(&strict).await);
}
