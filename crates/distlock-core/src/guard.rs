//! The guard: the only proof of holding.

use std::fmt;
use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::clock::Moment;
use crate::driver::{Driver, Hold, LostReason, Renewal};
use crate::error::{Error, ErrorKind};
use crate::hold::HoldState;
use crate::holds::Holds;
use crate::key::Key;
use crate::release::{Release, leaving, release};
use crate::token::FencingToken;

/// A lock that is held, or several that were taken together by [`all`](crate::all).
///
/// While it lives, the watchdog renews the lease on the client's own thread, whatever the caller's runtime does.
/// The lock ends by [`release`](Guard::release), by the drop of the guard (best effort, in the background), or by a
/// loss, which [`is_held`](Guard::is_held), [`ensure`](Guard::ensure) and [`lost`](Guard::lost) tell by the guard's
/// own clock before anybody else can be granted (where [`Promises::loss`](crate::driver::Promises::loss) says so).
#[must_use = "the lock is released as soon as the guard is dropped; bind it to a variable, and call `release`"]
pub struct Guard {
    holds: Holds,
}

/// A view of a hold without the right to release it; what the body of `run` gets.
#[derive(Clone)]
pub struct Held {
    holds: Holds,
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&*self.holds).finish()
    }
}

impl fmt::Debug for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&*self.holds).finish()
    }
}

/// The questions that a guard and its views answer alike.
macro_rules! view {
    ($type:ident) => {
        impl $type {
            /// The lock's key (of several taken together: the first in their order).
            pub fn key(&self) -> &Key {
                &self.holds[0].want.key
            }

            /// The fencing token: with every exclusive lock of an engine that has tokens, never with shared and
            /// semaphore holds. Of several locks taken together: the first one's; see [`tokens`](Self::tokens).
            pub fn token(&self) -> Option<FencingToken> {
                self.holds[0].token
            }

            /// Keys and tokens of all locks that were taken together, in key order.
            pub fn tokens(&self) -> Vec<(Key, Option<FencingToken>)> {
                self.holds
                    .iter()
                    .map(|h| (h.want.key.clone(), h.token))
                    .collect()
            }

            /// The owner as the engine stores it.
            pub fn owner(&self) -> crate::OwnerId {
                self.holds[0].want.owner
            }

            /// Whether the lock is held, by our own clock: no I/O, and true only before the lease's end less its
            /// margin.
            pub fn is_held(&self) -> bool {
                self.holds.iter().all(|h| h.is_held())
            }

            /// As [`is_held`](Self::is_held), for use with `?` in code that cannot be stopped.
            ///
            /// # Errors
            /// [`ErrorKind::Lost`] with the reason.
            pub fn ensure(&self) -> Result<(), Error> {
                match self.lost_reason() {
                    Some((hold, reason)) => Err(hold.name(Error::lost(reason))),
                    None => Ok(()),
                }
            }

            /// Whether the watchdog renews the lease (of several: all of them). That is what
            /// [`Lock::renew`](crate::Lock::renew) says, whatever TTL was set.
            pub fn renews(&self) -> bool {
                self.holds.iter().all(|h| h.renews)
            }

            /// How long the lock is held from now on if no renewal succeeds any more; zero once lost.
            pub fn valid_for(&self) -> Duration {
                self.holds
                    .iter()
                    .map(|h| h.valid_for())
                    .min()
                    .unwrap_or_default()
            }

            /// Resolves when the lock is lost, with the reason; never resolves after a release. `'static`: it does
            /// not borrow the guard. At a loss by time it resolves before anybody else can be granted.
            ///
            /// # Cancel safety
            /// Safe.
            pub fn lost(&self) -> impl Future<Output = LostReason> + Send + Sync + 'static {
                lost(self.holds.to_vec())
            }

            /// A token that is cancelled when the lock is lost (of several: the first one's loss or any other's).
            /// A release does not cancel it.
            pub fn cancel_token(&self) -> CancellationToken {
                match &*self.holds {
                    [one] => one.cancel_token(),
                    many => {
                        let token = CancellationToken::new();
                        let (child, lost) = (token.clone(), lost(many.to_vec()));
                        many[0].client.engine.spawn(async move {
                            tokio::select! { _ = lost => child.cancel(), () = child.cancelled() => {} }
                        });
                        token
                    }
                }
            }

            /// The moments until which the lock is valid, each as it becomes known; closed at a loss or release.
            /// For those who enforce the deadline elsewhere, such as a guardian process.
            pub fn deadlines(&self) -> tokio::sync::watch::Receiver<Moment> {
                deadlines(&self.holds)
            }

            /// Asks the engine whether the lock is still held, renewing it.
            ///
            /// # Errors
            /// [`ErrorKind::Lost`]; [`ErrorKind::Unavailable`] or [`ErrorKind::OutcomeUnknown`] if the engine did
            /// not say, in which case the lock is still held until [`valid_for`](Self::valid_for) has passed.
            ///
            /// # Cancel safety
            /// Safe.
            pub async fn verify(&self) -> Result<(), Error> {
                for hold in &*self.holds {
                    renew(hold, hold.ttl()).await?;
                }
                Ok(())
            }

            /// Makes the lease end `ttl` from now, and uses that TTL for later renewals too.
            ///
            /// # Errors
            /// [`ErrorKind::InvalidConfig`] for a TTL out of the engine's range; else as
            /// [`verify`](Self::verify).
            ///
            /// # Cancel safety
            /// Safe: the extension may or may not have happened.
            pub async fn extend(&self, ttl: Duration) -> Result<(), Error> {
                for hold in &*self.holds {
                    let settings = crate::settings::Settings::default();
                    settings.check(ttl, hold.want.mode, &hold.client.promises)?;
                    renew(hold, ttl).await?;
                    hold.set_ttl(ttl);
                }
                Ok(())
            }

            pub(crate) fn lost_reason(&self) -> Option<(&Arc<HoldState>, LostReason)> {
                self.holds
                    .iter()
                    .find_map(|h| h.lost().map(|reason| (h, reason)))
            }
        }
    };
}

view!(Guard);
view!(Held);

/// The earliest deadline of these, whenever it changes; closed when one of them ends.
fn deadlines(holds: &[Arc<HoldState>]) -> tokio::sync::watch::Receiver<Moment> {
    let mut each: Vec<_> = holds.iter().map(|h| h.deadlines()).collect();
    let earliest = |each: &[tokio::sync::watch::Receiver<Moment>]| each.iter().map(|d| *d.borrow()).min();
    if each.len() == 1 {
        return each.remove(0);
    }
    let (sender, receiver) = tokio::sync::watch::channel(earliest(&each).unwrap_or(Moment::START));
    holds[0].client.engine.spawn(async move {
        loop {
            let changes = each.iter_mut().map(|d| Box::pin(d.changed()));
            let (changed, ..) = futures_util::future::select_all(changes).await;
            if changed.is_err() || sender.is_closed() {
                return;
            }
            sender.send_replace(earliest(&each).unwrap_or(Moment::START));
        }
    });
    receiver
}

/// Resolves when any of these is lost.
async fn lost(holds: Vec<Arc<HoldState>>) -> LostReason {
    let cancelled: Vec<_> = holds
        .iter()
        .map(|h| Box::pin(h.cancel_token().cancelled_owned()))
        .collect();
    futures_util::future::select_all(cancelled).await;
    holds.iter().find_map(|h| h.lost()).unwrap_or(LostReason::Expired)
}

/// One renewal of one hold; `None` if the driver did not answer.
pub(crate) async fn ask(driver: &dyn Driver, hold: Hold) -> Option<Renewal> {
    renew_all(driver, &[hold]).await.pop().flatten()
}

/// One renewal of each hold, in one batch; `None` where the driver did not answer.
pub(crate) async fn renew_all(driver: &dyn Driver, holds: &[Hold]) -> Vec<Option<Renewal>> {
    let slots = Mutex::new(holds.iter().map(|_| None).collect::<Vec<_>>());
    let answer = |at: usize, renewal| {
        if let Some(slot) = slots.lock().unwrap_or_else(PoisonError::into_inner).get_mut(at) {
            *slot = Some(renewal);
        }
    };
    driver.renew(holds, &answer).await;
    slots.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// One renewal in the caller's own task.
async fn renew(hold: &Arc<HoldState>, ttl: Duration) -> Result<(), Error> {
    if let Some(reason) = hold.lost() {
        return Err(hold.name(Error::lost(reason)));
    }
    let asked = hold.clone();
    let answer = hold
        .client
        .on_runtime(async move {
            let mut wanted = asked.hold();
            wanted.ttl = ttl;
            ask(&*asked.client.driver, wanted).await
        })
        .await?;
    match answer {
        Some(Renewal::Good(until)) => {
            hold.renewed(until, ttl);
            match hold.lost() {
                None => Ok(()),
                Some(reason) => Err(hold.name(Error::lost(reason))),
            }
        }
        Some(Renewal::Lost(reason)) => {
            hold.lose(reason.clone());
            Err(hold.name(Error::lost(reason)))
        }
        Some(Renewal::Unknown(e)) => Err(hold.name(Error::from_driver(e))),
        None => Err(hold.name(Error::new(
            ErrorKind::OutcomeUnknown,
            "the engine did not answer the renewal",
        ))),
    }
}

impl Held {
    pub(crate) fn of(holds: Holds) -> Self {
        Self { holds }
    }

    pub(crate) fn holds(&self) -> &[Arc<HoldState>] {
        &self.holds
    }

    /// See [`Guard::keep_for`].
    pub(crate) fn keep_for(&self, window: Duration) {
        for hold in self.holds.iter() {
            hold.keep_for(window);
        }
    }
}

/// Polls `body` until it ends or a hold is lost, whichever is first. The loss is looked at before each poll and
/// after the last one: a body that blocked past its lease has not run under the lock. Its own error says more than
/// the loss, and is never hidden by it.
pub(crate) async fn until_lost<T, E>(
    held: Held,
    body: impl Future<Output = Result<T, E>>,
) -> Result<Result<T, E>, LostReason> {
    // Most bodies end without ever waiting; they need nobody to tell them of a loss meanwhile.
    let mut told = None;
    let mut body = pin!(body);
    std::future::poll_fn(move |cx| {
        if let Some((_, reason)) = held.lost_reason() {
            return Poll::Ready(Err(reason));
        }
        let out = body.as_mut().poll(cx);
        match held.lost_reason() {
            Some((_, reason)) if !matches!(out, Poll::Ready(Err(_))) => return Poll::Ready(Err(reason)),
            _ => {}
        }
        if out.is_pending() {
            let told = told.get_or_insert_with(|| Box::pin(lost(held.holds.to_vec())));
            return told.as_mut().poll(cx).map(Err);
        }
        out.map(Ok)
    })
    .await
}

impl Guard {
    pub(crate) fn new(holds: Holds) -> Self {
        Self { holds }
    }

    /// A view of this hold, for code that must not release it.
    pub fn held(&self) -> Held {
        Held {
            holds: self.holds.clone(),
        }
    }

    /// Keeps others out until `window` after the grant, also when the lock is released sooner: a
    /// [`min_hold`](crate::Lock::min_hold) that is decided while it is held. Never shortens one.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] where the engine cannot; [`ErrorKind::InvalidConfig`] for more than 366 days.
    pub fn keep_for(&self, window: Duration) -> Result<(), Error> {
        for hold in self.holds.iter() {
            let settings = crate::settings::Settings {
                min_hold: window,
                ..Default::default()
            };
            let checked = settings.check(hold.ttl(), hold.want.mode, &hold.client.promises);
            checked.map_err(|e| hold.name(e))?;
        }
        self.held().keep_for(window);
        Ok(())
    }

    pub(crate) fn push(&mut self, hold: Arc<HoldState>) {
        self.holds.push(hold);
    }

    pub(crate) fn holds(&self) -> &Holds {
        &self.holds
    }

    /// Releases the lock, owner-checked, and says whether it was still held. With `min_hold`, the record stays for
    /// the rest of that time.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] or [`ErrorKind::OutcomeUnknown`] when the engine did not answer: the release goes
    /// on in the background, and at the latest the lease ends the lock.
    ///
    /// # Cancel safety
    /// A dropped future goes on in the background, like a dropped guard.
    pub async fn release(mut self) -> Result<Release, Error> {
        let mut outcome = Ok(Release::Clean);
        // Reverse order, so that whoever waits for the first can take all.
        while let Some(hold) = self.holds.pop() {
            let client = hold.client.clone();
            let released = client.on_runtime(release(hold)).await.and_then(|r| r);
            outcome = match (outcome, released) {
                (Err(e), _) | (_, Err(e)) => Err(e),
                (Ok(Release::Clean), Ok(r)) => Ok(r),
                (Ok(r), Ok(_)) => Ok(r),
            };
        }
        outcome
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        while let Some(hold) = self.holds.pop() {
            let (lost, now) = (hold.is_lost(), hold.client.now());
            // Handed to the clean-up by its own drop.
            if let Some(leaving) = leaving(hold, now)
                && !lost
            {
                leaving.hold.client.observe.dropped();
            }
        }
    }
}
