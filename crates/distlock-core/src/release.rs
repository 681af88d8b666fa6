//! The end of a hold: the release, answered or handed to the clean-up.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use crate::cleanup::Job;
use crate::clock::{Clock, Moment};
use crate::driver::{Claim, DriverError, LostReason, Reached, Released};
use crate::error::{Error, ErrorKind};
use crate::hold::HoldState;
use crate::queue::Permit;

/// How a release ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Release {
    /// The lock was held until now.
    Clean,
    /// The lock was no longer held; somebody else may have held it meanwhile.
    Lost(LostReason),
    /// The release was answered only when repeated; whether the lock was held until now is not known.
    Unsure,
}

/// The least time that a release may take before the caller is told that it goes on in the background.
const RELEASE: Duration = Duration::from_secs(1);

/// A claim on its way out: dropped unanswered, it goes to the clean-up.
pub(crate) struct Leaving {
    pub(crate) hold: Arc<HoldState>,
    job: Option<Job>,
}

impl Drop for Leaving {
    fn drop(&mut self) {
        if let Some(job) = self.job.take() {
            self.hold.client.cleanup.take(job);
        }
    }
}

pub(crate) fn leaving(hold: Arc<HoldState>, now: Moment) -> Option<Leaving> {
    if hold.client.is_forked() {
        return None;
    }
    let keep = hold.keep(now);
    let not_before = hold.kept_until();
    let (claim, permit) = hold.take(now)?;
    let job = Some(Job {
        claim,
        want: hold.want.clone(),
        permit,
        keep,
        not_before,
        unresolved: hold.unresolved,
    });
    Some(Leaving { hold, job })
}

/// Sends one release, and waits for its answer at most until `due`. The permit goes to the next local contender as soon
/// as the release is on its way: that one's request will queue up behind it.
pub(crate) async fn send(
    claim: &mut dyn Claim,
    keep: Option<Duration>,
    permit: &mut Option<Permit>,
    clock: &Clock,
    due: Moment,
) -> Option<Result<Released, DriverError>> {
    let mut sent = pin!(claim.release(keep));
    let first = std::future::poll_fn(|cx| Poll::Ready(sent.as_mut().poll(cx))).await;
    if let Poll::Ready(answer) = first {
        return Some(answer);
    }
    *permit = permit.take().and_then(Permit::pass);
    clock.deadline(due, sent).await
}

/// Releases one hold.
pub(crate) async fn release(hold: Arc<HoldState>) -> Result<Release, Error> {
    if hold.client.is_forked() {
        return Ok(Release::Lost(LostReason::Forked));
    }
    let mut now = hold.client.now();
    let told = hold.lost_at(now);
    let Some(mut leaving) = leaving(hold.clone(), now) else {
        // Another guard of this hold lives on.
        return Ok(told.map_or(Release::Clean, Release::Lost));
    };
    if leaving.job.as_ref().is_some_and(|job| job.not_before.is_some()) {
        let why =
            "nobody knows whether a commit under this lock happened: it is kept until its lease has run out";
        return Err(hold.name(Error::new(ErrorKind::OutcomeUnknown, why)));
    }
    let mut resent = false;
    loop {
        let Some(job) = leaving.job.as_mut() else {
            return Ok(Release::Unsure);
        };
        // Once the lease is over there is nothing to wait for.
        let clock = hold.client.engine.clock();
        let over = hold.valid_until().max(now + RELEASE);
        let answer = send(&mut *job.claim, job.keep, &mut job.permit, clock, over).await;
        let answer = answer.unwrap_or_else(|| {
            Err(DriverError::unavailable(
                Reached::Maybe,
                "no answer before the lease's end",
            ))
        });
        match answer {
            Ok(released) => {
                // A claim with an unanswered attempt stays with the clean-up (by `leaving`'s drop).
                if !job.unresolved {
                    leaving.job = None;
                }
                return Ok(match (told, released) {
                    (Some(reason), _) => Release::Lost(reason),
                    (None, Released::Freed) => Release::Clean,
                    (None, Released::NotHeld) if resent => Release::Unsure,
                    (None, Released::NotHeld) => Release::Lost(LostReason::Taken),
                });
            }
            // Once more at once (a connection that died while idle), then in the background.
            Err(e) if e.retry && !resent && hold.is_held() => {
                resent = true;
                now = clock.now();
            }
            Err(e) => return Err(hold.name(Error::from_driver(e))),
        }
    }
}
