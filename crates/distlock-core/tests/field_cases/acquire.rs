//! Owners, and grants whose reply was lost.

use std::collections::HashSet;

use distlock_core::memory::{Call, Fault, Rule};
use distlock_core::{ErrorKind, OwnerId};

use crate::{MS, SECS, Scene};

#[tokio::test]
async fn f02_a_grant_whose_reply_was_lost_blocks_nobody_for_its_ttl() {
    let late = Fault::Late(SECS(3));
    for fault in [
        Fault::LostReply,
        Fault::SilentApplied,
        late,
        Fault::LateLost(SECS(3)),
    ] {
        let scene = Scene::new();
        let a = scene.client();
        let faults = scene.memory.faults();
        faults.add(Rule::new(Call::Try, fault).of(a.id()).always());
        let tried = tokio::spawn(a.mutex("k").ttl(SECS(30)).wait(MS(200)).acquire());
        scene.time.advance(MS(200)).await;
        assert!(tried.is_finished(), "{fault:?}");
        let e = tried.await.unwrap().unwrap_err();
        assert_eq!(e.kind(), ErrorKind::OutcomeUnknown, "{fault:?}: {e}");
        faults.clear();
        // Also when the grant arrives only now, after A has gone.
        scene.time.advance(SECS(3)).await;
        let waited = scene.wait_for("k", SECS(5)).await;
        assert!(waited <= SECS(2), "{fault:?}: {waited:?}");
        assert!(scene.client().inspect("k").await.unwrap().holders.is_empty());
    }
}

#[tokio::test]
async fn f09_no_two_owners_are_ever_the_same() {
    // One process id and a clock that stands still, for all.
    let scene = Scene::new();
    let mut owners: HashSet<OwnerId> = HashSet::new();
    let (mut ones, mut zeros) = (0u128, 0u128);
    for _ in 0..1000 {
        let client = scene.client();
        ones |= client.id().as_u128();
        zeros |= !client.id().as_u128();
        for _ in 0..100 {
            let guard = client.mutex("k").try_acquire().await.unwrap().unwrap();
            assert!(owners.insert(guard.owner()), "{} again", guard.owner());
            guard.release().await.unwrap();
        }
    }
    assert_eq!(owners.len(), 100_000);
    // All bits of the client's part vary, except version and variant.
    assert_eq!((ones & zeros).count_ones(), 122);
}
