//! Renewal by majority: each node is asked for all holds at once, each hold is answered as soon as it is decided.

use std::sync::{Arc, Mutex, PoisonError};

use futures_util::future::join_all;

use super::{Shared, drift, round, vote};
use crate::clock::Moment;
use crate::driver::{DriverError, Hold, Life, LostReason, Renewal, Want};

type Answer<'a> = &'a (dyn Fn(usize, Renewal) + Send + Sync);

/// What the nodes have said of one hold.
#[derive(Debug, Default)]
struct Count {
    good: usize,
    /// The earliest end among the good ones.
    until: Option<Moment>,
    lost: usize,
    why: Option<LostReason>,
    /// Node and trouble.
    unknown: Vec<(usize, DriverError)>,
    answered: bool,
}

impl Shared {
    pub(super) async fn renew(&self, holds: &[Hold], answer: Answer<'_>) {
        if self.open().is_err() || holds.is_empty() {
            return;
        }
        let stored: Vec<Hold> = holds.iter().map(|hold| self.stored(hold)).collect();
        let counts: Vec<Mutex<Count>> = holds.iter().map(|_| Mutex::default()).collect();
        let node = async |at: usize| {
            let tell = |hold: usize, renewal: Renewal| {
                self.count(at, &holds[hold], &counts[hold], renewal, &|r| answer(hold, r))
            };
            self.nodes[at].driver.renew(&stored, &tell).await;
        };
        // A node that hangs is asked again with the next renewal, while there is time.
        let shortest = holds.iter().map(|hold| hold.ttl).min().unwrap_or_default();
        let limit = self.rules.node_timeout.max(shortest / 6);
        let all = join_all((0..self.nodes.len()).map(node));
        self.clock().timeout(limit, all).await;
        for (at, count) in counts.iter().enumerate() {
            let count = std::mem::take(&mut *count.lock().unwrap_or_else(PoisonError::into_inner));
            if !count.answered {
                answer(at, Renewal::Unknown(self.undecided(&count)));
            }
        }
    }

    /// The hold under the owner by which the nodes know it.
    fn stored(&self, hold: &Hold) -> Hold {
        let owner = round::stored_owner(hold.want.owner, hold.mark);
        let want = match owner == hold.want.owner {
            true => hold.want.clone(),
            false => Arc::new(Want {
                owner,
                key: hold.want.key.clone(),
                label: hold.want.label.clone(),
                reason: hold.want.reason.clone(),
                bell: hold.want.bell.clone(),
                ..*hold.want
            }),
        };
        if hold.want.life == Life::Lease && owner != hold.want.owner {
            self.marks().insert(hold.want.owner, hold.mark);
        }
        Hold {
            want,
            mark: 0,
            ..*hold
        }
    }

    fn count(
        &self,
        node: usize,
        hold: &Hold,
        count: &Mutex<Count>,
        renewal: Renewal,
        answer: &dyn Fn(Renewal),
    ) {
        let mut count = count.lock().unwrap_or_else(PoisonError::into_inner);
        match renewal {
            Renewal::Good(until) => {
                count.good += 1;
                count.until = Some(count.until.map_or(until, |earlier| earlier.min(until)));
            }
            Renewal::Lost(why) => {
                count.lost += 1;
                count.why.get_or_insert(why);
            }
            Renewal::Unknown(e) => count.unknown.push((node, e)),
        }
        if count.answered {
            return;
        }
        let decided = if count.good >= self.majority() {
            count
                .until
                .map(|until| Renewal::Good(until.before(drift(hold.ttl))))
        } else if count.lost > self.nodes.len() - self.majority() {
            count.why.clone().map(Renewal::Lost)
        } else {
            None
        };
        if let Some(renewal) = decided {
            count.answered = true;
            drop(count);
            answer(renewal);
        }
    }

    fn undecided(&self, count: &Count) -> DriverError {
        let silent = self.nodes.len() - count.good - count.lost - count.unknown.len();
        let mut said = vec![format!(
            "renewed on {}, lost on {}, no answer from {silent} of {} nodes",
            count.good,
            count.lost,
            self.nodes.len()
        )];
        said.extend(
            count
                .unknown
                .iter()
                .map(|(node, e)| format!("{}: {e}", self.nodes[*node].name)),
        );
        vote::no_quorum(said)
    }
}
