//! What a command holds: guards of its own, and keys that it re-entered through an ancestor.

use std::future::Future;
use std::time::Duration;

use distlock_core::clock::Moment;
use distlock_core::driver::LostReason;
use distlock_core::{Error, Guard, Key, Release};
use futures_util::future::{FutureExt, select_all};
use tokio::sync::watch;

use crate::reenter::Entered;

/// The lock or locks of one command.
#[derive(Debug, Default)]
pub(crate) struct Held {
    guards: Vec<Guard>,
    entered: Vec<Entered>,
    deadlines: Vec<watch::Receiver<Moment>>,
}

impl Held {
    pub(crate) fn add(&mut self, guard: Guard) {
        self.deadlines.push(guard.deadlines());
        self.guards.push(guard);
    }

    pub(crate) fn enter(&mut self, entered: Entered) {
        self.deadlines.push(entered.deadlines());
        self.entered.push(entered);
    }

    /// Each key with its token, in the order of the keys.
    pub(crate) fn tokens(&self) -> Vec<(Key, Option<u64>)> {
        let own = self.guards.iter().flat_map(|guard| {
            let tokens = guard.tokens().into_iter();
            tokens.map(|(key, token)| (key, token.map(|t| t.get())))
        });
        let entered = self.entered.iter().map(|e| (e.key().clone(), e.token()));
        let mut all: Vec<_> = own.chain(entered).collect();
        all.sort();
        all
    }

    /// The owner as the engine stores it.
    pub(crate) fn owner(&self) -> String {
        match (self.guards.first(), self.entered.first()) {
            (Some(guard), _) => guard.owner().to_string(),
            (None, Some(entered)) => entered.owner().to_owned(),
            (None, None) => String::new(),
        }
    }

    /// Until when all are valid, as far as is known now.
    pub(crate) fn deadline(&self) -> Moment {
        self.deadlines
            .iter()
            .map(|d| *d.borrow())
            .min()
            .unwrap_or(Moment::FAR)
    }

    /// Keeps others out until so long after the grant, also after the release.
    ///
    /// # Errors
    /// Where the engine cannot.
    pub(crate) fn keep_for(&self, window: Duration) -> Result<(), Error> {
        self.guards.iter().try_for_each(|guard| guard.keep_for(window))
    }

    /// The least that one of them is still valid for.
    pub(crate) fn valid_for(&self) -> Duration {
        let own = self.guards.iter().map(Guard::valid_for);
        let entered = self.entered.iter().map(Entered::valid_for);
        own.chain(entered).min().unwrap_or_default()
    }

    /// Resolves when the deadline may have changed; never after a loss.
    ///
    /// # Cancel safety
    /// Safe.
    pub(crate) async fn deadline_changed(&mut self) -> Moment {
        loop {
            if self.deadlines.is_empty() {
                return std::future::pending().await;
            }
            let changes = self.deadlines.iter_mut().map(|d| d.changed().boxed());
            let (changed, at, _) = select_all(changes).await;
            match changed {
                Ok(()) => return self.deadline(),
                // Lost: its last word stays the earliest deadline only if it was; the loss itself is told apart.
                Err(_) => drop(self.deadlines.swap_remove(at)),
            }
        }
    }

    /// Resolves at the first loss, with the key and the reason. Does not borrow.
    pub(crate) fn lost(&self) -> impl Future<Output = (Key, LostReason)> + use<> {
        let own = self.guards.iter().map(|guard| {
            let key = guard.key().clone();
            guard.lost().map(move |reason| (key, reason)).boxed()
        });
        let entered = self.entered.iter().map(|e| {
            let key = e.key().clone();
            e.lost().map(move |reason| (key, reason)).boxed()
        });
        let all: Vec<_> = own.chain(entered).collect();
        async move {
            if all.is_empty() {
                return std::future::pending().await;
            }
            select_all(all).await.0
        }
    }

    /// Gives all back: what was re-entered first, then its own in the reverse order.
    ///
    /// # Errors
    /// The first one, after all were tried.
    pub(crate) async fn release(mut self) -> Result<Release, Error> {
        let mut outcome = Ok(Release::Clean);
        if let Some(reason) = self.entered.iter().find_map(Entered::is_lost) {
            outcome = Ok(Release::Lost(reason));
        }
        self.entered.clear();
        while let Some(guard) = self.guards.pop() {
            let released = guard.release().await;
            outcome = match (outcome, released) {
                (Err(e), _) | (Ok(_), Err(e)) => Err(e),
                (Ok(Release::Clean), Ok(release)) => Ok(release),
                (Ok(worse), Ok(_)) => Ok(worse),
            };
        }
        outcome
    }
}
