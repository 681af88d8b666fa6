//! Renewal: the session is the lease, so what was heard of it renews all holds.

use std::pin::pin;
use std::sync::Arc;

use distlock_core::clock::Moment;
use distlock_core::driver::{DriverError, Hold, LostReason, Reached, Renewal};
use futures_util::future::{join, join_all, try_join_all};
use zookeeper_client::Stat;

use crate::call::{Call, fault};
use crate::driver::Shared;
use crate::registry::{Held, HeldNode};

/// Calls about more holds than these are answered from what is known of the session, if that is recent: its heartbeat
/// and the watches tell what a request would, and the traffic does not grow with the holds.
const FEW: usize = 16;

impl Shared {
    /// One `sync` for a few (somebody verifies, or there are no more): its answer proves that the session lives, and
    /// everything that happened to our nodes before it was told to us before it. Nodes that are not watched on the
    /// present connection are looked at one by one.
    pub(crate) async fn renew(&self, holds: &[Hold], answer: &(dyn Fn(usize, Renewal) + Send + Sync)) {
        let began = self.engine.clock().now();
        let mut live = Vec::new();
        for (at, hold) in holds.iter().enumerate() {
            match self.registry.held(&hold.want.owner) {
                Some(held) if !over(&held) => live.push((at, hold, held)),
                Some(held) => answer(at, Renewal::Lost(self.reason(&held))),
                None => answer(at, Renewal::Lost(LostReason::Taken)),
            }
        }
        if live.len() > FEW {
            self.watches.settle().await;
            live.retain(|(at, hold, held)| {
                let known = held.is_verified() && held.session.is_fresh() && !over(held);
                if known {
                    answer(*at, renewed(hold, held, began));
                }
                !known
            });
        }
        let Some((_, _, first)) = live.first() else { return };
        let call = match first.session.call() {
            Ok(call) => call,
            Err(_) => return live.iter().for_each(|(at, ..)| answer(*at, self.unknown())),
        };
        let doubtful: Vec<_> = live
            .iter()
            .filter(|(_, _, held)| !held.is_verified())
            .map(|(_, hold, held)| (*hold, held.clone()))
            .collect();
        let sync = call.answer(call.client.sync("/"));
        let looks = join_all(doubtful.iter().map(|(_, held)| look(&call, held)));
        // A connection may be silent for long; what is lost meanwhile is told at once.
        let (synced, looks) = {
            let mut asked = pin!(join(sync, looks));
            loop {
                let mut losses = pin!(self.registry.losses());
                losses.as_mut().enable();
                live.retain(|(at, _, held)| {
                    let lost = over(held);
                    if lost {
                        answer(*at, Renewal::Lost(self.reason(held)));
                    }
                    !lost
                });
                if live.is_empty() {
                    return;
                }
                tokio::select! {
                    done = &mut asked => break done,
                    () = losses => {}
                }
            }
        };
        let looked = looks.into_iter().collect::<Result<(), DriverError>>();
        self.watches.settle().await;
        for (hold, held) in doubtful {
            if held.start_watch() && !held.is_gone() {
                self.watches.wait(held.watch(hold.want.bell.clone()));
            }
        }
        let failed = synced.map_err(fault).and(looked).is_err();
        for (at, hold, held) in live {
            answer(
                at,
                match () {
                    () if over(&held) => Renewal::Lost(self.reason(&held)),
                    () if failed => self.unknown(),
                    () => renewed(hold, &held, began),
                },
            );
        }
    }

    fn reason(&self, held: &Held) -> LostReason {
        match held.session.has_ended() {
            true if self.is_closed() => LostReason::Shutdown,
            true => LostReason::SessionEnded,
            false => LostReason::Taken,
        }
    }

    fn unknown(&self) -> Renewal {
        Renewal::Unknown(DriverError::unavailable(
            Reached::Maybe,
            "ZooKeeper does not answer",
        ))
    }
}

fn renewed(hold: &Hold, held: &Held, now: Moment) -> Renewal {
    Renewal::Good(held.session.deadline().min(now + hold.ttl))
}

fn over(held: &Held) -> bool {
    held.is_gone() || held.session.has_ended()
}

/// Whether a hold's nodes are still there, and this session's.
async fn look(call: &Call, held: &Arc<Held>) -> Result<(), DriverError> {
    let stat = |node: &HeldNode| call.answer(call.client.check_stat(&node.path));
    let stats = try_join_all(held.nodes.iter().map(stat)).await.map_err(fault)?;
    let ours = |stat: Option<Stat>| stat.is_some_and(|stat| stat.ephemeral_owner == held.session.id());
    if stats.into_iter().all(ours) {
        held.seen(call.connection);
    } else {
        held.is_lost();
    }
    Ok(())
}
