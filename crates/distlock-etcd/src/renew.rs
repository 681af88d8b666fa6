//! Whether holds are still ours.
//!
//! The lease is kept alive once for all of them, so that is known without asking. That the keys are still there is
//! told by their watches, and, where one transaction can do it, read as well: a call about a few holds (somebody
//! verifies, or there are only a few) is answered from the store itself, while the traffic for ten thousand holds is
//! that of their lease.

use std::sync::Arc;

use distlock_core::driver::{Hold, Life, LostReason, Renewal};
use futures_util::future::join_all;

use crate::ask;
use crate::driver::Shared;
use crate::place::Place;
use crate::record::Record;
use crate::session::Fresh;

type Answer<'a> = &'a (dyn Fn(usize, Renewal) + Send + Sync);

impl Shared {
    pub(crate) async fn renew(&self, holds: &[Hold], answer: Answer<'_>) {
        let mut shared = Vec::new();
        let mut own = Vec::new();
        for (i, hold) in holds.iter().enumerate() {
            let mine = hold.want.owner.client == self.engine.owners().client();
            let place = self.holds.get(hold.want.owner.n).filter(|_| mine);
            match place {
                Some(place) => match place.gone().or_else(|| place.session.over()) {
                    Some(why) => answer(i, Renewal::Lost(why)),
                    None if hold.want.life == Life::Process => shared.push((i, place)),
                    None => own.push((i, Some(place))),
                },
                // On a lease of its own it may have been taken by another process.
                None if hold.want.life == Life::Lease => own.push((i, None)),
                None => answer(i, Renewal::Lost(LostReason::Taken)),
            }
        }
        let own = own.into_iter().map(|(i, place)| async move {
            answer(i, self.renew_lease(&holds[i], place.as_deref()).await);
        });
        tokio::join!(join_all(own), self.renew_shared(shared, answer));
    }

    async fn renew_shared(&self, holds: Vec<(usize, Arc<Place>)>, answer: Answer<'_>) {
        let few = holds.len() <= ask::READ_ALL;
        let (read, told): (Vec<_>, Vec<_>) =
            holds.into_iter().partition(|(_, place)| few || place.is_blind());
        let told = told
            .into_iter()
            .map(|(i, place)| async move { answer(i, renewed(&place).await) });
        let read = read.chunks(ask::READ_ALL).map(|chunk| async move {
            self.see(chunk).await;
            for (i, place) in chunk {
                answer(*i, renewed(place).await);
            }
        });
        tokio::join!(join_all(told), join_all(read));
    }

    /// Reads the keys of these holds. What cannot be read is left to the lease and the watches.
    async fn see(&self, holds: &[(usize, Arc<Place>)]) {
        let keys = holds.iter().map(|(_, place)| place.key.as_str());
        let reply = match self.client.call(ask::read_all(keys)).await {
            Ok(reply) => reply,
            Err(failure) => {
                tracing::debug!(target: "distlock", error = %failure, "the keys of holds could not be read");
                return;
            }
        };
        for (at, (_, place)) in holds.iter().enumerate() {
            let stored = reply.range(at).first();
            match stored.filter(|kv| Some(kv.create_revision) == place.revision()) {
                None => place.lost(LostReason::Taken),
                Some(kv) => match Record::read(kv, "").broken {
                    Some(reason) => place.lost(LostReason::Broken { reason }),
                    None if place.is_blind() => place.arm(&self.watcher, reply.revision() + 1),
                    None => {}
                },
            }
        }
    }
}

/// What the lease and the news of the key say.
async fn renewed(place: &Place) -> Renewal {
    match place.session.fresh().await {
        Ok(valid_until) => place.gone().map_or(Renewal::Good(valid_until), Renewal::Lost),
        Err(Fresh::Over(why)) => Renewal::Lost(place.gone().unwrap_or(why)),
        Err(Fresh::Unknown(e)) => Renewal::Unknown(e),
    }
}
