//! Who waits at this gateway.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use distlock_core::driver::{Holder, LockInfo, Mode};
use distlock_core::{Key, Waiting};
use tokio::sync::watch;

/// A request that takes a lock, or several together.
#[derive(Debug)]
pub(crate) struct Seat {
    namespace: Arc<str>,
    locks: Vec<(Key, Mode)>,
    label: Option<String>,
    reason: Option<String>,
    since: SystemTime,
    /// What it was last told of the wait; none while it has not had to wait.
    told: watch::Sender<Option<Waiting>>,
}

impl Seat {
    pub(crate) fn tell(&self, waiting: &Waiting) {
        self.told.send_replace(Some(waiting.clone()));
    }

    /// What it is told from now on.
    pub(crate) fn listen(&self) -> watch::Receiver<Option<Waiting>> {
        self.told.subscribe()
    }

    /// It as one of those who wait for this key, if it does.
    fn waiter(&self, key: &Key) -> Option<Holder> {
        let told = self.told.borrow();
        let waiting = told.as_ref()?;
        let (_, mode) = self.locks.iter().find(|(k, _)| k == key)?;
        let owner = waiting.place.as_ref().map(|place| place.owner().to_string());
        let mut waiter = Holder::new(owner.unwrap_or_default(), *mode);
        waiter.label.clone_from(&self.label);
        waiter.reason.clone_from(&self.reason);
        waiter.since = Some(self.since);
        Some(waiter)
    }
}

/// All seats, in order of arrival.
#[derive(Debug, Default)]
pub(crate) struct Seats(Mutex<(u64, BTreeMap<u64, Arc<Seat>>)>);

/// A seat that is taken until this is dropped.
#[derive(Debug)]
pub(crate) struct Seated {
    seats: Arc<Seats>,
    number: u64,
    pub(crate) seat: Arc<Seat>,
}

impl Drop for Seated {
    fn drop(&mut self) {
        self.seats.lock().1.remove(&self.number);
    }
}

impl Seats {
    fn lock(&self) -> MutexGuard<'_, (u64, BTreeMap<u64, Arc<Seat>>)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn sit(
        self: &Arc<Self>,
        namespace: &str,
        locks: Vec<(Key, Mode)>,
        label: Option<String>,
        reason: Option<String>,
    ) -> Seated {
        let seat = Arc::new(Seat {
            namespace: namespace.into(),
            locks,
            label,
            reason,
            since: SystemTime::now(),
            told: watch::Sender::new(None),
        });
        let mut all = self.lock();
        let number = all.0;
        all.0 += 1;
        all.1.insert(number, seat.clone());
        drop(all);
        Seated {
            seats: self.clone(),
            number,
            seat,
        }
    }

    /// Adds those who wait here and are in no line of the engine.
    pub(crate) fn complete(&self, namespace: &str, infos: &mut [LockInfo]) {
        let mut at: HashMap<Key, usize> = HashMap::new();
        for (i, info) in infos.iter().enumerate() {
            at.insert(info.key.clone(), i);
        }
        let seats: Vec<Arc<Seat>> = self.lock().1.values().cloned().collect();
        for seat in seats.iter().filter(|seat| *seat.namespace == *namespace) {
            for (key, _) in &seat.locks {
                let Some(info) = at.get(key).and_then(|i| infos.get_mut(*i)) else {
                    continue;
                };
                let Some(waiter) = seat.waiter(key) else { continue };
                let known = |h: &Holder| h.owner == waiter.owner && !waiter.owner.is_empty();
                if !info.waiters.iter().any(known) && !info.holders.iter().any(known) {
                    info.waiters.push(waiter);
                }
            }
        }
    }
}
