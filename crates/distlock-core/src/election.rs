//! Leader election: of many candidates one leads, until it resigns, dies or is cut off; then another does.
//!
//! A term is a hold of a mutex whose key names the office, so all that is said of guards is true of terms: the leader
//! learns of the end of its term by its own clock before anybody else can be elected, and the term's token is what a
//! store checks against a leader that was stopped and does not know yet.

use std::fmt;
use std::future::{Future, ready};
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{BoxStream, StreamExt};
use tracing::info;

use crate::client::Client;
use crate::driver::{Holder, LockInfo};
use crate::entered::Entered;
use crate::error::{Error, ErrorKind, RunError};
use crate::guard::{Guard, Held};
use crate::holds::Holds;
use crate::key::{IntoKey, Key};
use crate::lock::Lock;
use crate::release::Release;

/// An office that one candidate at a time holds; see [`Client::election`]. Cheap to clone.
#[derive(Debug, Clone)]
#[must_use = "nobody is a candidate until `campaign` or `lead` is called and awaited"]
pub struct Election {
    client: Client,
    key: Result<Key, Arc<str>>,
    ttl: Option<Duration>,
    reason: Option<String>,
}

/// The time in which one leads: a [`Guard`], to which it dereferences for [`token`](Guard::token),
/// [`lost`](Guard::lost), [`is_held`](Guard::is_held), [`ensure`](Guard::ensure) and the rest.
///
/// Dropped, it resigns in the background.
#[must_use = "the term ends as soon as this is dropped; bind it to a variable, and call `resign`"]
pub struct Term(Guard);

impl fmt::Debug for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Term").field(&self.0).finish()
    }
}

impl Deref for Term {
    type Target = Guard;
    fn deref(&self) -> &Guard {
        &self.0
    }
}

impl Term {
    /// Lets the next candidate lead, at once; says whether this one still led.
    ///
    /// # Errors
    /// As [`Guard::release`].
    ///
    /// # Cancel safety
    /// As [`Guard::release`].
    pub async fn resign(self) -> Result<Release, Error> {
        self.0.release().await
    }
}

impl Client {
    /// The election of a leader. All candidates name the same key, which is a mutex of this name.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// # use distlock_core::{Client, memory::Memory};
    /// # let locks = Client::builder().label("api-7").memory(&Memory::new())?;
    /// let office = locks.election("scheduler");
    /// let term = office.campaign().await?;              // waits until this candidate leads
    /// assert_eq!(office.leader().await?.and_then(|l| l.label).as_deref(), Some("api-7"));
    /// assert!(term.token().is_some() && term.is_held()); // send the token with every write
    /// term.resign().await?;
    /// # Ok::<(), distlock_core::Error>(()) }).unwrap();
    /// ```
    pub fn election(&self, key: impl IntoKey) -> Election {
        Election {
            client: self.clone(),
            key: key.into_key().map_err(|e| e.message().into()),
            ttl: None,
            reason: None,
        }
    }
}

impl Election {
    /// How long there is no leader after one died, at most; renewed at a third. Default: the client's TTL.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = Some(ttl);
        self
    }

    /// Why, for people who look.
    pub fn reason(mut self, reason: impl Into<String>) -> Self {
        self.reason = Some(reason.into());
        self
    }

    fn key(&self) -> Result<Key, Error> {
        let bad = |why: &Arc<str>| Error::new(ErrorKind::InvalidKey, &**why);
        self.key.as_ref().map_err(bad).cloned()
    }

    fn lock(&self) -> Lock {
        let mut lock = self.client.mutex(self.key());
        if let Some(ttl) = self.ttl {
            lock = lock.ttl(ttl);
        }
        if let Some(reason) = &self.reason {
            lock = lock.reason(reason.clone());
        }
        lock
    }

    /// Stands as a candidate until elected. While the engine does not answer, it goes on standing.
    ///
    /// # Errors
    /// As [`Lock::acquire`] without a limit to the wait: never busy, never timed out.
    ///
    /// # Cancel safety
    /// Safe: a dropped future is no candidate any more.
    pub async fn campaign(&self) -> Result<Term, Error> {
        let guard = self.lock().acquire().await?;
        info!(target: "distlock", key = %guard.key(), token = guard.token().map(u64::from), "elected");
        Ok(Term(guard))
    }

    /// Stands as a candidate, and runs `body` as the leader. When the term is lost, the body is dropped at its next
    /// await and this stands again, with a new body in the next term. When the body ends by itself it resigns, and
    /// gives its value.
    ///
    /// Code in the body that blocks cannot be stopped: see [`Held::ensure`].
    ///
    /// # Errors
    /// [`RunError::Body`] with the body's own error, after resigning; [`RunError::Lock`] as
    /// [`campaign`](Self::campaign). Never [`RunError::Lost`].
    ///
    /// # Cancel safety
    /// A dropped future drops the body, and resigns in the background.
    pub async fn lead<T, E, F, Fut>(&self, mut body: F) -> Result<T, RunError<E>>
    where
        F: FnMut(Held) -> Fut,
        Fut: Future<Output = Result<T, E>>,
    {
        loop {
            let term = self.campaign().await?;
            let key = term.key().clone();
            match Entered::new(Holds::None, Some(term.0)).run(&mut body).await {
                Err(RunError::Lost { reason, .. }) => {
                    info!(target: "distlock", %key, %reason, "the term was lost; standing again");
                }
                ended => return ended,
            }
        }
    }

    /// Who leads now, if anybody; for people and for routing. Only a [`Term`] is a proof of leading.
    ///
    /// # Errors
    /// As [`Client::inspect`].
    ///
    /// # Cancel safety
    /// Safe.
    pub async fn leader(&self) -> Result<Option<Holder>, Error> {
        Ok(leader_of(self.client.inspect(self.key()).await?))
    }

    /// Who leads, now and at each change; `None` while nobody does. Changes that follow each other quickly may be
    /// seen as one.
    ///
    /// # Errors
    /// As [`Client::watch`].
    pub fn observe(&self) -> Result<BoxStream<'static, Result<Option<Holder>, Error>>, Error> {
        let mut last = None;
        let states = self.client.watch(self.key())?;
        let changes = states.filter_map(move |state| {
            ready(match state {
                Err(e) => Some(Err(e)),
                Ok(lock) => {
                    let leader = leader_of(lock);
                    let who = Some(leader.as_ref().map(|holder| holder.owner.clone()));
                    let changed = last != who;
                    last = who;
                    changed.then_some(Ok(leader))
                }
            })
        });
        Ok(changes.boxed())
    }
}

fn leader_of(lock: LockInfo) -> Option<Holder> {
    lock.holders.into_iter().find(|holder| !holder.is_nobody())
}
