//! The list of cases, from which both the tests and the report are made.

use std::fmt;

use distlock_core::driver::{Driver, Orders, TokenPromise, Wakes};
use futures_util::future::BoxFuture;

use super::trial::{Proof, Trial};

/// The criteria by which a production lock is judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Criterion {
    /// At most one holder, and tokens that protect the data when a holder is late.
    MutualExclusion,
    /// The lock of a holder that died becomes free by itself.
    NoDeadlock,
    /// The same contender that asks again finds its own place.
    Reentrancy,
    /// Requests that fail or are given up leave nothing behind, and clients do not depend on each other.
    Availability,
    /// Waiters are told, each turn wakes no herd, renewals go in batches.
    Performance,
    /// Only the owner releases.
    SafeRelease,
    /// First come, first served, on demand.
    Fairness,
    /// The lease is prolonged while the work goes on, and never after it was lost.
    Renewal,
}

impl Criterion {
    /// All eight, in their usual order.
    pub const ALL: [Self; 8] = [
        Self::MutualExclusion,
        Self::NoDeadlock,
        Self::Reentrancy,
        Self::Availability,
        Self::Performance,
        Self::SafeRelease,
        Self::Fairness,
        Self::Renewal,
    ];
}

impl fmt::Display for Criterion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::MutualExclusion => "mutual exclusion",
            Self::NoDeadlock => "no deadlock after a crash",
            Self::Reentrancy => "reentrancy",
            Self::Availability => "high availability",
            Self::Performance => "performance",
            Self::SafeRelease => "safe release",
            Self::Fairness => "fairness",
            Self::Renewal => "renewal",
        })
    }
}

/// Whether an engine offers what a case needs; otherwise what is missing.
pub(super) type Needs = fn(&dyn Driver) -> Result<(), &'static str>;

/// One thing that an engine must do.
#[derive(Clone, Copy)]
pub struct Case {
    /// Its name; the name of the test that [`conformance!`](crate::conformance!) makes of it.
    pub name: &'static str,
    /// What it proves.
    pub about: &'static str,
    /// The criterion that it belongs to.
    pub criterion: Criterion,
    pub(super) needs: &'static [Needs],
    pub(super) prove: for<'a> fn(&'a Trial) -> BoxFuture<'a, Proof>,
}

impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Case")
            .field("name", &self.name)
            .field("criterion", &self.criterion)
            .finish_non_exhaustive()
    }
}

macro_rules! need {
    ($($name:ident: |$promises:ident| $promised:expr, $missing:literal;)+) => {$(
        fn $name(driver: &dyn Driver) -> Result<(), &'static str> {
            let $promises = driver.promises();
            if $promised { Ok(()) } else { Err($missing) }
        }
    )+};
}

need! {
    shared: |p| p.shared, "the engine has no read/write locks";
    slots: |p| p.slots, "the engine has no semaphores";
    tokens: |p| p.token != TokenPromise::None, "the engine has no tokens";
    fifo: |p| p.order != Orders::Any, "the engine has no FIFO order";
    mixed: |p| p.order == Orders::AnyOrFifo, "the engine has only one order";
    notified: |p| p.wakes == Wakes::Notified, "the engine does not notify";
    leases: |p| p.lease_records, "the engine has no holds that live by their TTL alone";
    keep: |p| p.keep, "a release cannot leave a record";
}

fn eyes(driver: &dyn Driver) -> Result<(), &'static str> {
    driver
        .inspect()
        .map(|_| ())
        .ok_or("the engine cannot be looked into")
}

/// Hands the list of cases to another macro: `module::case [criterion] (needs) "what it proves";`.
#[doc(hidden)]
#[macro_export]
macro_rules! __conformance_cases {
    ($with:path, $($args:tt)*) => { $with! { ($($args)*)
        exclusion::one_holder_of_a_mutex [MutualExclusion] () "one holder of a mutex at a time, across and within clients";
        exclusion::mutex_under_contention [MutualExclusion] () "many contenders of several clients: never two inside, and all get in";
        exclusion::readers_share [MutualExclusion] (shared) "readers hold together";
        exclusion::a_writer_is_alone [MutualExclusion] (shared) "a writer excludes readers and writers";
        exclusion::readers_exclude_a_writer [MutualExclusion] (shared) "a writer gets in after the last reader";
        exclusion::readers_and_writers_under_contention [MutualExclusion] (shared) "many readers and writers: a writer is always alone";
        exclusion::slots_are_counted [MutualExclusion] (slots) "as many holders as slots, and one more when one leaves";
        exclusion::slots_under_contention [MutualExclusion] (slots) "many contenders: never more inside than there are slots";
        exclusion::keys_do_not_interfere [MutualExclusion] () "a hold of one key is in nobody's way at another";
        exclusion::unusual_keys_are_distinct [MutualExclusion] () "slashes, dots, braces, blanks, case, Unicode and 512 bytes: every key is its own lock";
        exclusion::a_hundred_keys_at_once [Availability] () "one client asks for a hundred keys at once";
        refusals::a_key_is_one_kind_of_lock [MutualExclusion] () "another kind on a key in use is refused, and allowed once it is free";
        refusals::a_semaphore_has_one_size [MutualExclusion] (slots) "another number of permits is refused, naming both";
        refusals::ttl_out_of_range_is_refused [Renewal] () "a TTL that the engine cannot keep is refused before anything is sent";
        refusals::what_is_not_promised_is_refused [Availability] () "modes, orders and lives that are not promised are refused as unsupported";
        attempts::a_try_never_queues [Availability] () "a single try that finds the lock taken leaves nothing behind";
        attempts::an_unused_claim_leaves_no_trace [Availability] () "a claim that is dropped unused is in nobody's way";
        attempts::a_claim_serves_one_hold [Reentrancy] () "after a grant or a release, try_acquire answers Closed";
        attempts::a_waiter_that_asks_again_keeps_one_place [Reentrancy] () "asking again finds the contender's own place";
        attempts::dropped_attempts_leave_no_second_place [Reentrancy] () "attempts dropped at every poll, then repeated: one hold, freed by one release";
        attempts::dropped_attempts_of_a_waiter_leave_no_ghost [Availability] () "attempts dropped at random, then given up: nobody waits for a ghost";
        attempts::an_attempt_after_a_dropped_one_finds_its_token [Reentrancy] (tokens) "tokens grow over dropped and repeated attempts";
        attempts::dropped_releases_can_be_repeated [Availability] () "releases dropped at every poll, then repeated: the lock is free";
        attempts::a_claim_moves_between_runtimes [Availability] () "acquired on one runtime, released on another, after the first has ended";
        tokens::exclusive_holds_have_tokens [MutualExclusion] () "exclusive holds have a token exactly if promised; shared and slot holds never";
        tokens::tokens_grow [MutualExclusion] (tokens) "each exclusive hold has a larger token than all before";
        tokens::writers_tokens_grow [MutualExclusion] (shared, tokens) "each writer has a larger token than all before";
        tokens::tokens_grow_over_an_expiry [MutualExclusion] (leases, tokens) "the successor of an expired hold has a larger token";
        tokens::tokens_grow_when_the_key_was_idle [MutualExclusion] (tokens) "many other keys in between do not make a key forget its token";
        renewal::renewal_prolongs [Renewal] (leases) "a renewed hold outlives its first lease";
        renewal::extension_can_be_longer [Renewal] (leases) "a renewal sets the lease that it names";
        renewal::a_lease_that_is_not_renewed_ends [NoDeadlock] (leases) "the TTL passes without renewal: the lock is free";
        renewal::nobody_is_granted_before_the_end [MutualExclusion] (leases) "a hold is nobody else's before its valid_until";
        renewal::validity_is_conservative [MutualExclusion] () "valid_until is never later than the TTL counted from before the request";
        renewal::renewal_of_a_released_hold_never_acquires [Renewal] () "renewing after a release is Lost and takes nothing";
        renewal::renewal_of_an_expired_hold_never_acquires [Renewal] (leases) "renewing after the end is Lost, for good, and takes nothing";
        renewal::renewal_by_a_stranger_changes_nothing [SafeRelease] () "only the owner renews";
        renewal::renewal_in_batches [Performance] () "many holds in one call: each answered once, the lost one as Lost";
        release::release_in_every_state [SafeRelease] () "unused, waiting, holding or released, any number of times";
        release::release_by_a_stranger_changes_nothing [SafeRelease] () "only the owner releases";
        release::a_late_release_frees_nobody_else [SafeRelease] (leases) "the release of an expired hold leaves the next holder alone";
        release::shared_releases_free_ones_own [SafeRelease] (shared) "a reader's release leaves the other readers in";
        release::a_lease_outlives_its_client [Renewal] (leases) "a lease is renewed and released by another client with the same owner";
        release::keep_leaves_a_record [SafeRelease] (keep) "a release can keep the lock taken for a while, once";
        release::keep_of_a_waiter_keeps_nothing [SafeRelease] (keep) "only a hold can be kept";
        waiting::a_release_rings_a_waiter [Performance] (notified) "a waiter's bell rings soon after the release";
        waiting::a_writer_that_leaves_rings_all_readers [Performance] (notified, shared) "readers that wait together get in together";
        waiting::no_wake_up_is_lost [Performance] (notified) "hand-offs between clients: a ring for each";
        waiting::everyone_is_served [Performance] () "each of many waiters gets its turn";
        waiting::a_waiter_succeeds_a_dead_holder [NoDeadlock] (leases) "a waiter that heeds recheck gets the lock soon after the lease ends";
        waiting::a_waiter_that_leaves_is_in_nobodys_way [Availability] () "giving up while waiting passes the turn on";
        fairness::fifo_serves_in_order [Fairness] (fifo) "first come, first served, across clients";
        fairness::fifo_survives_a_leaver [Fairness] (fifo) "a waiter that leaves the middle of the line does not disturb it";
        fairness::any_never_passes_fifo [Fairness] (mixed) "a newcomer does not take what a FIFO waiter waits for";
        fairness::fifo_readers_wait_behind_a_writer [Fairness] (fifo, shared) "a reader does not pass a writer in line";
        fairness::fifo_slots_serve_in_order [Fairness] (fifo, slots) "slots go to the first in line";
        inspection::holders_are_shown [Availability] (eyes) "who holds, since when, with which token and label";
        inspection::waiters_are_shown [Availability] (eyes, fifo) "who waits, in line order";
        inspection::locks_are_listed_in_pages [Availability] (eyes) "prefix, key order, strictly after, at most so many";
        inspection::a_watch_shows_changes [Availability] (eyes) "watching a lock shows who comes and goes";
        breaking::a_broken_lock_is_lost [SafeRelease] (eyes) "break takes the lock away and its holder is told";
        breaking::a_break_can_give_grace [SafeRelease] (eyes) "nobody is granted while the broken holder has grace";
        breaking::a_break_can_name_the_token [SafeRelease] (eyes, tokens) "a break that names another token changes nothing";
        breaking::a_waiter_is_told_of_a_break [Performance] (eyes, notified) "a waiter gets the lock that was broken";
        crash::the_lock_of_a_dead_client_becomes_free [NoDeadlock] () "a client that dies while holding blocks nobody for longer than its lease";
        crash::a_dead_waiter_is_passed [NoDeadlock] () "a client that dies while waiting blocks nobody for ever";
        crash::closing_ends_a_client_and_nobody_else [Availability] () "after close, calls answer at once and other clients go on";
    } };
}

macro_rules! list {
    (() $($module:ident::$case:ident [$criterion:ident] ($($need:ident),*) $about:literal;)+) => {
        const CASES: &[Case] = &[$(Case {
            name: stringify!($case),
            about: $about,
            criterion: Criterion::$criterion,
            needs: &[$($need),*],
            prove: |trial| Box::pin(super::$module::$case(trial)),
        }),+];
    };
}

__conformance_cases!(list,);

/// All cases.
pub fn cases() -> impl Iterator<Item = Case> {
    CASES.iter().copied()
}

/// Makes one `#[test]` for each case of the conformance suite, over the [`Deployment`](crate::conformance::Deployment)
/// that the expression gives. The expression is evaluated once for each test, and may use `.await`.
#[macro_export]
macro_rules! conformance {
    ($deployment:expr) => {
        $crate::__conformance_cases! { $crate::__conformance_tests, $deployment }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __conformance_tests {
    (($deployment:expr) $($module:ident::$case:ident [$criterion:ident] ($($need:ident),*) $about:literal;)+) => {$(
        #[test]
        fn $case() {
            $crate::conformance::block_on(async {
                $crate::conformance::check(stringify!($case), $deployment).await;
            });
        }
    )+};
}
