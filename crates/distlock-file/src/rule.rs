//! The rules of the line: pure changes of a snapshot. Who may hold, who is granted, who is woken.
//!
//! The entries of a key are in line order: whoever holds first, then the waiters as they came.
//!
//! * A newcomer of order `Any` may pass waiting `Any`s, never a waiting `Fifo`; a reader passes no waiting writer.
//! * When the lock can be taken, the first waiter is *granted* if it is a `Fifo`, so that a stopped head costs no
//!   more than its own TTL; an `Any` is only *woken*, and once woken it is no longer in anybody's way.
//! * Whoever gets in wakes the next that may get in too. So a release wakes one waiter, never a herd.

use std::time::Duration;

use distlock_core::OwnerId;
use distlock_core::driver::Mode;

use crate::snapshot::{Entry, Snapshot, State};

/// A waiter that is this late for its look, or was woken and has not come for so long, is in nobody's way.
const DEAF: u64 = 1_000_000_000;
/// A waiter that is this late for its look has left without a word.
const GONE: u64 = 60_000_000_000;
/// A woken waiter is woken again if it has not come after this: its message may have been dropped.
const WAKE_AGAIN: u64 = 10_000_000;
/// A waiter that looks this much after an end that it could have used is told of it.
const LATE: u64 = 100_000_000;
/// How long a former holder can learn that its lock was broken, not merely gone.
pub(crate) const TOMBSTONE: Duration = Duration::from_secs(60);

/// Somebody to be woken after the commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Wake {
    pub(crate) process: u128,
    pub(crate) claim: u64,
    /// The number of the process, if nothing goes on should it be stopped; else 0.
    pub(crate) pid: u32,
}

/// Wake-ups that nobody will answer.
#[derive(Debug, Default)]
pub(crate) struct Unheard {
    pub(crate) dead: Vec<u128>,
    pub(crate) stopped: Vec<Wake>,
}

impl Unheard {
    pub(crate) fn is_empty(&self) -> bool {
        self.dead.is_empty() && self.stopped.is_empty()
    }
}

impl Entry {
    fn wake(&self) -> Wake {
        Wake {
            process: self.process,
            claim: self.claim,
            pid: 0,
        }
    }

    fn is_waiting(&self) -> bool {
        self.state == State::Waiting
    }

    /// Whether it keeps others out at this time.
    pub(crate) fn is_holding(&self, now: u64) -> bool {
        matches!(self.state, State::Holding | State::Kept | State::Barred) && self.until > now
    }

    fn is_deaf(&self, now: u64) -> bool {
        now > self.recheck_by.saturating_add(DEAF)
            || (self.woken != 0 && now > self.woken.saturating_add(DEAF))
    }

    /// When it will stop being in the way without a word.
    fn deaf_at(&self) -> u64 {
        let late = self.recheck_by.saturating_add(DEAF);
        if self.woken == 0 {
            late
        } else {
            late.min(self.woken.saturating_add(DEAF))
        }
    }

    fn is_of(&self, key: &Entry) -> bool {
        self.hash == key.hash && self.key == key.key
    }

    /// Whether this waiter must be waited for by a later (or new) one.
    fn is_before(&self, other: &Entry, now: u64) -> bool {
        if !self.is_waiting() || self.is_deaf(now) {
            return false;
        }
        self.fifo || (other.fifo && self.woken == 0) || (other.mode == Mode::Read && self.mode == Mode::Write)
    }
}

impl Snapshot {
    /// Drops what ran out, of all keys.
    pub(crate) fn forget(&mut self, now: u64) {
        self.entries.retain(|e| match e.state {
            State::Waiting => e.recheck_by.saturating_add(GONE) > now,
            _ => e.until > now,
        });
    }

    /// Drops all that ends with these processes. Says whether there was any.
    pub(crate) fn bury(&mut self, dead: &[u128], now: u64, wakes: &mut Vec<Wake>) -> bool {
        if dead.is_empty() {
            return false;
        }
        let mut keys: Vec<Entry> = Vec::new();
        self.entries.retain(|e| {
            let ends = dead.contains(&e.process) && !(e.lease && e.state == State::Holding);
            if ends && !keys.iter().any(|k| k.is_of(e)) {
                keys.push(e.clone());
            }
            !ends
        });
        for key in &keys {
            self.promote(key, now, wakes);
        }
        !keys.is_empty()
    }

    pub(crate) fn find(&self, key: &Entry, owner: OwnerId) -> Option<usize> {
        self.entries.iter().position(|e| e.owner == owner && e.is_of(key))
    }

    /// All entries of a key, in line order.
    pub(crate) fn line<'a>(&'a self, key: &'a Entry) -> impl Iterator<Item = &'a Entry> {
        self.entries.iter().filter(|e| e.is_of(key))
    }

    /// Whether one more holder of this mode fits beside the present ones.
    pub(crate) fn fits(&self, key: &Entry, mode: Mode, now: u64) -> bool {
        let mut holders = self.line(key).filter(|e| e.is_holding(now));
        match mode {
            Mode::Mutex | Mode::Write => holders.next().is_none(),
            Mode::Read => holders.all(|h| h.state != State::Barred && !h.mode.is_exclusive()),
            Mode::Slot { of } => {
                let mut n = 0;
                holders.all(|h| {
                    n += 1;
                    h.state != State::Barred && n < of
                })
            }
        }
    }

    /// Whether a waiter that goes first is in the way of `me` (in line at `place`, or not in line yet).
    pub(crate) fn is_passed(&self, me: &Entry, place: Option<usize>, now: u64) -> bool {
        let ahead = &self.entries[..place.unwrap_or(self.entries.len())];
        ahead.iter().any(|e| e.is_of(me) && e.is_before(me, now))
    }

    /// Makes `me` a holder: in line after the present ones, with a token if it is alone.
    pub(crate) fn grant(&mut self, mut me: Entry, now: u64) -> Entry {
        if me.mode.is_exclusive() {
            self.last_token += 1;
            me.token = self.last_token;
        }
        me.state = State::Holding;
        me.since = now;
        me.until = now.saturating_add(me.ttl);
        me.woken = 0;
        let place = self.entries.iter().position(|e| e.is_of(&me) && e.is_waiting());
        let place = place.unwrap_or(self.entries.len());
        self.entries.insert(place, me.clone());
        me
    }

    /// Grants or wakes whoever may get in now. Call it after anything that may have made room.
    pub(crate) fn promote(&mut self, key: &Entry, now: u64, wakes: &mut Vec<Wake>) {
        let mut at = 0;
        let mut writer_ahead = false;
        let mut late: Option<usize> = None;
        while at < self.entries.len() {
            let e = &self.entries[at];
            let waits = e.is_of(key) && e.is_waiting() && !e.is_deaf(now);
            if !waits || (writer_ahead && e.mode == Mode::Read) {
                at += 1;
                continue;
            }
            if !self.fits(key, e.mode, now) {
                return;
            }
            if e.fifo {
                let me = self.entries.remove(at);
                wakes.push(me.wake());
                let me = self.grant(me, now);
                self.hurry(key, me.until, wakes);
                // It moved towards the front; the next one is now where it was, or after it.
                at += 1;
                continue;
            }
            if e.woken == 0 {
                let e = &mut self.entries[at];
                e.woken = now.max(1);
                wakes.push(Wake {
                    pid: e.pid,
                    ..e.wake()
                });
                return;
            }
            if late.is_none() && now > e.woken.saturating_add(WAKE_AGAIN) {
                late = Some(at);
            }
            writer_ahead |= e.mode == Mode::Write;
            at += 1;
        }
        if let Some(late) = late {
            wakes.push(self.entries[late].wake());
        }
    }

    /// Those who were woken and cannot come are in nobody's way: grants or wakes the next. Says whether anything
    /// changed.
    pub(crate) fn pass_over(&mut self, stopped: &[Wake], now: u64, wakes: &mut Vec<Wake>) -> bool {
        /// A time so long ago that whoever was woken then is deaf.
        const LONG_AGO: u64 = 1;
        let mut keys: Vec<Entry> = Vec::new();
        for e in self
            .entries
            .iter_mut()
            .filter(|e| e.is_waiting() && e.woken > LONG_AGO)
        {
            if stopped
                .iter()
                .any(|w| (w.process, w.claim) == (e.process, e.claim))
            {
                e.woken = LONG_AGO;
                keys.push(e.clone());
            }
        }
        for key in &keys {
            self.promote(key, now, wakes);
        }
        !keys.is_empty()
    }

    /// Wakes the first waiter behind `place` without granting it anything: what it relied on has changed.
    pub(crate) fn nudge(&self, key: &Entry, place: usize, wakes: &mut Vec<Wake>) {
        let behind = self.entries[place.min(self.entries.len())..]
            .iter()
            .find(|e| e.is_of(key) && e.is_waiting());
        if let Some(behind) = behind
            && !wakes.contains(&behind.wake())
        {
            wakes.push(behind.wake());
        }
    }

    /// A hold now ends at `until`: wakes the first waiters that count on a later end, so that they look in time.
    pub(crate) fn hurry(&self, key: &Entry, until: u64, wakes: &mut Vec<Wake>) {
        /// One would do, but it may be stopped.
        const MANY: usize = 3;
        let waiters = self.line(key).filter(|e| e.is_waiting()).take(MANY);
        let late = waiters.filter(|e| e.recheck_by > until.saturating_add(LATE));
        wakes.extend(late.map(Entry::wake));
    }

    /// When a waiter should look again without having been woken.
    pub(crate) fn next_event(&self, me: &Entry, now: u64) -> u64 {
        let place = self.find(me, me.owner).unwrap_or(self.entries.len());
        let fits = self.fits(me, me.mode, now);
        let ends = self
            .line(me)
            .filter(|e| !fits && e.is_holding(now))
            .map(|e| e.until);
        let deaf = self.entries[..place]
            .iter()
            .filter(|e| fits && e.is_of(me) && e.is_before(me, now))
            .map(Entry::deaf_at);
        ends.chain(deaf).min().unwrap_or(now)
    }
}
