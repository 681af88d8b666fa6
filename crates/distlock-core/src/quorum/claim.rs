//! One contender on a quorum.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;

use super::Shared;
use super::round::{Leave, Lent, Round, stored_owner};
use super::vote::{Refused, Vote, no_quorum};
use crate::driver::{Claim, DriverError, Grant, Life, Line, Reached, Released, Standing, Want};
use crate::owner::OwnerId;
use crate::pace::Backoff;

/// How often a single try asks again when the votes were split and nobody can have the lock.
const SPLIT: u32 = 3;
/// After a refusal, the next attempt is made after a random time between these, in seconds.
const RECHECK: (f64, f64) = (0.010, 0.100);
/// How long one answer of a node that is being left may take.
const ANSWER: Duration = Duration::from_secs(1);

/// A claim on a majority.
#[derive(Debug)]
pub(super) struct QuorumClaim {
    shared: Arc<Shared>,
    want: Arc<Want>,
    over: bool,
    /// The next attempt, or the present one: what it asked for has not been given back.
    round: Option<Round>,
    /// For each node whether it still owes us the answer to our leaving.
    owing: Vec<Arc<AtomicBool>>,
}

impl QuorumClaim {
    pub(super) fn new(shared: Arc<Shared>, want: Arc<Want>) -> Result<Self, DriverError> {
        Ok(Self {
            round: Some(Round::new(&shared, &want, want.owner, |_| true)?),
            owing: shared.nodes.iter().map(|_| Arc::default()).collect(),
            want,
            shared,
            over: false,
        })
    }

    /// One attempt, given back unless it is granted.
    async fn attempt(&mut self) -> Result<Grant, Refused> {
        if self.round.as_ref().is_some_and(Round::is_started) {
            // Dropped half way.
            self.give_back().await;
        }
        let shared = self.shared.clone();
        let round = match &mut self.round {
            Some(round) => round,
            none => {
                let owing = |node: usize| self.owing[node].load(Ordering::Acquire);
                let owner = OwnerId {
                    client: self.want.owner.client,
                    n: shared.engine.owners().next().n,
                };
                let fresh = Round::new(&shared, &self.want, owner, |node| !owing(node));
                none.insert(fresh.map_err(Refused::Error)?)
            }
        };
        round.ask(&shared).await;
        match round.settle(&shared).await {
            Ok(grant) => {
                let mark = if round.want.owner == self.want.owner {
                    0
                } else {
                    grant.mark
                };
                Ok(Grant { mark, ..grant })
            }
            Err(refused) => {
                self.give_back().await;
                Err(refused)
            }
        }
    }

    /// Leaves every node where something of the attempt may be. One that does not answer is chased in the
    /// background, and not asked again before it has.
    async fn give_back(&mut self) {
        let Some(round) = &mut self.round else { return };
        round.leave(&self.shared, None, Leave::Refused).await;
        if let Some(round) = self.round.take() {
            self.chase(&round, None);
        }
    }

    fn chase(&self, round: &Round, keep: Option<Duration>) {
        for (node, seat) in round.seats.iter().enumerate() {
            let Some(seat) = seat else { continue };
            let unanswered = matches!(&seat.vote, Vote::Silent)
                || matches!(&seat.vote, Vote::Failed(e) if e.reached == Reached::Maybe);
            let missing = seat.released.is_none() && !seat.vote.left_nothing();
            if missing || unanswered && round.is_started() {
                let owing = self.owing[node].clone();
                owing.store(missing, Ordering::Release);
                self.shared.chase(seat.claim.clone(), owing, round.want.ttl, keep);
            }
        }
    }

    /// Under which owner this claim's hold is stored, for one that another claim acquired.
    fn resumed(&mut self) -> Result<(), DriverError> {
        let unused = self.round.as_ref().is_some_and(|round| !round.is_started());
        let mark = match unused && self.want.life == Life::Lease {
            true => self.shared.marks().remove(&self.want.owner),
            false => None,
        };
        if let Some(mark) = mark {
            let owner = stored_owner(self.want.owner, mark);
            self.round = Some(Round::new(&self.shared, &self.want, owner, |_| true)?);
        }
        Ok(())
    }
}

#[async_trait]
impl Claim for QuorumClaim {
    async fn try_acquire(&mut self) -> Result<Standing, DriverError> {
        for split in 0.. {
            if self.over {
                return Err(DriverError::closed());
            }
            self.shared.open()?;
            match self.attempt().await {
                Ok(grant) => {
                    self.over = true;
                    return Ok(Standing::Held(grant));
                }
                Err(Refused::Error(e)) => return Err(e),
                Err(Refused::Busy { nobody: true, .. }) if self.want.line == Line::Never && split < SPLIT => {
                    let clock = self.shared.clock();
                    clock
                        .sleep(Duration::from_secs_f64(RECHECK.0 * (1.0 + clock.unit())))
                        .await;
                }
                Err(Refused::Busy { holder, .. }) => {
                    let random = RECHECK.0 + (RECHECK.1 - RECHECK.0) * self.shared.clock().unit();
                    let left = holder.as_ref().and_then(|holder| holder.expires_in);
                    return Ok(Standing::Waiting {
                        recheck: Duration::from_secs_f64(random)
                            .min(left.map_or(Duration::MAX, |left| left + Duration::from_millis(1))),
                        holder,
                        ahead: None,
                    });
                }
            }
        }
        Err(DriverError::closed())
    }

    async fn release(&mut self, keep: Option<Duration>) -> Result<Released, DriverError> {
        self.over = true;
        self.resumed()?;
        // Refused attempts were given back.
        let Some(round) = &mut self.round else {
            return Ok(Released::NotHeld);
        };
        round.leave(&self.shared, keep, Leave::Release).await;
        let (mut freed, mut unanswered) = (0, 0);
        for seat in round.seats.iter().flatten() {
            match seat.released {
                Some(Released::Freed) => freed += 1,
                Some(Released::NotHeld) => {}
                None => unanswered += 1,
            }
        }
        let majority = self.shared.majority();
        if freed < majority && freed + unanswered >= majority {
            let said = format!(
                "released on {freed}, no answer from {unanswered} of {} nodes",
                round.seats.len()
            );
            return Err(DriverError {
                reached: Reached::Maybe,
                ..no_quorum(vec![said])
            });
        }
        if let Some(round) = &self.round {
            self.chase(round, keep);
        }
        // Asked once more, it is sent once more: a late request may have come in between.
        for seat in self.round.iter_mut().flat_map(|round| &mut round.seats).flatten() {
            seat.released = None;
        }
        Ok(match freed >= majority {
            true => Released::Freed,
            false => Released::NotHeld,
        })
    }
}

impl Drop for QuorumClaim {
    fn drop(&mut self) {
        if self.want.life == Life::Lease {
            self.shared.marks().remove(&self.want.owner);
        }
    }
}

impl Shared {
    /// Leaves one node in the background, until it has answered or the lease has passed. `owing` is cleared then. A
    /// request that was never answered may arrive still later, so the node is left a few times more.
    fn chase(self: &Arc<Self>, claim: Lent, owing: Arc<AtomicBool>, ttl: Duration, keep: Option<Duration>) {
        let shared = self.clone();
        self.leaving.count.fetch_add(1, Ordering::AcqRel);
        self.engine.spawn(async move {
            let clock = shared.clock();
            let until = clock.now() + ttl;
            let mut pace = Backoff::within(ttl);
            let leave = async || {
                let left = clock
                    .timeout(ANSWER, async { claim.lock().await.release(keep).await })
                    .await;
                matches!(left, Some(Ok(_))) || matches!(left, Some(Err(e)) if !e.retry)
            };
            while !leave().await && clock.now() < until {
                clock.sleep(pace.pause(clock.unit())).await;
            }
            owing.store(false, Ordering::Release);
            if shared.leaving.count.fetch_sub(1, Ordering::AcqRel) == 1 {
                shared.leaving.done.notify_waiters();
            }
            for later in [ttl / 10, ttl / 4, ttl / 2] {
                clock.sleep(later).await;
                leave().await;
            }
        });
    }
}
