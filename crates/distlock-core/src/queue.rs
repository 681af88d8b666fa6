//! The local queue: per key, one exclusive contender of this client on the engine, the others in line here.
//!
//! It makes waiting cheap (one place in the engine's line for ten thousand local waiters), decides nothing about
//! exclusion (the engine does), and is fair to other processes: a permit is passed on when a release is *sent* at
//! most [`PASSES`] times in a row, then only after the engine's reply.

use std::collections::hash_map::RandomState;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::future::Future;
use std::hash::BuildHasher;
use std::pin::Pin;
use std::sync::Weak;
use std::task::{Context, Poll, Waker};

use crate::driver::{Holder, Kind, Mode};
use crate::hold::HoldState;
use crate::key::Key;
use crate::prehashed::{Hashed, HashedMap};
use crate::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How many times in a row a permit may be passed on before the engine's reply.
const PASSES: u32 = 8;
const SHARDS: usize = 16;

/// The queues of one client.
#[derive(Default)]
pub(crate) struct Queue {
    shards: [Mutex<HashedMap<Key, Line>>; SHARDS],
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
    /// From the first one that had to wait.
    crowd: Option<Box<Crowd>>,
    /// The last local hold, for "held by this process".
    here: Weak<HoldState>,
    /// The holder that the local contender last saw at the engine.
    seen: Option<Box<Holder>>,
}

/// Those who wait for a permit.
#[derive(Default)]
struct Crowd {
    waiters: BTreeMap<u64, Waiter>,
    /// Those who were given a permit and have not picked it up yet.
    admitted: BTreeSet<u64>,
    next: u64,
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
            crowd: None,
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

    fn nobody_waits(&self) -> bool {
        self.crowd.as_ref().is_none_or(|crowd| crowd.waiters.is_empty())
    }

    fn is_empty(&self) -> bool {
        self.exclusive + self.slots + self.readers_waiting + self.readers_holding == 0 && self.nobody_waits()
    }

    fn wait(&mut self, mode: Mode) -> u64 {
        let crowd = self.crowd.get_or_insert_default();
        let id = crowd.next;
        crowd.next += 1;
        crowd.waiters.insert(id, Waiter { mode, waker: None });
        id
    }

    /// Admits those at the front who may enter; returns their wakers, to be woken outside the lock.
    fn admit(&mut self, wake: &mut Vec<Waker>) {
        let Some(mut crowd) = self.crowd.take() else {
            return;
        };
        while let Some(first) = crowd.waiters.first_entry()
            && self.may_enter(first.get().mode)
        {
            let (id, admitted) = first.remove_entry();
            wake.extend(admitted.waker);
            self.enter(admitted.mode);
            crowd.admitted.insert(id);
        }
        self.crowd = Some(crowd);
    }
}

impl Queue {
    fn name(&self, key: &Key) -> Hashed<Key> {
        Hashed {
            hash: self.hasher.hash_one(key),
            key: key.clone(),
        }
    }

    fn shard(&self, name: &Hashed<Key>) -> MutexGuard<'_, HashedMap<Key, Line>> {
        let shard = &self.shards[name.shard(SHARDS)];
        shard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Enters the line of `key`, or waits for a permit here.
    ///
    /// A contender of another kind than those here goes straight to the engine, which refuses it: `None`.
    ///
    /// # Cancel safety
    /// Safe: a dropped future leaves the line; a permit that it had been given is passed on.
    pub(crate) async fn enter(self: &Arc<Self>, key: &Key, mode: Mode) -> Option<Permit> {
        let name = self.name(key);
        let id = {
            let mut lines = self.shard(&name);
            // Most keys have no line.
            let line = match lines.get_mut(&name) {
                Some(line) => line,
                None => lines.entry(name.clone()).or_insert(Line::new(mode.kind())),
            };
            if line.kind != mode.kind() {
                return None;
            }
            if line.nobody_waits() && line.may_enter(mode) {
                line.enter(mode);
                drop(lines);
                return Some(Permit::new(self.clone(), name, mode));
            }
            line.wait(mode)
        };
        Some(
            Waiting {
                queue: self.clone(),
                name,
                mode,
                id: Some(id),
            }
            .await,
        )
    }

    /// Who holds `key` as far as this client knows: its own hold, or the one that its contender saw.
    pub(crate) fn holder(&self, key: &Key) -> Option<Holder> {
        let (here, seen) = {
            let name = self.name(key);
            let lines = self.shard(&name);
            let line = lines.get(&name)?;
            (line.here.upgrade(), line.seen.as_deref().cloned())
        };
        here.filter(|hold| hold.is_held())
            .map(|hold| hold.holder())
            .or(seen)
    }

    fn leave(&self, name: &Hashed<Key>, mode: Mode, holding: bool, passed: bool) {
        let mut wake = Vec::new();
        {
            let mut lines = self.shard(name);
            let Some(line) = lines.get_mut(name) else { return };
            line.leave(mode, holding);
            line.passes = if passed { line.passes + 1 } else { 0 };
            line.admit(&mut wake);
            if line.is_empty() {
                lines.remove(name);
            }
        }
        wake.into_iter().for_each(Waker::wake);
    }
}

/// The right to be this client's contender for a key. Dropped, it goes to the next in line.
#[derive(Debug)]
pub(crate) struct Permit {
    queue: Arc<Queue>,
    name: Hashed<Key>,
    mode: Mode,
    holding: bool,
    left: bool,
}

impl Permit {
    fn new(queue: Arc<Queue>, name: Hashed<Key>, mode: Mode) -> Self {
        Self {
            queue,
            name,
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
            let mut lines = self.queue.shard(&self.name);
            let Some(line) = lines.get_mut(&self.name) else {
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
        if let Some(line) = self.queue.shard(&self.name).get_mut(&self.name) {
            line.seen = holder.clone().map(Box::new);
        }
    }

    /// Passes the permit on now that a release was sent, unless that happened too often in a row: then the permit
    /// comes back, to be dropped after the engine's reply.
    pub(crate) fn pass(mut self) -> Option<Self> {
        let may = {
            let lines = self.queue.shard(&self.name);
            lines.get(&self.name).is_none_or(|line| line.passes < PASSES)
        };
        if !may {
            return Some(self);
        }
        self.left = true;
        self.queue.leave(&self.name, self.mode, self.holding, true);
        None
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if !self.left {
            self.queue.leave(&self.name, self.mode, self.holding, false);
        }
    }
}

/// A place in the local line.
struct Waiting {
    queue: Arc<Queue>,
    name: Hashed<Key>,
    mode: Mode,
    id: Option<u64>,
}

impl Future for Waiting {
    type Output = Permit;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Permit> {
        let Some(id) = self.id else { return Poll::Pending };
        {
            let mut lines = self.queue.shard(&self.name);
            // The entry is there: only this future removes it.
            let Some(line) = lines.get_mut(&self.name) else {
                return Poll::Pending;
            };
            let Some(crowd) = &mut line.crowd else {
                return Poll::Pending;
            };
            if let Some(waiter) = crowd.waiters.get_mut(&id) {
                waiter.waker = Some(cx.waker().clone());
                return Poll::Pending;
            }
            crowd.admitted.remove(&id);
        }
        self.id = None;
        Poll::Ready(Permit::new(self.queue.clone(), self.name.clone(), self.mode))
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let Some(id) = self.id else { return };
        let mut wake = Vec::new();
        {
            let mut lines = self.queue.shard(&self.name);
            let Some(line) = lines.get_mut(&self.name) else {
                return;
            };
            let Some(crowd) = &mut line.crowd else { return };
            crowd.waiters.remove(&id);
            if crowd.admitted.remove(&id) {
                line.leave(self.mode, false);
            }
            // Whoever stood behind may be able to go now (a reader behind a writer that gave up).
            line.admit(&mut wake);
            if line.is_empty() {
                lines.remove(&self.name);
            }
        }
        wake.into_iter().for_each(Waker::wake);
    }
}
