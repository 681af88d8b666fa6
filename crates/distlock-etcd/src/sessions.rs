//! The leases of one client: one for each TTL, and one for each claim whose lock is to outlive the process.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use distlock_core::OwnerId;
use distlock_core::driver::{DriverError, LostReason};
use distlock_core::engine::Engine;
use futures_util::future::join_all;

use crate::client::Client;
use crate::failure::{Failure, Why};
use crate::heart::{Beat, Heart};
use crate::session::{Session, keep_alive, patience};
use crate::wire::{LeaseGrantRequest, LeaseRevokeRequest};

/// Held while a TTL's lease is asked for, so that it is asked for once.
type Asking = Arc<tokio::sync::Mutex<()>>;

/// The shared leases by TTL in seconds; none where the first is being asked for.
type ByTtl = HashMap<i64, (Asking, Option<Arc<Session>>)>;

/// The leases of one client.
#[derive(Debug)]
pub(crate) struct Sessions {
    engine: Engine,
    client: Arc<Client>,
    heart: Heart,
    /// The prefix of the shared leases' own records.
    records: String,
    shared: Mutex<ByTtl>,
    closed: AtomicBool,
}

impl Sessions {
    pub(crate) fn new(engine: Engine, client: Arc<Client>, heart: Heart, records: String) -> Self {
        Self {
            engine,
            client,
            heart,
            records,
            shared: Mutex::default(),
            closed: AtomicBool::new(false),
        }
    }

    fn lock(&self) -> MutexGuard<'_, ByTtl> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn open(&self) -> Result<(), DriverError> {
        if self.closed.load(Ordering::Acquire) {
            Err(DriverError::closed())
        } else {
            Ok(())
        }
    }

    /// The lease of this TTL that the client's claims share.
    ///
    /// # Cancel safety
    /// Safe: a lease that was granted to nobody runs out by itself.
    pub(crate) async fn shared(&self, ttl: Duration) -> Result<Arc<Session>, DriverError> {
        self.open()?;
        let seconds = seconds(ttl);
        let asking = match self.find(seconds) {
            Ok(session) => return Ok(session),
            Err(asking) => asking,
        };
        let _one = asking.lock().await;
        if let Ok(session) = self.find(seconds) {
            return Ok(session);
        }
        let session = self.grant(seconds, 0).await?;
        self.lock()
            .insert(seconds, (asking.clone(), Some(session.clone())));
        self.keep(&session, true);
        // A client that was closed meanwhile has revoked what it found; this one it has not.
        if let Err(closed) = self.open() {
            session.end(LostReason::Shutdown);
            let _ = self.client.call(LeaseRevokeRequest { id: session.id }).await;
            return Err(closed);
        }
        Ok(session)
    }

    fn find(&self, seconds: i64) -> Result<Arc<Session>, Asking> {
        let mut shared = self.lock();
        let (asking, session) = shared.entry(seconds).or_default();
        match session {
            Some(session) if session.over().is_none() => Ok(session.clone()),
            _ => Err(asking.clone()),
        }
    }

    /// The lease of one claim alone. Its id follows from the owner, so that another process can find it, and a
    /// repeated request finds the lease that an unanswered one was granted.
    pub(crate) async fn own(&self, owner: OwnerId, ttl: Duration) -> Result<Arc<Session>, DriverError> {
        self.open()?;
        let id = own_id(owner);
        let session = match self.grant(seconds(ttl), id).await {
            Err(failure) if failure.why == Why::LeaseExists => self.adopt(id, ttl).await?,
            granted => granted?,
        };
        self.keep(&session, false);
        Ok(session)
    }

    /// The lease that an earlier request of ours was granted, although its answer was lost.
    async fn adopt(&self, id: i64, ttl: Duration) -> Result<Arc<Session>, DriverError> {
        match self.heart.beat(id, patience(ttl)).await? {
            Beat::Alive { sent, ttl } => Ok(Session::new(id, ttl, sent, None, self.client.clock().clone())),
            Beat::Gone => Err(Failure::unsent("the lease ran out while it was looked for").into()),
        }
    }

    async fn grant(&self, ttl: i64, id: i64) -> Result<Arc<Session>, Failure> {
        let sent = self.client.clock().now();
        let lease = self.client.call(LeaseGrantRequest { ttl, id }).await?;
        let granted = Duration::from_secs(u64::try_from(lease.ttl).unwrap_or(0));
        if granted > Duration::from_secs(u64::try_from(ttl).unwrap_or(0)) {
            tracing::debug!(target: "distlock", asked = ttl, ?granted, "the etcd server raised the TTL");
        }
        let record = (id == 0).then(|| format!("{}{:x}", self.records, lease.id));
        Ok(Session::new(
            lease.id,
            granted,
            sent,
            record,
            self.client.clock().clone(),
        ))
    }

    fn keep(&self, session: &Arc<Session>, shared: bool) {
        let task = keep_alive(session.clone(), self.heart.clone(), self.client.clone(), shared);
        self.engine.spawn(task);
    }

    /// Ends the shared leases, and with them all their keys.
    pub(crate) async fn close(&self) {
        self.closed.store(true, Ordering::Release);
        let all: Vec<_> = self
            .lock()
            .drain()
            .filter_map(|(_, (_, session))| session)
            .collect();
        join_all(all.iter().map(|session| async {
            session.end(LostReason::Shutdown);
            if let Err(failure) = self.client.call(LeaseRevokeRequest { id: session.id }).await {
                tracing::debug!(target: "distlock", error = %failure, "an etcd lease was left to run out");
            }
        }))
        .await;
    }
}

/// The TTL in etcd's unit, rounded up.
pub(crate) fn seconds(ttl: Duration) -> i64 {
    i64::try_from(ttl.as_nanos().div_ceil(1_000_000_000))
        .unwrap_or(i64::MAX)
        .max(1)
}

/// The id of the lease of this owner alone: positive, like those that servers choose.
pub(crate) fn own_id(owner: OwnerId) -> i64 {
    let (high, low) = owner.client.as_u64_pair();
    // Splitmix64's finaliser: neighbouring numbers of one client give ids that have nothing in common.
    let mut id = high ^ low.rotate_left(32) ^ owner.n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    id = (id ^ (id >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    id = (id ^ (id >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    id ^= id >> 31;
    i64::try_from(id >> 1).unwrap_or(1).max(1)
}

#[cfg(test)]
mod tests {
    use distlock_core::Owners;

    use super::*;

    #[test]
    fn ttls_are_rounded_up() {
        for (ttl, whole) in [(1, 1), (1000, 1), (1001, 2), (30_000, 30)] {
            assert_eq!(seconds(Duration::from_millis(ttl)), whole);
        }
    }

    #[test]
    fn owners_have_leases_of_their_own() {
        let owners = Owners::new();
        let ids: std::collections::HashSet<_> = (0..10_000).map(|_| own_id(owners.next())).collect();
        assert_eq!(ids.len(), 10_000);
        assert!(ids.iter().all(|id| *id > 0));
        let owner = owners.next();
        assert_eq!(own_id(owner), own_id(owner));
    }
}
