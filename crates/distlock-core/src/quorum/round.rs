//! One attempt: every node asked once, under one owner.
//!
//! Each attempt of a claim after its first has an owner of its own, the client's and a fresh number. So a request of
//! an earlier one that arrives late, a release above all, never touches what a later one holds. The number is the
//! grant's mark; by it, renewals find the owner that the nodes know.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use tokio::sync::Mutex;

use super::vote::{self, Refused, Vote};
use super::{Shared, drift};
use crate::clock::Moment;
use crate::driver::{Claim, DriverError, Grant, Hold, Reached, Released, Renewal, Standing, Want};
use crate::owner::OwnerId;
use crate::token::FencingToken;

/// A node's claim. A request borrows it; when the request is given up, the claim is here again.
pub(super) type Lent = Arc<Mutex<Box<dyn Claim>>>;

/// One node's part of the attempt.
#[derive(Debug)]
pub(super) struct Seat {
    pub(super) claim: Lent,
    pub(super) vote: Vote,
    /// What it answered to our leaving.
    pub(super) released: Option<Released>,
}

/// The node, what it found, how old its store is, and its clock.
type Asked = (
    usize,
    Result<Standing, DriverError>,
    Option<Duration>,
    Option<u64>,
);
type Asking = FuturesUnordered<BoxFuture<'static, Asked>>;

/// One attempt.
#[derive(Debug)]
pub(super) struct Round {
    /// What is asked of the nodes, under the owner that they store.
    pub(super) want: Arc<Want>,
    /// Where each node stands; `None` for one that is not asked, since it has not answered our leaving yet.
    pub(super) seats: Vec<Option<Seat>>,
    started: Option<Moment>,
    /// The fastest of the clocks that were heard of.
    time: Option<u64>,
    /// Never locked: it makes the futures `Sync`.
    asked: std::sync::Mutex<Asking>,
}

/// How the nodes are left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Leave {
    /// After a refusal: wherever something may be, and each node has its time to answer.
    Refused,
    /// To release: all of them, until a majority has done it.
    Release,
}

/// How long nodes have to answer a release that is decided, at least.
const GRACE: Duration = Duration::from_millis(1);

/// The owner under which the nodes store a hold.
pub(super) fn stored_owner(owner: OwnerId, mark: u64) -> OwnerId {
    match mark {
        0 => owner,
        n => OwnerId { n, ..owner },
    }
}

impl Round {
    /// A round under this owner that asks those nodes for which `ask` is true. No I/O.
    ///
    /// # Errors
    /// What a node refuses.
    pub(super) fn new(
        shared: &Shared,
        want: &Want,
        owner: OwnerId,
        ask: impl Fn(usize) -> bool,
    ) -> Result<Self, DriverError> {
        let want = Arc::new(Want {
            owner,
            key: want.key.clone(),
            // A node has no line: nobody may stand in it while the others decide.
            line: crate::driver::Line::Never,
            label: want.label.clone(),
            reason: want.reason.clone(),
            bell: want.bell.clone(),
            ..*want
        });
        let seat = |node: usize| {
            let claim = shared.nodes[node].driver.claim(want.clone())?;
            Ok(Seat {
                claim: Arc::new(Mutex::new(claim)),
                vote: Vote::Silent,
                released: None,
            })
        };
        let seats = (0..shared.nodes.len()).map(|node| ask(node).then(|| seat(node)).transpose());
        Ok(Self {
            seats: seats.collect::<Result<_, DriverError>>()?,
            want,
            started: None,
            time: None,
            asked: std::sync::Mutex::default(),
        })
    }

    fn asked(&mut self) -> &mut Asking {
        self.asked.get_mut().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn is_started(&self) -> bool {
        self.started.is_some()
    }

    /// Asks all nodes, until a majority has granted or all have answered or the time is over.
    pub(super) async fn ask(&mut self, shared: &Shared) {
        let clock = shared.clock();
        let started = clock.now();
        self.started = Some(started);
        let exclusive = self.want.mode.is_exclusive();
        let proposal = shared.proposals.next(started).filter(|_| exclusive);
        let asking = self.asked.get_mut().unwrap_or_else(PoisonError::into_inner);
        for (node, seat) in self.seats.iter().enumerate() {
            let Some(seat) = seat else { continue };
            let claim = seat.claim.clone();
            let asked: BoxFuture<'static, Asked> = Box::pin(async move {
                let mut claim = claim.lock().await;
                if let Some(token) = proposal {
                    claim.propose(token);
                }
                let found = claim.try_acquire().await;
                (node, found, claim.age(), claim.time())
            });
            asking.push(asked);
        }
        let limit = started + shared.rules.node_timeout;
        while self.granted(shared) < shared.majority() {
            match clock.deadline(limit, self.asked().next()).await {
                Some(Some(answer)) => _ = self.note(shared, answer),
                _ => return,
            }
        }
        self.take_answers(shared);
        if let Some(time) = self.time {
            shared.proposals.note(time, started, clock.now());
        }
    }

    /// Whoever has answered by now counts as well; nobody is waited for.
    fn take_answers(&mut self, shared: &Shared) {
        while let Some(Some(answer)) = self.asked().next().now_or_never() {
            self.note(shared, answer);
        }
    }

    fn note(&mut self, shared: &Shared, (node, found, age, time): Asked) -> Option<FencingToken> {
        let vote = match found {
            Ok(Standing::Held(grant)) if grant.mark == 0 => Vote::Granted {
                token: grant.token,
                newborn: shared
                    .newborns
                    .note(node, age, &shared.rules, shared.clock().now()),
            },
            Ok(Standing::Held(_)) => Vote::Failed(DriverError::unavailable(
                Reached::Maybe,
                "its holds need a mark, which a quorum does not keep",
            )),
            Ok(Standing::Waiting { holder, .. }) => Vote::Taken(holder),
            Err(e) => Vote::Failed(e),
        };
        let token = match &vote {
            Vote::Granted { token, .. } => {
                self.time = self.time.max(time);
                *token
            }
            _ => None,
        };
        if let Some(seat) = &mut self.seats[node] {
            seat.vote = vote;
        }
        token
    }

    fn votes(&self) -> impl Iterator<Item = &Vote> {
        self.seats.iter().flatten().map(|seat| &seat.vote)
    }

    /// How many votes there are for us.
    fn granted(&self, shared: &Shared) -> usize {
        let all = shared.newborns.may_vote(&shared.rules, shared.clock().now());
        let counts = |vote: &&Vote| matches!(vote, Vote::Granted { newborn, .. } if all || newborn.is_none());
        self.votes().filter(counts).count()
    }

    /// The grant, if a majority said yes, has the token, and some of the lease is left.
    ///
    /// # Errors
    /// Why it was refused.
    pub(super) async fn settle(&mut self, shared: &Shared) -> Result<Grant, Refused> {
        if self.granted(shared) < shared.majority() {
            return Err(self.refused(shared));
        }
        let mut token = None;
        if self.want.mode.is_exclusive() {
            token = self
                .votes()
                .filter_map(|vote| match vote {
                    Vote::Granted { token, .. } => *token,
                    _ => None,
                })
                .max();
            if let Some(token) = token
                && self.raise(shared, token).await < shared.majority()
            {
                return Err(self.refused(shared));
            }
        }
        let ttl = self.want.ttl;
        let started = self.started.unwrap_or(Moment::START);
        let valid_until = (started + ttl).before(drift(ttl));
        let now = shared.clock().now();
        if now >= valid_until {
            let took = now.since(started);
            let why = format!("the grant took {took:?}, longer than its ttl of {ttl:?} allows");
            return Err(Refused::Error(DriverError::unavailable(Reached::No, why)));
        }
        Ok(Grant {
            token,
            valid_until,
            mark: self.want.owner.n,
        })
    }

    /// Has the stored token raised to `least` where it is smaller; how many nodes are known to have it. Nodes that
    /// grant while this goes on take part.
    async fn raise(&mut self, shared: &Shared, least: FencingToken) -> usize {
        let mut raised = 0;
        let mut raising = FuturesUnordered::new();
        for (node, seat) in self.seats.iter().enumerate() {
            if let Some(Vote::Granted { token, .. }) = seat.as_ref().map(|seat| &seat.vote) {
                match *token < Some(least) {
                    true => raising.push(raise_one(shared, node, self.hold(least))),
                    false => raised += 1,
                }
            }
        }
        let clock = shared.clock();
        let mut time = std::pin::pin!(clock.sleep(shared.rules.node_timeout));
        while raised < shared.majority() {
            tokio::select! { biased;
                Some((node, renewal)) = raising.next() => match renewal {
                    Renewal::Good(_) => raised += 1,
                    Renewal::Lost(_) => self.revise(node, Vote::Gone),
                    Renewal::Unknown(e) => self.revise(node, Vote::Failed(DriverError { reached: Reached::Maybe, ..e })),
                },
                Some(answer) = self.asked().next() => {
                    let node = answer.0;
                    match self.note(shared, answer) {
                        Some(token) if token < least => raising.push(raise_one(shared, node, self.hold(least))),
                        Some(_) => raised += 1,
                        None => {}
                    }
                }
                () = &mut time => break,
                else => break,
            }
        }
        raised
    }

    fn hold(&self, least: FencingToken) -> Hold {
        Hold {
            want: self.want.clone(),
            mark: 0,
            ttl: self.want.ttl,
            floor: Some(least),
        }
    }

    fn revise(&mut self, node: usize, vote: Vote) {
        if let Some(seat) = &mut self.seats[node] {
            seat.vote = vote;
        }
    }

    fn refused(&self, shared: &Shared) -> Refused {
        let votes = self.seats.iter().map(|seat| seat.as_ref().map(|seat| &seat.vote));
        vote::refused(votes, shared.nodes.iter().map(|node| &*node.name))
    }

    /// Gives up whatever is unanswered, and leaves the nodes where something of us may be, or, to release, all. Those
    /// that did not answer in time have no [`Seat::released`] afterwards.
    pub(super) async fn leave(&mut self, shared: &Shared, keep: Option<Duration>, how: Leave) {
        self.take_answers(shared);
        self.asked().clear();
        let clock = shared.clock();
        let mut leaving = FuturesUnordered::new();
        for (node, seat) in self.seats.iter().enumerate() {
            let Some(seat) = seat else { continue };
            if seat.released.is_none() && (how == Leave::Release || !seat.vote.left_nothing()) {
                let claim = seat.claim.clone();
                leaving.push(async move { (node, claim.lock().await.release(keep).await) });
            }
        }
        let began = clock.now();
        let mut limit = began + shared.rules.node_timeout;
        let mut freed = 0;
        while let Some(Some((node, released))) = clock.deadline(limit, leaving.next()).await {
            let Some(seat) = &mut self.seats[node] else {
                continue;
            };
            match released {
                Ok(released) => {
                    freed += usize::from(released == Released::Freed);
                    seat.released = Some(released);
                }
                Err(e) => {
                    seat.vote = Vote::Failed(DriverError {
                        reached: Reached::Maybe,
                        ..e
                    })
                }
            }
            if how == Leave::Release && freed == shared.majority() {
                // It is free. The others have as long again, so that a healthy node needs no second request.
                let now = clock.now();
                limit = limit.min(now + now.since(began).max(GRACE));
            }
        }
    }
}

async fn raise_one(shared: &Shared, node: usize, hold: Hold) -> (usize, Renewal) {
    let answered = std::sync::Mutex::new(None);
    let answer = |_: usize, renewal: Renewal| {
        *answered.lock().unwrap_or_else(PoisonError::into_inner) = Some(renewal);
    };
    shared.nodes[node].driver.renew(&[hold], &answer).await;
    let renewal = answered.into_inner().unwrap_or_else(PoisonError::into_inner);
    let silent = || Renewal::Unknown(DriverError::unavailable(Reached::Maybe, "no answer"));
    (node, renewal.unwrap_or_else(silent))
}
