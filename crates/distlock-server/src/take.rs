//! Taking locks for others.

use std::sync::Arc;
use std::time::Duration;

use distlock_core::driver::{Mode, Order};
use distlock_core::{Error, ErrorKind, Guard, Key, Lock, Wait, all};
use uuid::Uuid;

use crate::api::types::Granted;
use crate::bound::Bound;
use crate::seats::Seat;
use crate::tenants::Tenant;

/// What somebody wants.
#[derive(Debug, Clone)]
pub(crate) struct Wanted {
    pub(crate) locks: Vec<(Key, Mode)>,
    pub(crate) ttl: Option<Duration>,
    pub(crate) wait: Duration,
    pub(crate) order: Order,
    pub(crate) label: Option<String>,
    pub(crate) reason: Option<String>,
    pub(crate) client: Uuid,
}

impl Wanted {
    fn lock(&self, tenant: &Tenant, seat: &Arc<Seat>, key: &Key, mode: Mode) -> Lock {
        let client = &tenant.client;
        let mut lock = match mode {
            Mode::Mutex => client.mutex(key),
            Mode::Read => client.rw(key).read(),
            Mode::Write => client.rw(key).write(),
            Mode::Slot { of } => client.semaphore(key, of),
        };
        let seat = seat.clone();
        lock = lock
            .order(self.order)
            .on_behalf_of(self.client)
            .on_waiting(move |waiting| seat.tell(waiting));
        if client.capabilities().lease_records {
            lock = lock.detachable();
        }
        if let Some(ttl) = self.ttl {
            lock = lock.ttl(ttl);
        }
        if let Some(label) = &self.label {
            lock = lock.label(label);
        }
        if let Some(reason) = &self.reason {
            lock = lock.reason(reason);
        }
        lock
    }

    async fn guard(&self, tenant: &Tenant, seat: &Arc<Seat>) -> Result<Guard, Error> {
        let wait = match self.wait {
            Duration::ZERO => Wait::Try,
            wait => Wait::For(wait),
        };
        match &self.locks[..] {
            [(key, mode)] => self.lock(tenant, seat, key, *mode).wait(wait).acquire().await,
            many => {
                let locks = many.iter().map(|(key, mode)| self.lock(tenant, seat, key, *mode));
                Box::pin(all(locks).wait(wait).acquire()).await
            }
        }
    }

    /// Takes the locks, and lets go of them without a release: they are their new owner's.
    ///
    /// # Cancel safety
    /// Safe: a dropped future leaves the line, and gives back what it may have been granted.
    pub(crate) async fn take(
        &self,
        tenant: &Tenant,
        seat: &Arc<Seat>,
        bound: &Arc<Bound>,
        patience: Duration,
    ) -> Result<Vec<Granted>, Error> {
        let guard = tokio::time::timeout(self.wait + patience, self.guard(tenant, seat));
        let guard = guard.await.map_err(|_| {
            let why =
                format!("the engine did not answer within {patience:?}; what it may have done is undone");
            Error::new(ErrorKind::OutcomeUnknown, why)
        })??;
        if !tenant.client.capabilities().lease_records {
            return bound.keep(tenant, guard, self);
        }
        // In this order: what is told is never more than what is left.
        let valid_until = tenant.client.clock().now() + guard.valid_for();
        let leases = guard.detach_all()?;
        Ok(leases
            .iter()
            .map(|lease| Granted::of(lease, valid_until))
            .collect())
    }
}
