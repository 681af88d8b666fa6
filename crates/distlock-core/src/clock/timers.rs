//! Pending timers, fired by whoever drives the clock.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use tokio::sync::Notify;

use super::Moment;

/// The pending timers of one clock.
#[derive(Default)]
pub struct Timers {
    pending: Mutex<Pending>,
    /// Wakes the driver when a timer is due before its alarm.
    pub(super) kick: Notify,
    /// Counts what happens, so that a manual clock can tell when all is idle.
    pub(super) activity: AtomicU64,
}

#[derive(Default)]
struct Pending {
    by_due: BTreeMap<(Moment, u64), Waker>,
    next: u64,
    /// The driver's present alarm. It is never put off before it has passed: moving it for each short sleep that
    /// comes and goes would wake the driver all the time.
    alarm: Option<Moment>,
}

impl fmt::Debug for Timers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Timers")
            .field("pending", &self.lock().by_due.len())
            .finish_non_exhaustive()
    }
}

impl Timers {
    fn lock(&self) -> MutexGuard<'_, Pending> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers (or refreshes) a timer.
    pub(super) fn set(&self, due: Moment, id: Option<u64>, waker: &Waker) -> u64 {
        self.activity.fetch_add(1, Ordering::Relaxed);
        let mut p = self.lock();
        let id = id.unwrap_or_else(|| {
            p.next += 1;
            p.next
        });
        p.by_due
            .entry((due, id))
            .and_modify(|w| w.clone_from(waker))
            .or_insert_with(|| waker.clone());
        let sooner = p.alarm.is_none_or(|alarm| due < alarm);
        if sooner {
            p.alarm = Some(due);
        }
        drop(p);
        if sooner {
            self.kick.notify_one();
        }
        id
    }

    pub(super) fn alarm_passed(&self) {
        self.lock().alarm = None;
    }

    /// Wakes all timers that are due by `now`; returns when the next one is.
    pub(super) fn fire(&self, now: Moment) -> Option<Moment> {
        let mut p = self.lock();
        let later = p.by_due.split_off(&(Moment(now.0.saturating_add(1)), 0));
        let due = std::mem::replace(&mut p.by_due, later);
        let next = p.by_due.keys().next().map(|(due, _)| *due);
        p.alarm = next;
        drop(p);
        for waker in due.into_values() {
            waker.wake();
        }
        next
    }

    /// Forgets a timer.
    pub(super) fn remove(&self, due: Moment, id: u64) {
        self.lock().by_due.remove(&(due, id));
    }

    pub(super) fn next_due(&self) -> Option<Moment> {
        self.lock().by_due.keys().next().map(|(due, _)| *due)
    }
}
