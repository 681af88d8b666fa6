//! Renewing holds, many in one request.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use distlock_core::driver::{DriverError, Hold, Renewal};
use distlock_core::{Lease, OwnerId};
use futures_util::future::join_all;

use crate::attempt::until;
use crate::driver::Shared;
use crate::failure::of_problem;
use crate::wire::{Line, RenewAllBody, RenewAllView, RenewPart, time};

/// How many one request renews.
const TOGETHER: usize = 100;

type Answer<'a> = &'a (dyn Fn(usize, Renewal) + Send + Sync);

/// The handles of holds, by their owners as the core knows them.
#[derive(Debug, Default)]
pub(crate) struct Holds(Mutex<HashMap<OwnerId, String>>);

impl Holds {
    fn lock(&self) -> MutexGuard<'_, HashMap<OwnerId, String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn keep(&self, owner: OwnerId, handle: String) {
        self.lock().insert(owner, handle);
    }

    pub(crate) fn get(&self, owner: OwnerId) -> Option<String> {
        self.lock().get(&owner).cloned()
    }

    pub(crate) fn forget(&self, owner: OwnerId) {
        self.lock().remove(&owner);
    }

    /// The handle of a hold. One that another process took is written anew from its mark.
    fn handle(&self, hold: &Hold) -> String {
        let want = &hold.want;
        self.get(want.owner).unwrap_or_else(|| {
            let owner = OwnerId {
                n: hold.mark,
                ..want.owner
            };
            Lease::new(want.key.clone(), owner, want.mode, hold.ttl).to_string()
        })
    }
}

/// What of a handle is not known otherwise: the second part of the owner, which the gateway chose.
pub(crate) fn mark(handle: &str) -> u64 {
    handle.parse::<Lease>().map_or(0, |lease| lease.owner().n)
}

impl Shared {
    pub(crate) async fn renew(self: &Arc<Self>, holds: &[Hold], answer: Answer<'_>) {
        let chunks = holds.chunks(TOGETHER).enumerate();
        join_all(chunks.map(|(n, chunk)| self.renew_some(n * TOGETHER, chunk, answer))).await;
    }

    async fn renew_some(self: &Arc<Self>, first: usize, holds: &[Hold], answer: Answer<'_>) {
        if self.closing.is_cancelled() {
            for i in 0..holds.len() {
                answer(first + i, Renewal::Unknown(DriverError::closed()));
            }
            return;
        }
        let parts = holds.iter().map(|hold| RenewPart {
            handle: self.holds.handle(hold),
            ttl: time(hold.ttl),
        });
        let body = RenewAllBody {
            leases: parts.collect(),
        };
        let (view, sent) = match self.gateway.post::<RenewAllView>("/v1/renew", &body).await {
            Ok(answered) => answered,
            Err(e) => {
                for i in 0..holds.len() {
                    let copy = DriverError::unavailable(e.reached, e.to_string());
                    answer(first + i, Renewal::Unknown(copy));
                }
                return;
            }
        };
        for (i, (line, hold)) in view.renewed.into_iter().zip(holds).enumerate() {
            let renewal = match line {
                Line::Lease(lease) => {
                    let until = until(&lease, sent);
                    // A release needs it, also of a hold that another process took.
                    self.holds.keep(hold.want.owner, lease.handle);
                    Renewal::Good(until)
                }
                Line::Problem(problem) => match problem.lost() {
                    Some(reason) => Renewal::Lost(reason),
                    None => Renewal::Unknown(of_problem(422, *problem)),
                },
                Line::Waiting { .. } => Renewal::Unknown(DriverError::closed()),
            };
            answer(first + i, renewal);
        }
    }
}
