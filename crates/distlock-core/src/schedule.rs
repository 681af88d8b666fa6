//! What is due when: the keeper's index.
//!
//! Most holds are gone long before anything is due for them. So a newcomer only takes a slot; it is put in order when
//! the keeper next looks. The keeper wakes at its alarm, which is the earliest that was ever asked for and is not put
//! off before it has passed: short holds that come and go would otherwise wake its thread each time.

use std::collections::BTreeSet;

use crate::bell::Bell;
use crate::clock::Moment;
use crate::sync::atomic::{AtomicU32, Ordering};
use crate::sync::{Mutex, MutexGuard, PoisonError};

/// How much one look takes out, and puts in order.
pub(crate) const BATCH: usize = 256;

const NONE: u32 = u32::MAX;

/// Where a value stands in a schedule. Read and written only while the schedule is locked.
#[derive(Debug)]
pub(crate) struct Ticket(AtomicU32);

impl Default for Ticket {
    fn default() -> Self {
        Self(AtomicU32::new(NONE))
    }
}

impl Ticket {
    fn slot(&self) -> Option<usize> {
        let slot = self.0.load(Ordering::Relaxed);
        (slot != NONE).then_some(slot as usize)
    }
}

/// Values by the moment when something is due for them, and the one who is woken then.
#[derive(Debug)]
pub(crate) struct Schedule<T> {
    index: Mutex<Index<T>>,
    kick: Bell,
}

#[derive(Debug)]
struct Index<T> {
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
    /// Slots to be put in order at the next look.
    fresh: Vec<u32>,
    by_due: BTreeSet<(Moment, u32)>,
    alarm: Option<Moment>,
}

#[derive(Debug)]
struct Slot<T> {
    value: Option<T>,
    due: Moment,
    stands: Stands,
    /// Whether it is in the list of fresh ones, which may also name slots that were given up meanwhile.
    listed: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stands {
    /// Free, or taken out by a look.
    Nowhere,
    Fresh,
    InOrder,
}

impl<T> Default for Schedule<T> {
    fn default() -> Self {
        Self {
            index: Mutex::new(Index {
                slots: Vec::new(),
                free: Vec::new(),
                fresh: Vec::new(),
                by_due: BTreeSet::new(),
                alarm: None,
            }),
            kick: Bell::new(),
        }
    }
}

impl<T: Clone> Schedule<T> {
    fn lock(&self) -> MutexGuard<'_, Index<T>> {
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins with a value: from now on `ticket` is its place.
    pub(crate) fn add(&self, ticket: &Ticket, due: Moment, value: T) {
        let mut index = self.lock();
        let slot = index.free.pop().unwrap_or_else(|| {
            index.slots.push(Slot {
                value: None,
                due,
                stands: Stands::Nowhere,
                listed: false,
            });
            (index.slots.len() - 1) as u32
        });
        index.slots[slot as usize].value = Some(value);
        ticket.0.store(slot, Ordering::Relaxed);
        self.kick_if(index.schedule(slot as usize, due));
    }

    /// Ends with a value, which is given back. A ticket that has no place is left alone.
    pub(crate) fn remove(&self, ticket: &Ticket) -> Option<T> {
        let mut index = self.lock();
        let slot = ticket.slot()?;
        ticket.0.store(NONE, Ordering::Relaxed);
        index.unschedule(slot);
        index.free.push(slot as u32);
        index.slots[slot].value.take()
    }

    /// Makes a value that waits for its moment due at another one. One that a look has taken out is left alone: who
    /// took it puts it back.
    pub(crate) fn change(&self, ticket: &Ticket, due: impl FnOnce() -> Moment) {
        self.set(ticket, due, |stands| stands != Stands::Nowhere);
    }

    /// Puts back what a look has taken out, unless it was removed meanwhile.
    pub(crate) fn put_back(&self, ticket: &Ticket, due: impl FnOnce() -> Moment) {
        self.set(ticket, due, |_| true);
    }

    fn set(&self, ticket: &Ticket, due: impl FnOnce() -> Moment, may: impl FnOnce(Stands) -> bool) {
        let mut index = self.lock();
        if let Some(slot) = ticket.slot()
            && may(index.slots[slot].stands)
        {
            index.unschedule(slot);
            self.kick_if(index.schedule(slot, due()));
        }
    }

    fn kick_if(&self, earlier: bool) {
        if earlier {
            self.kick.ring();
        }
    }

    /// Takes out up to a batch of what is due, and sets the alarm for the rest. The flag says to look again at once.
    pub(crate) fn take(&self, now: Moment) -> (Vec<T>, bool) {
        let mut index = self.lock();
        index.put_in_order();
        let mut due = Vec::new();
        while due.len() < BATCH
            && let Some(&(first, slot)) = index.by_due.first()
            && first <= now
        {
            index.by_due.pop_first();
            let slot = &mut index.slots[slot as usize];
            slot.stands = Stands::Nowhere;
            due.extend(slot.value.clone());
        }
        let more = due.len() == BATCH || !index.fresh.is_empty();
        if !more {
            index.alarm = index.by_due.first().map(|(due, _)| *due);
        }
        (due, more)
    }

    /// When to look next.
    pub(crate) fn alarm(&self) -> Option<Moment> {
        self.lock().alarm
    }

    /// Resolves when the alarm was moved forward.
    pub(crate) async fn kicked(&self) {
        self.kick.rung().await;
    }

    pub(crate) fn len(&self) -> usize {
        let index = self.lock();
        index.slots.len() - index.free.len()
    }

    pub(crate) fn values(&self) -> Vec<T> {
        let index = self.lock();
        index.slots.iter().filter_map(|slot| slot.value.clone()).collect()
    }
}

impl<T> Index<T> {
    /// Whether the keeper must be woken.
    fn schedule(&mut self, slot: usize, due: Moment) -> bool {
        let entry = &mut self.slots[slot];
        entry.due = due;
        entry.stands = Stands::Fresh;
        if !entry.listed {
            entry.listed = true;
            self.fresh.push(slot as u32);
        }
        let earlier = self.alarm.is_none_or(|alarm| due < alarm);
        if earlier {
            self.alarm = Some(due);
        }
        earlier
    }

    fn unschedule(&mut self, slot: usize) {
        let entry = &mut self.slots[slot];
        if entry.stands == Stands::InOrder {
            self.by_due.remove(&(entry.due, slot as u32));
        }
        entry.stands = Stands::Nowhere;
    }

    /// Up to a batch of the fresh ones.
    fn put_in_order(&mut self) {
        let rest = self.fresh.len().saturating_sub(BATCH);
        for slot in self.fresh.split_off(rest) {
            let entry = &mut self.slots[slot as usize];
            entry.listed = false;
            if entry.stands == Stands::Fresh {
                entry.stands = Stands::InOrder;
                self.by_due.insert((entry.due, slot));
            }
        }
    }
}
