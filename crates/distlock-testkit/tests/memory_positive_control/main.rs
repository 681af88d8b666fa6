//! The suite finds what is broken: a memory engine with one sabotage at a time, and the cases that must turn red.

use std::sync::Arc;
use std::time::Duration;

use distlock_core::driver::Driver;
use distlock_core::engine::Engine;
use distlock_core::memory::Memory;
use distlock_testkit::conformance::{Client, Connected, Deployment, Outcome, cases, prove};
use futures_util::future::join_all;

mod wrong;

use self::wrong::Wrong;

/// One way to be wrong, and the cases that must notice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sabotage {
    TwoHoldersOfAMutex,
    ReadersAreAlone,
    OneSlotTooMany,
    SizesAreIgnored,
    WritersShare,
    KeysLoseTheirCase,
    KeysLoseTheirEnd,
    ClaimsAskAtOnce,
    LeasesNeverEnd,
    TriesQueue,
    FifoIsIgnored,
    AnotherOrderIsPromised,
    NoBell,
    RecheckIsZero,
    NoTokens,
    TheSameToken,
    SlotsHaveTokens,
    ValidFromTheReply,
    ClaimsServeForEver,
    ReleasesAreForgotten,
    ReleasesAlwaysSayFreed,
    AnyoneReleases,
    KeepIsIgnored,
    RenewalsAlwaysSayGood,
    RenewalsAcquire,
    RenewalsAreOneShort,
    RenewalsAreNotSent,
    RenewalsForgetTheirTtl,
    AnyTtlGoes,
    ListIsUnsorted,
    NobodyIsSeen,
    HereIsEverywhere,
    BreakIsBlind,
    BreakHasNoGrace,
    CloseIsIgnored,
}

use Sabotage::*;

const MATRIX: &[(Sabotage, &[&str])] = &[
    (
        TwoHoldersOfAMutex,
        &[
            "one_holder_of_a_mutex",
            "mutex_under_contention",
            "a_waiter_that_asks_again_keeps_one_place",
            "nobody_is_granted_before_the_end",
        ],
    ),
    (
        ReadersAreAlone,
        &[
            "readers_share",
            "shared_releases_free_ones_own",
            "a_writer_that_leaves_rings_all_readers",
        ],
    ),
    (
        OneSlotTooMany,
        &[
            "slots_are_counted",
            "slots_under_contention",
            "fifo_slots_serve_in_order",
        ],
    ),
    (
        SizesAreIgnored,
        &["a_semaphore_has_one_size", "slots_are_counted"],
    ),
    (
        WritersShare,
        &[
            "a_writer_is_alone",
            "readers_and_writers_under_contention",
            "fifo_readers_wait_behind_a_writer",
        ],
    ),
    (KeysLoseTheirCase, &["unusual_keys_are_distinct"]),
    (
        KeysLoseTheirEnd,
        &["unusual_keys_are_distinct", "a_hundred_keys_at_once"],
    ),
    (ClaimsAskAtOnce, &["an_unused_claim_leaves_no_trace"]),
    (
        LeasesNeverEnd,
        &[
            "a_lease_that_is_not_renewed_ends",
            "a_waiter_succeeds_a_dead_holder",
            "the_lock_of_a_dead_client_becomes_free",
            "a_dead_waiter_is_passed",
        ],
    ),
    (TriesQueue, &["a_try_never_queues"]),
    (
        FifoIsIgnored,
        &[
            "any_never_passes_fifo",
            "fifo_serves_in_order",
            "fifo_survives_a_leaver",
        ],
    ),
    (AnotherOrderIsPromised, &["what_is_not_promised_is_refused"]),
    (
        NoBell,
        &[
            "a_release_rings_a_waiter",
            "no_wake_up_is_lost",
            "everyone_is_served",
            "a_waiter_is_told_of_a_break",
        ],
    ),
    (RecheckIsZero, &["one_holder_of_a_mutex"]),
    (NoTokens, &["exclusive_holds_have_tokens", "tokens_grow"]),
    (
        TheSameToken,
        &[
            "tokens_grow",
            "writers_tokens_grow",
            "tokens_grow_over_an_expiry",
            "tokens_grow_when_the_key_was_idle",
            "an_attempt_after_a_dropped_one_finds_its_token",
        ],
    ),
    (SlotsHaveTokens, &["exclusive_holds_have_tokens"]),
    (ValidFromTheReply, &["validity_is_conservative"]),
    (ClaimsServeForEver, &["a_claim_serves_one_hold"]),
    (
        ReleasesAreForgotten,
        &[
            "keys_do_not_interfere",
            "a_waiter_that_leaves_is_in_nobodys_way",
            "dropped_attempts_leave_no_second_place",
            "dropped_attempts_of_a_waiter_leave_no_ghost",
            "dropped_releases_can_be_repeated",
            "a_claim_moves_between_runtimes",
            "a_key_is_one_kind_of_lock",
            "readers_exclude_a_writer",
            "keep_of_a_waiter_keeps_nothing",
            "a_lease_outlives_its_client",
        ],
    ),
    (
        ReleasesAlwaysSayFreed,
        &["release_in_every_state", "a_late_release_frees_nobody_else"],
    ),
    (
        AnyoneReleases,
        &[
            "release_by_a_stranger_changes_nothing",
            "a_late_release_frees_nobody_else",
        ],
    ),
    (KeepIsIgnored, &["keep_leaves_a_record"]),
    (
        RenewalsAlwaysSayGood,
        &[
            "renewal_of_a_released_hold_never_acquires",
            "renewal_of_an_expired_hold_never_acquires",
            "renewal_by_a_stranger_changes_nothing",
            "renewal_in_batches",
            "a_broken_lock_is_lost",
            "a_break_can_give_grace",
        ],
    ),
    (
        RenewalsAcquire,
        &[
            "renewal_of_a_released_hold_never_acquires",
            "renewal_of_an_expired_hold_never_acquires",
        ],
    ),
    (RenewalsAreOneShort, &["renewal_in_batches"]),
    (RenewalsAreNotSent, &["renewal_prolongs"]),
    (RenewalsForgetTheirTtl, &["extension_can_be_longer"]),
    (AnyTtlGoes, &["ttl_out_of_range_is_refused"]),
    (ListIsUnsorted, &["locks_are_listed_in_pages"]),
    (
        NobodyIsSeen,
        &["holders_are_shown", "waiters_are_shown", "a_watch_shows_changes"],
    ),
    (HereIsEverywhere, &["holders_are_shown"]),
    (BreakIsBlind, &["a_break_can_name_the_token"]),
    (BreakHasNoGrace, &["a_break_can_give_grace"]),
    (CloseIsIgnored, &["closing_ends_a_client_and_nobody_else"]),
];

struct Sabotaged {
    memory: Memory,
    how: Sabotage,
}

#[async_trait::async_trait]
impl Deployment for Sabotaged {
    async fn client(&self) -> Connected {
        Client::start(async |engine: Engine| {
            let inner = self.memory.driver(engine.clone());
            let driver: Arc<dyn Driver> = Arc::new(Wrong {
                inner,
                engine,
                how: self.how,
            });
            Ok(driver)
        })
        .await
    }

    fn ttl(&self) -> Duration {
        Duration::from_millis(200)
    }

    fn slack(&self) -> Duration {
        Duration::from_millis(500)
    }

    fn patience(&self) -> Duration {
        Duration::from_millis(1500)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_sabotage_turns_its_cases_red() {
    let pairs = MATRIX
        .iter()
        .flat_map(|(how, names)| names.iter().map(move |name| (*how, *name)));
    let missed = join_all(pairs.map(async |(how, name)| {
        let case = cases()
            .find(|case| case.name == name)
            .unwrap_or_else(|| panic!("no case {name}"));
        match prove(
            &case,
            Arc::new(Sabotaged {
                memory: Memory::new(),
                how,
            }),
        )
        .await
        {
            Outcome::Failed(_) => None,
            other => Some(format!("{name} does not notice {how:?}: {other:?}")),
        }
    }))
    .await;
    let missed: Vec<_> = missed.into_iter().flatten().collect();
    assert!(missed.is_empty(), "{missed:#?}");
}

#[test]
fn every_case_can_fail() {
    let red: Vec<&str> = MATRIX
        .iter()
        .flat_map(|(_, names)| names.iter().copied())
        .collect();
    let green: Vec<&str> = cases()
        .map(|case| case.name)
        .filter(|name| !red.contains(name))
        .collect();
    assert!(green.is_empty(), "no sabotage reaches {green:?}");
}
