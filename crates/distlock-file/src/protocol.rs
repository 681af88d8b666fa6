//! What the port asks, as pure changes of a snapshot: acquire, release, renew, break.

use std::sync::Arc;
use std::time::Duration;

use distlock_core::clock::Moment;
use distlock_core::driver::{Break, Kind, LostReason, Refusal, Released};
use distlock_core::{FencingToken, OwnerId};
use uuid::Uuid;

use crate::rule::{TOMBSTONE, Wake};
use crate::snapshot::{Entry, Snapshot, State};

/// The longest time without a look: insurance against what nobody thought of, not polling.
const LONGEST: u64 = 60_000_000_000;
/// The shortest: no answer makes a caller spin.
const SHORTEST: u64 = 1_000_000;
/// A waiter's promise to look again is written anew only if it moved by this much.
const COARSE: u64 = 50_000_000;
/// How many holders the first waiter keeps an eye on.
const WATCHED: usize = 64;

/// What an attempt found.
#[derive(Debug)]
pub(crate) enum Look {
    Held {
        token: u64,
        until: u64,
    },
    Waiting {
        recheck: Duration,
        holder: Option<Box<Entry>>,
        ahead: u32,
        /// Whose end would change something: to be probed now, and for the last `watch` of them to be watched.
        probe: Vec<u128>,
        watch: Vec<u128>,
    },
    /// The key is in use as another kind of lock by these processes.
    Mismatch {
        have: Kind,
        processes: Vec<u128>,
    },
}

/// One attempt of `me`. `dead` are processes that were found dead meanwhile.
pub(crate) fn acquire(
    s: &mut Snapshot,
    now: Moment,
    me: &Entry,
    join: bool,
    dead: &[u128],
    wakes: &mut Vec<Wake>,
) -> (Look, bool) {
    let now = now.as_nanos();
    let mut changed = s.bury(dead, now, wakes);
    let before = s.entries.len();
    s.entries
        .retain(|e| e.state == State::Waiting || e.until > now || e.hash != me.hash || e.key != me.key);
    changed |= s.entries.len() != before;

    let other = s
        .line(me)
        .find(|e| e.state != State::Broken && e.mode.kind() != me.mode.kind());
    if let Some(other) = other {
        let have = other.mode.kind();
        let processes = s.line(me).map(|e| e.process).filter(|p| *p != 0).collect();
        return (Look::Mismatch { have, processes }, changed);
    }

    let mut place = s.find(me, me.owner);
    match place.map(|at| (at, s.entries[at].state)) {
        Some((at, State::Holding)) => {
            // Granted by a releaser, or by an attempt whose answer was not heard.
            let e = &mut s.entries[at];
            let moved = (e.process, e.claim) != (me.process, me.claim);
            let until = now.saturating_add(me.ttl);
            if !moved && e.until.saturating_add(me.ttl / 16) > until {
                // Fresh: heard at once.
                let (token, until) = (e.token, e.until);
                return (Look::Held { token, until }, changed);
            }
            e.until = until;
            (e.process, e.claim) = (me.process, me.claim);
            let token = e.token;
            return (Look::Held { token, until }, true);
        }
        Some((at, State::Waiting)) => {
            let e = &mut s.entries[at];
            changed |= (e.process, e.claim) != (me.process, me.claim) || e.woken != 0;
            (e.process, e.claim) = (me.process, me.claim);
        }
        Some((at, _)) => {
            s.entries.remove(at);
            place = None;
            changed = true;
        }
        None => {}
    }

    if s.fits(me, me.mode, now) && !s.is_passed(me, place, now) {
        if let Some(at) = place {
            s.entries.remove(at);
        }
        let me = s.grant(me.clone(), now);
        s.promote(&me, now, wakes);
        s.hurry(&me, me.until, wakes);
        let (token, until) = (me.token, me.until);
        return (Look::Held { token, until }, true);
    }

    if let Some(at) = place {
        s.entries[at].woken = 0;
    }
    let known = wakes.len();
    s.promote(me, now, wakes);
    changed |= wakes.len() != known;
    let recheck = s.next_event(me, now).saturating_sub(now).clamp(SHORTEST, LONGEST);
    let recheck_by = now.saturating_add(recheck);
    match s.find(me, me.owner) {
        Some(at) => {
            let e = &mut s.entries[at];
            if e.recheck_by.abs_diff(recheck_by) > COARSE {
                e.recheck_by = recheck_by;
                changed = true;
            }
        }
        None if join => {
            let mut me = me.clone();
            me.state = State::Waiting;
            (me.since, me.recheck_by, me.until) = (now, recheck_by, 0);
            s.entries.push(me);
            changed = true;
        }
        None => {}
    }
    (waiting(s, now, me, recheck), changed)
}

fn waiting(s: &Snapshot, now: u64, me: &Entry, recheck: u64) -> Look {
    let mut watch = Vec::new();
    let mut holder = None;
    let mut ahead = 0;
    let mut last: Option<u128> = None;
    let other = |e: &Entry| e.process != 0 && e.process != me.process;
    for e in s.line(me).take_while(|e| e.owner != me.owner) {
        if e.is_holding(now) {
            if other(e) && !e.lease && watch.len() < WATCHED && !watch.contains(&e.process) {
                watch.push(e.process);
            }
            ahead += 1;
            holder.get_or_insert_with(|| Box::new(e.clone()));
        } else if e.state == State::Waiting {
            ahead += 1;
            last = Some(e.process);
        }
    }
    let mut probe = watch.clone();
    if let Some(last) = last {
        let last = Some(last).filter(|p| *p != me.process);
        watch = last.into_iter().collect();
        probe.extend(last.filter(|p| !probe.contains(p)));
    }
    Look::Waiting {
        recheck: Duration::from_nanos(recheck),
        holder,
        ahead,
        probe,
        watch,
    }
}

/// Leaves, in whatever state.
pub(crate) fn release(
    s: &mut Snapshot,
    now: Moment,
    me: &Entry,
    keep: Option<Duration>,
    wakes: &mut Vec<Wake>,
) -> (Released, bool) {
    let now = now.as_nanos();
    let Some(at) = s.find(me, me.owner) else {
        return (Released::NotHeld, false);
    };
    let was = s.entries.remove(at);
    match was.state {
        State::Holding if was.until > now => {
            if let Some(keep) = keep.filter(|k| !k.is_zero()) {
                s.entries.insert(at, ownerless(was, State::Kept, now, keep));
                // The end that the waiters count on has changed.
                s.nudge(me, at, wakes);
            } else {
                s.promote(me, now, wakes);
            }
            (Released::Freed, true)
        }
        State::Waiting => {
            s.promote(me, now, wakes);
            s.nudge(me, at, wakes);
            (Released::NotHeld, true)
        }
        _ => {
            s.promote(me, now, wakes);
            (Released::NotHeld, true)
        }
    }
}

fn ownerless(mut e: Entry, state: State, now: u64, keep: Duration) -> Entry {
    e.owner = OwnerId {
        client: Uuid::nil(),
        n: 0,
    };
    e.state = state;
    (e.process, e.claim, e.woken, e.lease) = (0, 0, 0, false);
    e.since = now;
    e.until = now.saturating_add(u64::try_from(keep.as_nanos()).unwrap_or(u64::MAX));
    e
}

/// One hold to renew.
#[derive(Debug)]
pub(crate) struct Renew {
    pub(crate) me: Entry,
    pub(crate) ttl: u64,
    pub(crate) floor: u64,
}

/// Renews one hold: mine, and its deadline in the future. Never takes anything.
pub(crate) fn renew(
    s: &mut Snapshot,
    now: Moment,
    r: &Renew,
    wakes: &mut Vec<Wake>,
) -> (Result<Moment, LostReason>, bool) {
    let now = now.as_nanos();
    let Some(at) = s.find(&r.me, r.me.owner) else {
        return (Err(LostReason::Taken), false);
    };
    let e = &mut s.entries[at];
    match e.state {
        State::Holding if e.until > now => {
            e.until = now.saturating_add(r.ttl);
            let until = e.until;
            s.last_token = s.last_token.max(r.floor);
            s.hurry(&r.me, until, wakes);
            (Ok(Moment::from_nanos(until)), true)
        }
        State::Holding => (Err(LostReason::Expired), false),
        State::Broken => {
            let e = s.entries.remove(at);
            let reason = e.reason.as_deref().map(str::to_owned);
            (Err(LostReason::Broken { reason }), true)
        }
        _ => (Err(LostReason::Taken), false),
    }
}

/// Takes a key from its holders.
pub(crate) fn break_lock(
    s: &mut Snapshot,
    now: Moment,
    key: &Entry,
    how: &Break,
    wakes: &mut Vec<Wake>,
) -> (Result<Vec<Entry>, Refusal>, bool) {
    let now = now.as_nanos();
    let holders: Vec<Entry> = s.line(key).filter(|e| e.is_holding(now)).cloned().collect();
    let Some(first) = holders.first() else {
        return (Ok(holders), false);
    };
    if let Some(expect) = how.expect
        && !holders.iter().any(|h| h.token == expect.get())
    {
        let have = holders.iter().map(|h| h.token).find(|t| *t != 0);
        let have = have.map(FencingToken::new);
        return (Err(Refusal::TokenMismatch { have }), false);
    }
    s.entries.retain(|e| !holders.iter().any(|h| h == e));
    if !how.grace.is_zero() {
        let bar = ownerless(first.clone(), State::Barred, now, how.grace);
        s.entries.insert(0, bar);
        s.nudge(key, 0, wakes);
    }
    let reason: Option<Arc<str>> = how
        .reason
        .as_deref()
        .map(|r| crate::entry::cut(r, crate::entry::REASON));
    for h in holders.iter().filter(|h| h.state == State::Holding) {
        wakes.push(Wake {
            process: h.process,
            claim: h.claim,
            pid: 0,
        });
        let mut grave = h.clone();
        grave.state = State::Broken;
        grave.until = now.saturating_add(TOMBSTONE.as_nanos() as u64);
        grave.reason.clone_from(&reason);
        s.entries.insert(0, grave);
    }
    s.promote(key, now, wakes);
    (Ok(holders), true)
}
