//! Holds that outlive their process: on a lease of their own, which any process that knows the owner finds.
//!
//! The key's name follows from the owner, and the key says which lease it is on: an extension beyond the granted TTL
//! moves it to a longer one, since etcd's leases cannot be made longer.

use distlock_core::driver::{DriverError, Hold, LostReason, Renewal, Want};

use crate::ask;
use crate::driver::Shared;
use crate::failure::{Failure, Why};
use crate::heart::Beat;
use crate::place::{self, Place};
use crate::record::Record;
use crate::session::patience;
use crate::sessions::{own_id, seconds};
use crate::wire::{KeyValue, LeaseGrantRequest, LeaseRevokeRequest};

impl Shared {
    /// Renews the lease that the hold's key is on. `place`: ours, if this process took it.
    pub(crate) async fn renew_lease(&self, hold: &Hold, place: Option<&Place>) -> Renewal {
        let renewed = match self.key_of(hold).await {
            Ok(Ok(kv)) => self.prolong(hold, kv).await,
            Ok(Err(why)) => return Renewal::Lost(why),
            Err(e) => return Renewal::Unknown(e),
        };
        match renewed {
            Ok(Ok((sent, ttl))) => match place {
                Some(place) => match place.session.over() {
                    // Past our own deadline it is lost, whatever the server says.
                    Some(why) => Renewal::Lost(why),
                    None => Renewal::Good(place.session.renewed(sent, ttl)),
                },
                None => Renewal::Good(sent + ttl),
            },
            Ok(Err(why)) => Renewal::Lost(why),
            Err(e) => Renewal::Unknown(e),
        }
    }

    /// The hold's key as stored, if it is still the owner's.
    async fn key_of(&self, hold: &Hold) -> Result<Result<KeyValue, LostReason>, DriverError> {
        let want = &hold.want;
        let lock = self.names.lock(&want.key).map_err(DriverError::refused)?;
        let key = place::key(&lock, want.mode, own_id(want.owner), 0);
        let range = self.client.call(ask::read(&key)).await?;
        let Some(kv) = range.kvs.into_iter().next() else {
            return Ok(Err(LostReason::Expired));
        };
        let record = Record::read(&kv, "");
        Ok(match record.broken {
            Some(reason) => Err(LostReason::Broken { reason }),
            None if record.kept => Err(LostReason::Taken),
            None => Ok(kv),
        })
    }

    async fn prolong(
        &self,
        hold: &Hold,
        kv: KeyValue,
    ) -> Result<Result<(distlock_core::clock::Moment, std::time::Duration), LostReason>, DriverError> {
        match self.heart.beat(kv.lease, patience(hold.ttl)).await? {
            Beat::Gone => Ok(Err(LostReason::Expired)),
            Beat::Alive { sent, ttl } if ttl >= hold.ttl => Ok(Ok((sent, ttl))),
            Beat::Alive { .. } => {
                let sent = self.client.clock().now();
                let lease = self
                    .client
                    .call(LeaseGrantRequest {
                        ttl: seconds(hold.ttl),
                        id: 0,
                    })
                    .await?;
                let moved = self
                    .client
                    .call(ask::move_to(kv.key, kv.create_revision, lease.id))
                    .await?;
                let unused = if moved.succeeded { kv.lease } else { lease.id };
                // What fails here runs out by itself.
                let _ = self.client.call(LeaseRevokeRequest { id: unused }).await;
                if !moved.succeeded {
                    return Ok(Err(LostReason::Taken));
                }
                let ttl = u64::try_from(lease.ttl).map_or(hold.ttl, std::time::Duration::from_secs);
                Ok(Ok((sent, ttl)))
            }
        }
    }

    /// Ends a hold or a place in line on a lease of its own; whether its key was there. Without the lease no join of
    /// it can arrive any more.
    pub(crate) async fn leave_lease(&self, lock: &str, want: &Want) -> Result<bool, Failure> {
        let id = own_id(want.owner);
        let taken = self
            .client
            .call(ask::take(&place::key(lock, want.mode, id, 0)))
            .await?;
        let moved_to = taken
            .range(0)
            .first()
            .map(|kv| kv.lease)
            .filter(|lease| *lease != id && *lease != 0);
        if let Some(id) = moved_to {
            // It has no key any more, and runs out by itself.
            let _ = self.client.call(LeaseRevokeRequest { id }).await;
        }
        match self.client.call(LeaseRevokeRequest { id }).await {
            Err(failure) if failure.why != Why::NoLease => Err(failure),
            _ => Ok(taken.deleted(1) > 0),
        }
    }
}
