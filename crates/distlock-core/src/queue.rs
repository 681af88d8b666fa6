//! The local queue: per key, one exclusive contender of this client on the engine, the others in line here.
//!
//! It makes waiting cheap (one place in the engine's line for ten thousand local waiters), decides nothing about
//! exclusion (the engine does), and is fair to other processes: a permit is passed on when a release is *sent* at
//! most [`PASSES`] times in a row, then only after the engine's reply.

use std::collections::hash_map::RandomState;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::future::Future;
use std::hash::BuildHasher;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker};

use crate::driver::{Holder, Kind, Mode};
use crate::hold::HoldState;
use crate::key::Key;

/// How many times in a row a permit may be passed on before the engine's reply.
const PASSES: u32 = 8;
const SHARDS: usize = 16;

/// The queues of one client.
#[derive(Default)]
pub(crate) struct Queue {
    shards: [Mutex<HashMap<Key, Line>>; SHARDS],
    hasher: RandomState,
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue").finish_non_exhaustive()
    }
}

/// The line of one key. It exists while a permit is out or somebody waits.
struct Line {
    kind: Kind,
    /// Exclusive permits out: 0 or 1.
    exclusive: u32,
    /// Slot permits out.
    slots: u32,
    /// Readers that look at the engine without holding yet.
    readers_waiting: u32,
    /// Readers that hold.
    readers_holding: u32,
    /// Permits passed on in a row without the engine's reply.
    passes: u32,
    waiters: BTreeMap<u64, Waiter>,
    /// Those who were given a permit and have not picked it up yet.
    admitted: HashSet<u64>,
    next: u64,
    /// The last local hold, for "held by this process".
    here: Weak<HoldState>,
    /// The holder that the local contender last saw at the engine.
    seen: Option<Holder>,
}

struct Waiter {
    mode: Mode,
    waker: Option<Waker>,
}

impl Line {
    fn new(kind: Kind) -> Self {
        Self {
            kind,
            exclusive: 0,
            slots: 0,
            readers_waiting: 0,
            readers_holding: 0,
            passes: 0,
            waiters: BTreeMap::new(),
            admitted: HashSet::new(),
            next: 0,
            here: Weak::new(),
            seen: None,
        }
    }

    fn may_enter(&self, mode: Mode) -> bool {
        match mode {
            Mode::Mutex | Mode::Write => self.exclusive == 0,
            // One reader asks for all; once it holds, each makes its own attempt. A local writer stops newcomers.
            Mode::Read => self.exclusive == 0 && (self.readers_holding > 0 || self.readers_waiting == 0),
            Mode::Slot { of } => self.slots < of,
        }
    }

    fn enter(&mut self, mode: Mode) {
        match mode {
            Mode::Mutex | Mode::Write => self.exclusive += 1,
            Mode::Read => self.readers_waiting += 1,
            Mode::Slot { .. } => self.slots += 1,
        }
    }

    fn leave(&mut self, mode: Mode, holding: bool) {
        match mode {
            Mode::Mutex | Mode::Write => self.exclusive -= 1,
            Mode::Read if holding => self.readers_holding -= 1,
            Mode::Read => self.readers_waiting -= 1,
            Mode::Slot { .. } => self.slots -= 1,
        }
    }

    fn is_empty(&self) -> bool {
        self.exclusive + self.slots + self.readers_waiting + self.readers_holding == 0
            && self.waiters.is_empty()
    }

    /// Admits those at the front who may enter; returns their wakers, to be woken outside the lock.
    fn admit(&mut self, wake: &mut Vec<Waker>) {
        while let Some((&id, first)) = self.waiters.first_key_value() {
            let mode = first.mode;
            if !self.may_enter(mode) {
                break;
            }
            wake.extend(self.waiters.remove(&id).and_then(|w| w.waker));
            self.enter(mode);
            self.admitted.insert(id);
        }
    }
}

impl Queue {
    fn shard(&self, key: &Key) -> MutexGuard<'_, HashMap<Key, Line>> {
        let n = self.hasher.hash_one(key) as usize % SHARDS;
        self.shards[n].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Enters the line of `key`, or waits for a permit here.
    ///
    /// A contender of another kind than those here goes straight to the engine, which refuses it: `None`.
    ///
    /// # Cancel safety
    /// Safe: a dropped future leaves the line; a permit that it had been given is passed on.
    pub(crate) async fn enter(self: &Arc<Self>, key: &Key, mode: Mode) -> Option<Permit> {
        let id = {
            let mut lines = self.shard(key);
            let line = lines.entry(key.clone()).or_insert_with(|| Line::new(mode.kind()));
            if line.kind != mode.kind() {
                return None;
            }
            if line.waiters.is_empty() && line.may_enter(mode) {
                line.enter(mode);
                drop(lines);
                return Some(Permit::new(self, key, mode));
            }
            let id = line.next;
            line.next += 1;
            line.waiters.insert(id, Waiter { mode, waker: None });
            id
        };
        Some(
            Waiting {
                queue: self.clone(),
                key: key.clone(),
                mode,
                id: Some(id),
            }
            .await,
        )
    }

    /// Who holds `key` as far as this client knows: its own hold, or the one that its contender saw.
    pub(crate) fn holder(&self, key: &Key) -> Option<Holder> {
        let (here, seen) = {
            let lines = self.shard(key);
            let line = lines.get(key)?;
            (line.here.upgrade(), line.seen.clone())
        };
        here.filter(|hold| hold.is_held())
            .map(|hold| hold.holder())
            .or(seen)
    }

    fn leave(&self, key: &Key, mode: Mode, holding: bool, passed: bool) {
        let mut wake = Vec::new();
        {
            let mut lines = self.shard(key);
            let Some(line) = lines.get_mut(key) else { return };
            line.leave(mode, holding);
            line.passes = if passed { line.passes + 1 } else { 0 };
            line.admit(&mut wake);
            if line.is_empty() {
                lines.remove(key);
            }
        }
        wake.into_iter().for_each(Waker::wake);
    }
}

/// The right to be this client's contender for a key. Dropped, it goes to the next in line.
#[derive(Debug)]
pub(crate) struct Permit {
    queue: Arc<Queue>,
    key: Key,
    mode: Mode,
    holding: bool,
    left: bool,
}

impl Permit {
    fn new(queue: &Arc<Queue>, key: &Key, mode: Mode) -> Self {
        Self {
            queue: queue.clone(),
            key: key.clone(),
            mode,
            holding: false,
            left: false,
        }
    }

    /// Says that the engine granted the lock.
    pub(crate) fn holds(&mut self, hold: &Arc<HoldState>) {
        self.holding = true;
        let mut wake = Vec::new();
        {
            let mut lines = self.queue.shard(&self.key);
            let Some(line) = lines.get_mut(&self.key) else {
                return;
            };
            line.here = Arc::downgrade(hold);
            line.seen = None;
            if self.mode == Mode::Read {
                line.readers_waiting -= 1;
                line.readers_holding += 1;
                line.admit(&mut wake);
            }
        }
        wake.into_iter().for_each(Waker::wake);
    }

    /// Says whom the engine named as the present holder.
    pub(crate) fn saw(&self, holder: &Option<Holder>) {
        if let Some(line) = self.queue.shard(&self.key).get_mut(&self.key) {
            line.seen.clone_from(holder);
        }
    }

    /// Passes the permit on now that a release was sent, unless that happened too often in a row: then the permit
    /// comes back, to be dropped after the engine's reply.
    pub(crate) fn pass(mut self) -> Option<Self> {
        let may = {
            let lines = self.queue.shard(&self.key);
            lines.get(&self.key).is_none_or(|line| line.passes < PASSES)
        };
        if !may {
            return Some(self);
        }
        self.left = true;
        self.queue.leave(&self.key, self.mode, self.holding, true);
        None
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if !self.left {
            self.queue.leave(&self.key, self.mode, self.holding, false);
        }
    }
}

/// A place in the local line.
struct Waiting {
    queue: Arc<Queue>,
    key: Key,
    mode: Mode,
    id: Option<u64>,
}

impl Future for Waiting {
    type Output = Permit;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Permit> {
        let Some(id) = self.id else { return Poll::Pending };
        {
            let mut lines = self.queue.shard(&self.key);
            // The entry is there: only this future removes it.
            let Some(line) = lines.get_mut(&self.key) else {
                return Poll::Pending;
            };
            if let Some(waiter) = line.waiters.get_mut(&id) {
                waiter.waker = Some(cx.waker().clone());
                return Poll::Pending;
            }
            line.admitted.remove(&id);
        }
        self.id = None;
        Poll::Ready(Permit::new(&self.queue, &self.key, self.mode))
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let Some(id) = self.id else { return };
        let mut wake = Vec::new();
        {
            let mut lines = self.queue.shard(&self.key);
            let Some(line) = lines.get_mut(&self.key) else {
                return;
            };
            line.waiters.remove(&id);
            if line.admitted.remove(&id) {
                line.leave(self.mode, false);
            }
            // Whoever stood behind may be able to go now (a reader behind a writer that gave up).
            line.admit(&mut wake);
            if line.is_empty() {
                lines.remove(&self.key);
            }
        }
        wake.into_iter().for_each(Waker::wake);
    }
}
