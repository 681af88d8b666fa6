//! The reference engine: locks in this process's memory, with faults to order.
//!
//! It implements every part of the [port](crate::driver), so it is the measure for the other engines, an engine
//! for locks that no other process shares, and a fake for users' tests: [`Memory::faults`] loses replies, delays
//! requests, expires and steals locks on command. With a [manual clock](crate::clock::ManualClock) hours pass in
//! microseconds.
//!
//! ```
//! # use std::{sync::Arc, time::Duration};
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use distlock_core::{Key, Namespace, bell::Bell, clock::{Clock, ManualClock}, engine::Engine};
//! use distlock_core::driver::{Life, Line, Mode, Order, Standing, Want};
//! use distlock_core::memory::{Call, Fault, Memory};
//!
//! let time = ManualClock::new();
//! let (engine, _thread) = Engine::start(Clock::Manual(time.clone()), Namespace::default(), None)?;
//! let memory = Memory::new();
//! let driver = memory.driver(engine.clone());
//! let want = Want {
//!     key: Key::new("report")?,
//!     owner: engine.owners().next(),
//!     mode: Mode::Mutex,
//!     order: Order::Any,
//!     line: Line::Never,
//!     life: Life::Process,
//!     ttl: Duration::from_secs(30),
//!     label: None,
//!     reason: None,
//!     bell: Bell::new(),
//! };
//! let mut claim = driver.claim(Arc::new(want))?;
//!
//! // The next try is applied, but its reply is lost; the one after finds its own place.
//! memory.faults().queue(Call::Try, Fault::LostReply);
//! assert!(claim.try_acquire().await.is_err());
//! assert!(matches!(claim.try_acquire().await?, Standing::Held(grant) if grant.token.is_some()));
//! # Ok(()) }
//! ```

use std::fmt;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use crate::bell::Bell;
use crate::clock::{Clock, Moment};
use crate::driver::Driver;
use crate::engine::Engine;
use crate::key::{Key, Namespace};
use crate::prehashed::{Hashed, HashedMap};

mod claim;
mod faults;
mod history;
mod inspect;
mod plan;
mod record;

pub use self::faults::Faults;
pub use self::history::{Answer, Event};
pub use self::plan::{Call, Fault, Rule, Who};

use self::claim::MemoryDriver;
use self::record::Record;

/// Bells to ring once no lock is held any more.
type Rings = Vec<Bell>;

const SHARDS: usize = 16;

/// A store of locks in memory. Cheap to clone; clones are the same store, as two connections to one server are.
///
/// The drivers of one store should use the same kind of clock (all the host's, or the same manual one): leases are
/// judged by the clock of whoever looks. A client that is closed or dropped leaves its holds to their TTL.
#[derive(Clone, Default)]
pub struct Memory(Arc<Store>);

impl Memory {
    /// An empty store.
    pub fn new() -> Self {
        Self::default()
    }

    /// A driver on this store for one client.
    pub fn driver(&self, engine: Engine) -> Arc<dyn Driver> {
        self.0.clock.get_or_init(|| engine.clock().clone());
        Arc::new(MemoryDriver::new(self.0.clone(), engine))
    }

    /// What can go wrong, to order. Concerns the namespace `distlock`; see [`Faults::in_namespace`].
    pub fn faults(&self) -> Faults {
        Faults::new(self.0.clone())
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let records: usize = self.0.shards.iter().map(|s| lock(s).records.len()).sum();
        f.debug_struct("Memory").field("records", &records).finish()
    }
}

/// The records, and the faults that await those who ask for them.
#[derive(Default)]
struct Store {
    shards: [Mutex<Shard>; SHARDS],
    hasher: RandomState,
    plan: plan::Plan,
    /// The clock of the first driver, for faults that need the time.
    clock: OnceLock<Clock>,
    /// When it last began without data; `None` for one that somebody vouches for.
    born: Mutex<Option<Moment>>,
}

#[derive(Default)]
struct Shard {
    records: HashedMap<RecordName, Record>,
    /// At least the largest token of every record that was forgotten.
    floor: u64,
    /// The number of records at which the idle ones are next forgotten.
    sweep_at: usize,
}

/// The name of a record, as [`Namespace::record`] writes it, in two parts that need no writing.
#[derive(Debug, Clone, Eq)]
struct RecordName {
    namespace: Namespace,
    key: Key,
}

impl RecordName {
    fn text(&self) -> String {
        self.namespace.record(&self.key)
    }
}

impl PartialEq for RecordName {
    fn eq(&self, other: &Self) -> bool {
        if self.namespace == other.namespace {
            return self.key == other.key;
        }
        // With exact names the namespace of others is part of the key.
        self.text() == other.text()
    }
}

type Name = Hashed<RecordName>;

impl Store {
    fn name(&self, namespace: &Namespace, key: &Key) -> Name {
        let mut hasher = self.hasher.build_hasher();
        if !namespace.is_exact() {
            hasher.write(namespace.as_str().as_bytes());
            hasher.write(b":");
        }
        hasher.write(key.as_str().as_bytes());
        Name {
            hash: hasher.finish(),
            key: RecordName {
                namespace: namespace.clone(),
                key: key.clone(),
            },
        }
    }

    /// Runs `f` on the record of this name, which is made if need be.
    fn with<T>(&self, name: &Name, now: Moment, f: impl FnOnce(&mut Record, &mut Rings) -> T) -> T {
        let mut rings = Rings::new();
        let mut shard = lock(self.shard(name));
        let out = match shard.records.get_mut(name) {
            Some(record) => f(record, &mut rings),
            None => {
                shard.sweep(now, &mut rings);
                let record = Record::new(shard.floor);
                f(shard.records.entry(name.clone()).or_insert(record), &mut rings)
            }
        };
        drop(shard);
        ring(rings);
        out
    }

    /// Runs `f` on the record of this name, if there is one.
    fn with_existing<T>(&self, name: &Name, f: impl FnOnce(&mut Record, &mut Rings) -> T) -> Option<T> {
        let mut rings = Rings::new();
        let out = lock(self.shard(name))
            .records
            .get_mut(name)
            .map(|record| f(record, &mut rings));
        ring(rings);
        out
    }

    fn shard(&self, name: &Name) -> &Mutex<Shard> {
        &self.shards[name.shard(SHARDS)]
    }

    fn clock(&self) -> &Clock {
        self.clock.get_or_init(Clock::boot)
    }
}

impl Shard {
    /// Forgets the idle records, keeping their tokens' floor, when there are many. Keeping a few spares a busy lock
    /// the making of its record at each turn.
    fn sweep(&mut self, now: Moment, rings: &mut Rings) {
        if self.records.len() < self.sweep_at {
            return;
        }
        let floor = &mut self.floor;
        self.records.retain(|_, record| {
            record.prune(now, rings);
            if record.is_idle() {
                *floor = (*floor).max(record.last_token());
            }
            !record.is_idle()
        });
        self.sweep_at = 2 * self.records.len() + 64;
    }
}

fn ring(rings: Rings) {
    for bell in rings {
        bell.ring();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
