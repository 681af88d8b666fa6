//! Renewal: each node its own holds, in scripts for each slot, and holds whose slot moves one by one.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use distlock_core::OwnerId;
use distlock_core::driver::{Driver, DriverError, Hold, Life, Renewal};
use futures_util::future::join_all;

use super::Cluster;
use super::node::Node;
use super::topology::Next;
use crate::fault::{elsewhere, unanswered};
use crate::hub::Watched;
use crate::slot::slot;

/// How often a renewal follows a slot before the keeper is told to ask later.
const MOVES: usize = 4;

type Answer<'a> = &'a (dyn Fn(usize, Renewal) + Send + Sync);

impl Cluster {
    /// The nodes are asked side by side: one that is sick delays nobody whose locks are elsewhere.
    pub(super) async fn renew(&self, holds: &[Hold], answer: Answer<'_>) {
        let mut nodes: HashMap<u64, (Arc<Node>, Vec<usize>)> = HashMap::new();
        for (at, hold) in holds.iter().enumerate() {
            match self.topology.serving(slot(&self.stored(&hold.want.key))) {
                Ok(node) => nodes
                    .entry(node.id)
                    .or_insert_with(|| (node, Vec::new()))
                    .1
                    .push(at),
                Err(e) => answer(at, Renewal::Unknown(e)),
            }
        }
        let at_node = |(node, group)| self.renew_at(node, group, holds, answer);
        join_all(nodes.into_values().map(at_node)).await;
    }

    async fn renew_at(&self, node: Arc<Node>, group: Vec<usize>, holds: &[Hold], answer: Answer<'_>) {
        let asked: Vec<Hold> = group.iter().map(|at| holds[*at].clone()).collect();
        let moving = Mutex::new(Vec::new());
        let tell = |n: usize, renewal: Renewal| match renewal {
            Renewal::Unknown(e) if elsewhere(&e).is_some() => {
                moving
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .push((group[n], e));
            }
            renewal => self.tell(&node, &asked[n], renewal, &|renewal| answer(group[n], renewal)),
        };
        node.driver.renew(&asked, &tell).await;
        let moving = moving.into_inner().unwrap_or_else(PoisonError::into_inner);
        join_all(moving.into_iter().map(|(at, e)| {
            let tell = move |renewal| answer(at, renewal);
            self.renew_moving(&holds[at], node.clone(), e, tell)
        }))
        .await;
    }

    /// Renews one hold whose slot moves. A node asks for all keys of a request at once, so only a hold by itself can
    /// be renewed while its slot is on its way.
    async fn renew_moving(
        &self,
        hold: &Hold,
        mut node: Arc<Node>,
        mut e: DriverError,
        answer: impl Fn(Renewal) + Send + Sync,
    ) {
        for _ in 0..MOVES {
            let asking = match self.topology.redirected(&node, &e) {
                Some(Next::Asking(to)) => {
                    node = to;
                    true
                }
                Some(Next::Again | Next::Later) => {
                    match self.topology.serving(slot(&self.stored(&hold.want.key))) {
                        Ok(serving) => node = serving,
                        Err(e) => return answer(Renewal::Unknown(e)),
                    }
                    false
                }
                None => break,
            };
            let said = Mutex::new(None);
            let hear = |_, renewal| *said.lock().unwrap_or_else(PoisonError::into_inner) = Some(renewal);
            node.driver
                .0
                .renew(std::slice::from_ref(hold), &hear, asking)
                .await;
            match said.into_inner().unwrap_or_else(PoisonError::into_inner) {
                Some(Renewal::Unknown(again)) if elsewhere(&again).is_some() => e = again,
                Some(renewal) => return self.tell(&node, hold, renewal, &answer),
                None => return,
            }
        }
        answer(Renewal::Unknown(unanswered(&e)));
    }

    fn tell(&self, node: &Arc<Node>, hold: &Hold, renewal: Renewal, answer: &dyn Fn(Renewal)) {
        match &renewal {
            Renewal::Good(_) => self.followed.at(node, hold),
            Renewal::Unknown(_) => self.topology.suspect(),
            Renewal::Lost(_) => {}
        }
        answer(renewal);
    }
}

/// Holds that are at another node than the one that granted them: it has to tell when they are taken away.
#[derive(Debug, Default)]
pub(super) struct Followed(Mutex<HashMap<OwnerId, (u64, Watched)>>);

impl Followed {
    fn at(&self, node: &Arc<Node>, hold: &Hold) {
        // A lease is nobody's to be told of.
        if hold.mark == node.id || hold.want.life == Life::Lease {
            return;
        }
        let mut followed = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if followed
            .get(&hold.want.owner)
            .is_some_and(|(at, _)| *at == node.id)
        {
            return;
        }
        let shared = &node.driver.0;
        let shape = shared.shape(&hold.want);
        let bell = hold.want.bell.clone();
        let watched = shared.hub.watch(&shape.key, &shape.stored, shape.tracked(), bell);
        followed.insert(hold.want.owner, (node.id, watched));
    }

    pub(super) fn forget(&self, owner: OwnerId) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&owner);
    }
}
