//! One value per async runtime: sockets belong to the runtime that created them.

use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use tokio::runtime::{Handle, Id};
use tokio::sync::OnceCell;

/// Keeps one value (a connection) and its generation per tokio runtime.
///
/// A socket is driven by the runtime on which it was opened: used from another one, it stalls when its own is busy
/// or gone. An entry dies with its runtime. The runtime must have its I/O and time drivers enabled.
#[derive(Debug)]
pub struct PerRuntime<T> {
    slots: Arc<RwLock<Vec<Slot<T>>>>,
    generations: AtomicU64,
}

#[derive(Debug)]
struct Slot<T> {
    runtime: Id,
    generation: u64,
    value: Arc<OnceCell<T>>,
}

impl<T> Clone for Slot<T> {
    fn clone(&self) -> Self {
        Self {
            runtime: self.runtime,
            generation: self.generation,
            value: self.value.clone(),
        }
    }
}

impl<T> Default for PerRuntime<T> {
    fn default() -> Self {
        Self {
            slots: Arc::default(),
            generations: AtomicU64::new(1),
        }
    }
}

impl<T: Clone + Send + Sync + 'static> PerRuntime<T> {
    /// No values yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// The present runtime's value and its generation, made by `make` if there is none. Concurrent callers share
    /// one `make`; if it fails or is dropped, the next caller makes again.
    ///
    /// # Errors
    /// Those of `make`.
    ///
    /// # Panics
    /// Outside of a tokio runtime; the core calls drivers only inside one.
    ///
    /// # Cancel safety
    /// Safe.
    pub async fn get<F, Fut, E>(&self, make: F) -> Result<(u64, T), E>
    where
        F: FnOnce() -> Fut,
        Fut: Future<Output = Result<T, E>>,
    {
        let runtime = Handle::current();
        let found = self.find(runtime.id());
        let slot = found.unwrap_or_else(|| self.insert(&runtime));
        if let Some(value) = slot.value.get() {
            return Ok((slot.generation, value.clone()));
        }
        let value = slot.value.get_or_try_init(make).await?.clone();
        Ok((slot.generation, value))
    }

    /// The present runtime's value, if it has one by now.
    pub fn present(&self) -> Option<T> {
        let runtime = Handle::try_current().ok()?;
        self.find(runtime.id())?.value.get().cloned()
    }

    /// Forgets the value of this generation, so that the next `get` makes a new one. Does nothing if that already
    /// happened.
    pub fn discard(&self, generation: u64) {
        self.write().retain(|slot| slot.generation != generation);
    }

    /// How many runtimes have a value, or are making one.
    pub fn len(&self) -> usize {
        self.slots.read().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Whether no runtime has a value.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn find(&self, runtime: Id) -> Option<Slot<T>> {
        let slots = self.slots.read().unwrap_or_else(PoisonError::into_inner);
        slots.iter().find(|slot| slot.runtime == runtime).cloned()
    }

    fn insert(&self, runtime: &Handle) -> Slot<T> {
        let mut slots = self.write();
        if let Some(slot) = slots.iter().find(|slot| slot.runtime == runtime.id()) {
            return slot.clone();
        }
        let generation = self.generations.fetch_add(1, Ordering::Relaxed);
        let slot = Slot {
            runtime: runtime.id(),
            generation,
            value: Arc::default(),
        };
        slots.push(slot.clone());
        drop(slots);
        let remove = RemoveSlot {
            slots: self.slots.clone(),
            runtime: runtime.id(),
        };
        // Its drop, at the runtime's shutdown, removes the entry.
        runtime.spawn(async move {
            let _remove = remove;
            std::future::pending::<()>().await;
        });
        slot
    }

    fn write(&self) -> std::sync::RwLockWriteGuard<'_, Vec<Slot<T>>> {
        self.slots.write().unwrap_or_else(PoisonError::into_inner)
    }
}

struct RemoveSlot<T> {
    slots: Arc<RwLock<Vec<Slot<T>>>>,
    runtime: Id,
}

impl<T> Drop for RemoveSlot<T> {
    fn drop(&mut self) {
        let mut slots = self.slots.write().unwrap_or_else(PoisonError::into_inner);
        slots.retain(|slot| slot.runtime != self.runtime);
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap()
    }

    #[test]
    fn a_thousand_runtimes_leave_no_entry() {
        let values = PerRuntime::<u32>::new();
        for i in 0..1000 {
            let rt = runtime();
            let (_, v) = rt
                .block_on(values.get(|| async { Ok::<_, Infallible>(i) }))
                .unwrap();
            assert_eq!(v, i);
            assert_eq!(values.len(), 1);
        }
        assert!(values.is_empty());
    }

    #[test]
    fn a_discarded_value_is_made_again_once() {
        let values = PerRuntime::<u32>::new();
        runtime().block_on(async {
            assert_eq!(values.present(), None);
            let (first, _) = values.get(|| async { Ok::<_, Infallible>(1) }).await.unwrap();
            assert_eq!(values.present(), Some(1));
            let (same, v) = values.get(|| async { Ok::<_, Infallible>(2) }).await.unwrap();
            assert_eq!((same, v), (first, 1));
            values.discard(first);
            values.discard(first);
            assert_eq!(values.present(), None);
            let (second, v) = values.get(|| async { Ok::<_, Infallible>(3) }).await.unwrap();
            assert_eq!(v, 3);
            assert_ne!(second, first);
        });
    }
}
