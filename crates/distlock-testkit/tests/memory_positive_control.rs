//! The suite finds what is broken: a memory engine with one sabotage at a time, and the cases that must turn red.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use distlock_core::bell::Bell;
use distlock_core::clock::Clock;
use distlock_core::driver::{
    Break, Claim, Driver, DriverError, Grant, Hold, Holder, Inspect, Line, LockInfo, Mode, Order, Orders,
    Promises, Released, Renewal, Standing, Want,
};
use distlock_core::engine::Engine;
use distlock_core::memory::Memory;
use distlock_core::{FencingToken, Key};
use distlock_testkit::conformance::{Client, Connected, Deployment, Outcome, cases, prove};
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, join_all};

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

struct Wrong {
    inner: Arc<dyn Driver>,
    engine: Engine,
    how: Sabotage,
}

impl fmt::Debug for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a memory engine with {:?}", self.how)
    }
}

impl Driver for Wrong {
    fn promises(&self) -> Promises {
        let mut promises = self.inner.promises();
        if self.how == AnotherOrderIsPromised {
            promises.order = Orders::Any;
        }
        promises
    }

    fn claim(&self, want: Arc<Want>) -> Result<Box<dyn Claim>, DriverError> {
        let mut changed = Want {
            key: want.key.clone(),
            owner: want.owner,
            mode: want.mode,
            order: want.order,
            line: want.line,
            life: want.life,
            ttl: want.ttl,
            label: want.label.clone(),
            reason: want.reason.clone(),
            bell: want.bell.clone(),
        };
        match (self.how, want.mode) {
            (TwoHoldersOfAMutex, Mode::Mutex) => changed.mode = Mode::Slot { of: 2 },
            (ReadersAreAlone, Mode::Read) => changed.mode = Mode::Write,
            (OneSlotTooMany, Mode::Slot { of }) => changed.mode = Mode::Slot { of: of + 1 },
            (SizesAreIgnored, Mode::Slot { .. }) => changed.mode = Mode::Slot { of: 100 },
            (WritersShare, Mode::Write) => changed.mode = Mode::Read,
            (KeysLoseTheirEnd, _) => {
                let mut name: Vec<char> = want.key.as_str().chars().collect();
                name.pop();
                changed.key = Key::new(name.into_iter().collect::<String>()).unwrap();
            }
            (LeasesNeverEnd, _) => {
                changed.ttl = Duration::from_secs(3600);
                changed.order = Order::Fifo;
            }
            (KeysLoseTheirCase, _) => changed.key = Key::new(want.key.as_str().to_lowercase()).unwrap(),
            (TriesQueue, _) => {
                changed.line = Line::Join;
                changed.order = Order::Fifo;
            }
            (FifoIsIgnored, _) => changed.order = Order::Any,
            (NoBell, _) => changed.bell = Bell::new(),
            (AnyTtlGoes, _) => changed.ttl = want.ttl.clamp(Duration::from_secs(1), Duration::from_secs(60)),
            _ => {}
        }
        let changed = Arc::new(changed);
        if self.how == ClaimsAskAtOnce {
            let early = self.inner.claim(changed.clone())?.try_acquire().now_or_never();
            drop(early);
        }
        let again = self.how == ClaimsServeForEver;
        Ok(Box::new(WrongClaim {
            claim: self.inner.claim(changed.clone())?,
            again: again.then(|| (self.inner.clone(), changed.clone())),
            inner: self.inner.clone(),
            clock: self.engine.clock().clone(),
            want: changed,
            how: self.how,
        }))
    }

    fn renew<'a>(
        &'a self,
        holds: &'a [Hold],
        answer: &'a (dyn Fn(usize, Renewal) + Send + Sync),
    ) -> BoxFuture<'a, ()> {
        let one = async move |(at, hold): (usize, &Hold)| {
            let answer = |_: usize, renewal| {
                let renewal = match (self.how, renewal) {
                    (RenewalsAlwaysSayGood, _) => Renewal::Good(self.engine.clock().now() + hold.ttl),
                    (_, renewal) => renewal,
                };
                if self.how != RenewalsAreOneShort || at + 1 < holds.len() {
                    answer(at, renewal);
                }
            };
            if self.how == RenewalsAreNotSent {
                return answer(0, Renewal::Good(self.engine.clock().now() + hold.ttl));
            }
            if self.how == RenewalsAcquire
                && let Ok(Standing::Held(grant)) =
                    self.inner.claim(hold.want.clone()).unwrap().try_acquire().await
            {
                return answer(0, Renewal::Good(grant.valid_until));
            }
            let mut hold = hold.clone();
            if self.how == RenewalsForgetTheirTtl {
                hold.ttl = hold.want.ttl;
            }
            self.inner.renew(&[hold], &answer).await;
        };
        Box::pin(async move {
            join_all(holds.iter().enumerate().map(one)).await;
        })
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        if self.how == CloseIsIgnored {
            return Box::pin(async {});
        }
        self.inner.close()
    }

    fn inspect(&self) -> Option<&dyn Inspect> {
        Some(self)
    }
}

#[async_trait::async_trait]
impl Inspect for Wrong {
    async fn list(
        &self,
        prefix: &str,
        after: Option<&Key>,
        limit: usize,
    ) -> Result<Vec<LockInfo>, DriverError> {
        let mut page = self.inner.inspect().unwrap().list(prefix, after, limit).await?;
        if self.how == ListIsUnsorted {
            page.reverse();
        }
        Ok(page)
    }

    async fn inspect(&self, key: &Key) -> Result<LockInfo, DriverError> {
        let mut info = self.inner.inspect().unwrap().inspect(key).await?;
        match self.how {
            NobodyIsSeen => info = LockInfo::free(key.clone()),
            HereIsEverywhere => info.holders.iter_mut().for_each(|h| h.here = true),
            _ => {}
        }
        Ok(info)
    }

    async fn break_lock(&self, key: &Key, how: &Break) -> Result<Vec<Holder>, DriverError> {
        let mut how = how.clone();
        match self.how {
            BreakIsBlind => how.expect = None,
            BreakHasNoGrace => how.grace = Duration::ZERO,
            _ => {}
        }
        self.inner.inspect().unwrap().break_lock(key, &how).await
    }
}

struct WrongClaim {
    claim: Box<dyn Claim>,
    again: Option<(Arc<dyn Driver>, Arc<Want>)>,
    inner: Arc<dyn Driver>,
    clock: Clock,
    want: Arc<Want>,
    how: Sabotage,
}

impl fmt::Debug for WrongClaim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.claim.fmt(f)
    }
}

impl WrongClaim {
    fn grant(&self, mut grant: Grant) -> Grant {
        match self.how {
            NoTokens => grant.token = None,
            TheSameToken => grant.token = grant.token.map(|_| FencingToken::new(7)),
            SlotsHaveTokens => grant.token = Some(FencingToken::new(7)),
            ValidFromTheReply => grant.valid_until = self.clock.now() + self.want.ttl,
            _ => {}
        }
        grant
    }
}

#[async_trait::async_trait]
impl Claim for WrongClaim {
    async fn try_acquire(&mut self) -> Result<Standing, DriverError> {
        if let Some((driver, want)) = &self.again {
            self.claim = driver.claim(want.clone())?;
        }
        let standing = self.claim.try_acquire().await?;
        if self.how == ValidFromTheReply {
            // The way of the reply.
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        Ok(match standing {
            Standing::Held(grant) => Standing::Held(self.grant(grant)),
            Standing::Waiting {
                holder,
                ahead,
                recheck,
            } => {
                let recheck = if self.how == RecheckIsZero {
                    Duration::ZERO
                } else {
                    recheck
                };
                Standing::Waiting {
                    holder,
                    ahead,
                    recheck,
                }
            }
        })
    }

    async fn release(&mut self, keep: Option<Duration>) -> Result<Released, DriverError> {
        match self.how {
            ReleasesAreForgotten => Ok(Released::Freed),
            ReleasesAlwaysSayFreed => self.claim.release(keep).await.map(|_| Released::Freed),
            KeepIsIgnored => self.claim.release(None).await,
            AnyoneReleases => {
                let eyes = self.inner.inspect().unwrap();
                let freed = !eyes
                    .break_lock(&self.want.key, &Break::default())
                    .await?
                    .is_empty();
                self.claim.release(None).await?;
                Ok(if freed { Released::Freed } else { Released::NotHeld })
            }
            _ => self.claim.release(keep).await,
        }
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
