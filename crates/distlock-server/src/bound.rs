//! Locks of engines that tie them to a session: this gateway holds them for their owners, and they end with it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use distlock_core::clock::{Clock, Moment};
use distlock_core::{Error, ErrorKind, Guard, Release};
use uuid::Uuid;

use crate::api::types::Granted;
use crate::take::Wanted;
use crate::tenants::Tenant;

/// How the handle of such a lock begins.
const SCHEME: &str = "gw1/";

/// The guards that this gateway keeps for others.
#[derive(Debug)]
pub(crate) struct Bound {
    gateway: Uuid,
    kept: Mutex<HashMap<Uuid, Kept>>,
}

#[derive(Debug)]
struct Kept {
    namespace: String,
    /// What its owner was last told.
    granted: Granted,
    guard: Arc<Guard>,
    clock: Clock,
    /// When it is given back unless its owner renews it.
    until: Moment,
}

fn over() -> Error {
    Error::new(
        ErrorKind::NotHeld,
        "the lease is over: it was released, lost or not renewed in time",
    )
}

impl Bound {
    pub(crate) fn new(gateway: Uuid) -> Self {
        Self {
            gateway,
            kept: Mutex::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Uuid, Kept>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a handle is of this kind.
    pub(crate) fn is_handle(handle: &str) -> bool {
        handle.starts_with(SCHEME)
    }

    fn number(&self, handle: &str) -> Result<Uuid, Error> {
        let mut parts = handle
            .trim()
            .strip_prefix(SCHEME)
            .unwrap_or_default()
            .splitn(2, '/');
        let mut part = || parts.next().and_then(|part| part.parse::<Uuid>().ok());
        match (part(), part()) {
            (Some(gateway), Some(number)) if gateway == self.gateway => Ok(number),
            (Some(_), Some(_)) => Err(Error::new(
                ErrorKind::NotHeld,
                "the lock was bound to another gateway, or to an earlier run of this one; if that is gone, so is the lock",
            )),
            _ => Err(crate::api::types::bad(
                "this is not a lease handle (gw1/…), or it was cut short",
            )),
        }
    }

    /// Keeps a lock for its owner, who renews it here.
    pub(crate) fn keep(
        self: &Arc<Self>,
        tenant: &Tenant,
        guard: Guard,
        wanted: &Wanted,
    ) -> Result<Vec<Granted>, Error> {
        let [(key, mode)] = &wanted.locks[..] else {
            let why = "several locks at once: not supported by an engine that ties locks to a session";
            return Err(Error::new(ErrorKind::Unsupported, why));
        };
        let clock = tenant.client.clock().clone();
        let ttl = wanted.ttl.unwrap_or(Duration::from_secs(30));
        let now = clock.now();
        let number = Uuid::new_v4();
        let granted = Granted {
            handle: format!("{SCHEME}{}/{number}", self.gateway),
            key: key.clone(),
            mode: *mode,
            token: guard.token().map(|t| t.get()),
            ttl,
            valid_until: now + guard.valid_for().min(ttl),
            bound: true,
        };
        let kept = Kept {
            namespace: tenant.namespace().to_owned(),
            granted: granted.clone(),
            guard: Arc::new(guard),
            clock: clock.clone(),
            until: now + ttl,
        };
        self.lock().insert(number, kept);
        let bound = self.clone();
        tokio::spawn(async move {
            while let Some(until) = bound.due(number) {
                clock.sleep_until(until).await;
            }
        });
        Ok(vec![granted])
    }

    /// When the lock is given back; none once it is. Gives it back if that is now.
    fn due(&self, number: Uuid) -> Option<Moment> {
        let mut all = self.lock();
        let kept = all.get(&number)?;
        if kept.clock.now() < kept.until && kept.guard.is_held() {
            return Some(kept.until);
        }
        // The drop of its guard releases it.
        let kept = all.remove(&number);
        drop(all);
        drop(kept);
        None
    }

    /// Renews a lock for its owner.
    pub(crate) async fn renew(
        &self,
        namespace: &str,
        handle: &str,
        ttl: Option<Duration>,
    ) -> Result<Granted, Error> {
        let number = self.number(handle)?;
        let guard = match self.lock().get(&number) {
            Some(kept) if kept.namespace == namespace => kept.guard.clone(),
            _ => return Err(over()),
        };
        match ttl {
            None => guard.verify().await?,
            Some(ttl) => guard.extend(ttl).await?,
        }
        let mut all = self.lock();
        let kept = all.get_mut(&number).ok_or_else(over)?;
        let ttl = ttl.unwrap_or(kept.granted.ttl);
        let now = kept.clock.now();
        kept.until = now + ttl;
        kept.granted.ttl = ttl;
        kept.granted.valid_until = now + guard.valid_for().min(ttl);
        Ok(kept.granted.clone())
    }

    /// Gives a lock back.
    pub(crate) async fn release(&self, namespace: &str, handle: &str) -> Result<bool, Error> {
        let number = self.number(handle)?;
        let kept = {
            let mut all = self.lock();
            match all.get(&number) {
                Some(kept) if kept.namespace == namespace => all.remove(&number),
                _ => None,
            }
        };
        let Some(kept) = kept else { return Ok(false) };
        // A renewal that is on its way has the guard too: then it is released by its drop.
        match Arc::into_inner(kept.guard) {
            Some(guard) => Ok(!matches!(guard.release().await?, Release::Lost(_))),
            None => Ok(true),
        }
    }

    /// The key of a lock that is kept here.
    pub(crate) fn key(&self, handle: &str) -> Result<distlock_core::Key, Error> {
        let number = self.number(handle)?;
        self.lock()
            .get(&number)
            .map(|kept| kept.granted.key.clone())
            .ok_or_else(over)
    }
}
