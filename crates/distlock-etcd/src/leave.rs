//! Leaving the line, or the lock.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::claim::EtcdClaim;
use crate::failure::Failure;
use crate::place::Place;
use crate::record;

impl EtcdClaim {
    /// Deletes our key; whether it was there.
    pub(crate) async fn leave(&mut self, place: &Arc<Place>) -> Result<bool, Failure> {
        let ask = self.ask(place);
        let conditional = place.revision().filter(|_| !self.unsettled);
        let request = match conditional {
            Some(at) => ask.leave(at),
            None => ask.leave_fenced(),
        };
        let reply = self.shared.client.call(request).await?;
        if conditional.is_some() {
            // A repeated request of this kind does nothing to another key of the same name.
            place.give_back(&self.lock);
        }
        if let Some(record) = reply.range(2).first() {
            place.session.joins.fetch_max(record.version, Ordering::AcqRel);
        }
        Ok(reply.deleted(0) > 0)
    }

    /// Leaves our key to a lease that runs out after `keep`; whether it was there.
    pub(crate) async fn leave_kept(&mut self, place: &Arc<Place>, keep: Duration) -> Result<bool, Failure> {
        let Some(at) = place.revision() else {
            return self.leave(place).await;
        };
        let lease = self.shared.grant_unkept(keep).await?;
        let value = record::with(&self.value, "kept", "1");
        let reply = self
            .shared
            .client
            .call(self.ask(place).keep(at, &value, lease))
            .await?;
        if let Some(record) = reply.range(2).first() {
            place.session.joins.fetch_max(record.version, Ordering::AcqRel);
        }
        Ok(reply.succeeded)
    }
}
