//! Nodes that restarted empty: who may not vote, and until when.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tracing::warn;

use super::{RestartGuard, Rules};
use crate::clock::Moment;

/// What is known of the nodes' ages.
#[derive(Debug)]
pub(super) struct Newborns {
    /// Until when each node is too young, as far as is known.
    until: Mutex<Vec<Moment>>,
    /// Whether the warning was given since the last time that there was no reason for it.
    warned: AtomicBool,
}

impl Newborns {
    pub(super) fn new(nodes: usize) -> Self {
        Self {
            until: Mutex::new(vec![Moment::START; nodes]),
            warned: AtomicBool::new(false),
        }
    }

    /// Notes how old a node says it is; gives how long it is still too young.
    pub(super) fn note(
        &self,
        node: usize,
        age: Option<Duration>,
        rules: &Rules,
        now: Moment,
    ) -> Option<Duration> {
        let left = age
            .and_then(|age| rules.max_ttl.checked_sub(age))
            .filter(|left| !left.is_zero());
        let mut until = self.until.lock().unwrap_or_else(PoisonError::into_inner);
        until[node] = left.map_or(Moment::START, |left| now + left);
        left
    }

    /// Whether the newborns may vote all the same: so many of them look like a new deployment.
    pub(super) fn may_vote(&self, rules: &Rules, now: Moment) -> bool {
        if rules.restart_guard == RestartGuard::Strict {
            return false;
        }
        let until = self.until.lock().unwrap_or_else(PoisonError::into_inner);
        let young = until.iter().filter(|until| **until > now).count();
        let most = young > until.len() / 2;
        if !most {
            self.warned.store(false, Ordering::Relaxed);
        } else if !self.warned.swap(true, Ordering::Relaxed) {
            warn!(target: "distlock", nodes = until.len(), young, max_ttl = ?rules.max_ttl,
                "a majority of the nodes started without data less than max_ttl ago: taken for a new deployment; if \
                 they lost their data instead, locks that were held may be granted again");
        }
        most
    }
}
