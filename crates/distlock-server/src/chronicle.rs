//! What happened lately, as this gateway saw it: losses, breaks, contention, waits. Kept in memory, for people who
//! look; the engine knows none of it.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use distlock_core::Lease;
use distlock_core::clock::Moment;
use serde::Serialize;
use utoipa::ToSchema;

use crate::api::types::{Granted, epoch_millis, millis};
use crate::tenants::Tenants;

/// How many events are kept, and how many losses besides.
const EVENTS: usize = 2000;
const LOSSES: usize = 200;
/// How many keys' waits are kept.
const KEYS: usize = 1000;
/// How many leases are followed to their end.
const LEASES: usize = 50_000;
/// The upper bounds of the wait-time histogram, in milliseconds; the last class is open.
const BOUNDS: [u64; 9] = [1, 5, 20, 100, 500, 2_000, 10_000, 30_000, 60_000];

/// Something that happened to a lock.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct Event {
    /// When, in milliseconds since 1970.
    pub(crate) at_ms: Option<u64>,
    /// `granted`, `released`, `expired`, `lost` or `broken`.
    pub(crate) what: &'static str,
    /// The lock's name.
    pub(crate) key: String,
    /// Whose it was.
    pub(crate) label: Option<String>,
    /// Why: the reason of a break, or the word of a loss.
    pub(crate) reason: Option<String>,
    /// Who did it, of a break.
    pub(crate) by: Option<String>,
}

/// How much a key was waited for.
#[derive(Debug, Clone, Default, Serialize, ToSchema)]
pub(crate) struct Contended {
    /// The lock's name.
    pub(crate) key: String,
    /// How many requests had to wait, or found it busy.
    pub(crate) waits: u64,
    /// How long they waited in all.
    pub(crate) waited_ms: u64,
}

/// One class of the histogram.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct Class {
    /// The longest wait in it; none: no limit.
    pub(crate) up_to_ms: Option<u64>,
    /// How many.
    pub(crate) count: u64,
}

/// What this gateway saw lately.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct Activity {
    /// What happened, newest first.
    pub(crate) events: Vec<Event>,
    /// Of these, and of those before them, what took a lock from its holder.
    pub(crate) losses: Vec<Event>,
    /// The keys that were waited for most, most first.
    pub(crate) contended: Vec<Contended>,
    /// How long grants took, from the request on.
    pub(crate) waits: Vec<Class>,
}

/// A lease that was granted here.
#[derive(Debug)]
struct Followed {
    namespace: String,
    lease: Lease,
    label: Option<String>,
    until: Moment,
}

#[derive(Debug, Default)]
struct Space {
    events: VecDeque<Event>,
    losses: VecDeque<Event>,
    contended: HashMap<String, Contended>,
    waits: [u64; BOUNDS.len() + 1],
}

#[derive(Debug, Default)]
struct Inner {
    spaces: HashMap<String, Space>,
    followed: HashMap<String, Followed>,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Chronicle(Mutex<Inner>);

impl Chronicle {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn event(
        &self,
        namespace: &str,
        what: &'static str,
        key: &str,
        label: Option<String>,
        reason: Option<String>,
        by: Option<String>,
    ) {
        let event = Event {
            at_ms: epoch_millis(SystemTime::now()),
            what,
            key: key.to_owned(),
            label,
            reason,
            by,
        };
        let mut inner = self.lock();
        let space = inner.spaces.entry(namespace.to_owned()).or_default();
        if matches!(what, "lost" | "expired" | "broken") {
            space.losses.push_front(event.clone());
            space.losses.truncate(LOSSES);
        }
        space.events.push_front(event);
        space.events.truncate(EVENTS);
    }

    /// Somebody waited for this key, whether or not it was granted.
    pub(crate) fn contended(&self, namespace: &str, key: &str, waited: Duration) {
        let mut inner = self.lock();
        let contended = &mut inner.spaces.entry(namespace.to_owned()).or_default().contended;
        if contended.len() >= KEYS && !contended.contains_key(key) {
            // The least contended half makes room.
            let mut counts: Vec<u64> = contended.values().map(|c| c.waits).collect();
            counts.sort_unstable();
            let median = counts[counts.len() / 2];
            contended.retain(|_, c| c.waits > median);
        }
        let entry = contended.entry(key.to_owned()).or_insert_with(|| Contended {
            key: key.to_owned(),
            ..Contended::default()
        });
        entry.waits += 1;
        entry.waited_ms += millis(waited);
    }

    /// These were granted.
    pub(crate) fn granted(
        &self,
        namespace: &str,
        leases: &[Granted],
        label: Option<&String>,
        took: Duration,
    ) {
        for lease in leases {
            self.event(
                namespace,
                "granted",
                lease.key.as_str(),
                label.cloned(),
                None,
                None,
            );
            self.follow(namespace, lease, label.cloned());
        }
        let mut inner = self.lock();
        let space = inner.spaces.entry(namespace.to_owned()).or_default();
        let took = millis(took);
        let class = BOUNDS
            .iter()
            .position(|bound| took <= *bound)
            .unwrap_or(BOUNDS.len());
        space.waits[class] += 1;
    }

    fn follow(&self, namespace: &str, granted: &Granted, label: Option<String>) {
        let Ok(lease) = granted.handle.parse::<Lease>() else {
            return;
        };
        let mut inner = self.lock();
        if inner.followed.len() < LEASES {
            let followed = Followed {
                namespace: namespace.to_owned(),
                label,
                until: granted.valid_until + granted.ttl / 10,
                lease: lease.clone(),
            };
            inner.followed.insert(lease.owner().to_string(), followed);
        }
    }

    /// A lease was renewed here.
    pub(crate) fn renewed(&self, namespace: &str, granted: &Granted) {
        let label = self.forget(&granted.handle);
        self.follow(namespace, granted, label);
    }

    /// The lease is no longer followed; its label.
    fn forget(&self, handle: &str) -> Option<String> {
        let lease: Lease = handle.parse().ok()?;
        self.lock().followed.remove(&lease.owner().to_string())?.label
    }

    /// A lease was released here.
    pub(crate) fn released(&self, namespace: &str, key: &str, handle: &str) {
        let label = self.forget(handle);
        self.event(namespace, "released", key, label, None, None);
    }

    /// A lease turned out to be over when it should have been renewed or released.
    pub(crate) fn lost(&self, namespace: &str, key: &str, handle: &str, reason: Option<&'static str>) {
        let label = self.forget(handle);
        // A break that went this way was told when it happened.
        if reason == Some("broken") && self.was_broken(namespace, key) {
            return;
        }
        self.event(namespace, "lost", key, label, reason.map(str::to_owned), None);
    }

    fn was_broken(&self, namespace: &str, key: &str) -> bool {
        let inner = self.lock();
        let losses = inner.spaces.get(namespace).map(|space| &space.losses);
        losses.is_some_and(|losses| losses.iter().take(20).any(|e| e.what == "broken" && e.key == key))
    }

    /// Looks for leases that were not renewed in time, here or elsewhere.
    pub(crate) async fn sweep(&self, tenants: &Tenants) {
        for tenant in tenants.all() {
            let now = tenant.client.clock().now();
            let due: Vec<(String, Lease)> = self
                .lock()
                .followed
                .iter()
                .filter(|(_, f)| f.namespace == tenant.namespace() && f.until <= now)
                .take(20)
                .map(|(owner, f)| (owner.clone(), f.lease.clone()))
                .collect();
            for (owner, lease) in due {
                let held = tenant.client.inspect(lease.key()).await.ok().and_then(|info| {
                    let holder = info.holders.into_iter().find(|h| h.owner == owner)?;
                    Some(holder.expires_in.unwrap_or(lease.ttl()))
                });
                match held {
                    // Renewed through another gateway, or still in its margin.
                    Some(left) => {
                        if let Some(f) = self.lock().followed.get_mut(&owner) {
                            f.until = now + left + Duration::from_millis(100);
                        }
                    }
                    None => {
                        let followed = self.lock().followed.remove(&owner);
                        if let Some(f) = followed {
                            self.event(
                                &f.namespace,
                                "expired",
                                lease.key().as_str(),
                                f.label,
                                Some("not renewed in time".into()),
                                None,
                            );
                        }
                    }
                }
            }
        }
    }

    /// What happened in a namespace, of one key or of all.
    pub(crate) fn activity(&self, namespace: &str, key: Option<&str>, limit: usize) -> Activity {
        let inner = self.lock();
        let empty = Space::default();
        let space = inner.spaces.get(namespace).unwrap_or(&empty);
        let of_key = |events: &VecDeque<Event>| -> Vec<Event> {
            let wanted = events.iter().filter(|e| key.is_none_or(|key| e.key == key));
            wanted.take(limit).cloned().collect()
        };
        let mut contended: Vec<Contended> = space
            .contended
            .values()
            .filter(|c| key.is_none_or(|key| c.key == key))
            .cloned()
            .collect();
        contended.sort_by(|a, b| b.waits.cmp(&a.waits).then_with(|| a.key.cmp(&b.key)));
        contended.truncate(20);
        let bounds = BOUNDS.iter().map(|b| Some(*b)).chain([None]);
        let waits = bounds
            .zip(space.waits)
            .map(|(up_to_ms, count)| Class { up_to_ms, count });
        Activity {
            events: of_key(&space.events),
            losses: of_key(&space.losses),
            contended,
            waits: waits.collect(),
        }
    }
}
