//! The only waiting loop in the project.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tracing::info;

use crate::behalf::Waiting;
use crate::cleanup::Job;
use crate::client::ClientInner;
use crate::clock::Moment;
use crate::driver::{Claim, DriverError, Grant, Holder, Line, Mode, Reached, Standing, Wakes, Want};
use crate::error::{Error, ErrorKind};
use crate::hold::HoldState;
use crate::key::Key;
use crate::lease::Lease;
use crate::mutant;
use crate::observe::{Attempt as Seen, WAIT_NOTICE};
use crate::owner::OwnerId;
use crate::pace::{self, Backoff, Floor};
use crate::queue::Permit;
use crate::settings::{Settings, Wait};

/// How often a grant that comes too late is asked for again by a caller who does not wait.
const LATE_GRANTS: u32 = 3;

/// A lock to be taken, checked.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) client: Arc<ClientInner>,
    pub(crate) key: Key,
    pub(crate) mode: Mode,
    pub(crate) ttl: Duration,
    pub(crate) settings: Settings,
}

/// One claim on its way to a hold. Dropped before it holds, it is handed to the clean-up.
struct Attempt<'a> {
    plan: &'a Plan,
    claim: Option<Box<dyn Claim>>,
    want: Arc<Want>,
    permit: Option<Permit>,
    /// Whether the engine was ever asked.
    touched: bool,
    /// Whether an attempt is unanswered and may still be applied.
    unresolved: bool,
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        let Some(claim) = self.claim.take() else { return };
        if !self.touched || self.plan.client.is_forked() {
            return;
        }
        self.plan.client.cleanup.take(Job {
            claim,
            want: self.want.clone(),
            permit: self.permit.take(),
            keep: None,
            not_before: None,
            unresolved: self.unresolved,
        });
    }
}

impl Plan {
    fn want(&self) -> Arc<Want> {
        let line = if self.settings.wait == Wait::Try {
            Line::Never
        } else {
            Line::Join
        };
        Arc::new(Want {
            key: self.key.clone(),
            owner: self.owner(),
            mode: self.mode,
            order: self.settings.order,
            line,
            life: self.settings.life,
            ttl: self.ttl,
            label: self
                .settings
                .label
                .clone()
                .or_else(|| self.client.engine.label().cloned()),
            reason: self.settings.reason.clone(),
            bell: Default::default(),
        })
    }

    fn owner(&self) -> OwnerId {
        match self.settings.behalf {
            None => self.client.engine.owners().next(),
            // Below 2^53, so that every engine and language keeps it exactly.
            Some(client) => OwnerId {
                client,
                n: rand::random::<u64>() >> 11,
            },
        }
    }

    /// Tells whoever wants to know that the lock is taken.
    fn waits(&self, want: Option<&Want>, holder: &Option<Holder>, ahead: Option<u32>) {
        if let Some(listener) = &self.settings.listener {
            listener.tell(&Waiting {
                place: want.map(Lease::of_place),
                holder: holder.clone(),
                ahead,
            });
        }
    }

    fn attempt(&self, permit: Option<Permit>) -> Result<Attempt<'_>, Error> {
        let want = self.want();
        let claim = self
            .client
            .driver
            .claim(want.clone())
            .map_err(|e| self.error(e))?;
        Ok(Attempt {
            plan: self,
            claim: Some(claim),
            want,
            permit,
            touched: false,
            unresolved: false,
        })
    }

    fn error(&self, e: DriverError) -> Error {
        self.name(Error::from_driver(e))
    }

    /// Names the lock and the engine in an error.
    pub(crate) fn name(&self, e: Error) -> Error {
        e.with_key(&self.key).with_engine(self.client.observe.engine())
    }

    /// Takes the lock.
    pub(crate) async fn acquire(&self) -> Result<Arc<HoldState>, Error> {
        self.acquire_within(self.settings.wait).await
    }

    /// Takes the lock, waiting so long. (A set that is only tried joins no line; else the settings decide.)
    pub(crate) async fn acquire_within(&self, wait: Wait) -> Result<Arc<HoldState>, Error> {
        let clock = self.client.engine.clock();
        let start = clock.now();
        let deadline = match wait {
            Wait::Try | Wait::Forever => Moment::FAR,
            Wait::For(d) => start + d,
        };
        let (permit, entered) =
            if self.settings.wait == Wait::Try || self.settings.order == crate::driver::Order::Fifo {
                // A try makes its own attempt; in a fair line every waiter has its own place.
                (None, start)
            } else {
                self.enter(start, deadline).await?
            };
        self.wait(start, entered, deadline, self.attempt(permit)?).await
    }

    /// A permit of the local queue, and when it was obtained.
    async fn enter(&self, start: Moment, deadline: Moment) -> Result<(Option<Permit>, Moment), Error> {
        let queue = &self.client.queue;
        let mut entered = pin!(queue.enter(&self.key, self.mode));
        // Usually nobody is here; then there is nothing to count and no timer to set.
        let first = std::future::poll_fn(|cx| Poll::Ready(entered.as_mut().poll(cx))).await;
        if let Poll::Ready(permit) = first {
            return Ok((permit, start));
        }
        let _gauge = self.client.observe.waiting();
        let clock = self.client.engine.clock();
        let mut notice = start + WAIT_NOTICE;
        self.waits(None, &queue.holder(&self.key), None);
        loop {
            if let Some(permit) = clock.deadline(deadline.min(notice), entered.as_mut()).await {
                return Ok((permit, clock.now()));
            }
            let holder = queue.holder(&self.key);
            if clock.now() >= deadline {
                let waited = clock.now().since(start);
                return Err(self.name(Error::timeout(waited, None)).with_holder(holder));
            }
            notice = self.notice(start, &holder, None);
        }
    }

    /// Tells of a wait that goes on; returns when to tell again.
    fn notice(&self, start: Moment, holder: &Option<Holder>, ahead: Option<u32>) -> Moment {
        let now = self.client.now();
        let holder = holder.as_ref().map(tracing::field::display);
        info!(target: "distlock", key = %self.key, engine = self.client.observe.engine(),
            waited = ?now.since(start), holder, ahead, "still waiting for a lock");
        now + WAIT_NOTICE
    }

    /// The loop: look; wait for the bell, the recheck or the deadline; look again.
    async fn wait<'a>(
        &'a self,
        start: Moment,
        mut looked: Moment,
        deadline: Moment,
        mut attempt: Attempt<'a>,
    ) -> Result<Arc<HoldState>, Error> {
        let client = &self.client;
        let clock = client.engine.clock();
        let mut backoff = Backoff::waiting();
        let mut floor = Floor::default();
        let mut tries = 0u32;
        let mut late = 0u32;
        let mut notice = start + WAIT_NOTICE;
        let mut gauge = None;
        loop {
            let found = attempt.look(looked, deadline).await;
            let now = clock.now();
            match found {
                Some(Ok(Standing::Held(grant))) => {
                    client.observe.attempt(&self.key, Seen::Held, now.since(looked));
                    let mut grant = grant;
                    if mutant::is("deadline_from_reply") {
                        grant.valid_until = now + self.ttl;
                    }
                    if now < grant.valid_until.before(pace::margin(self.ttl)) {
                        return self.granted(start, now, grant, attempt);
                    }
                    late += 1;
                    if self.settings.wait == Wait::Try && late >= LATE_GRANTS || now >= deadline {
                        let took = now.since(looked);
                        let why = format!(
                            "the grant took {took:?}, longer than its ttl of {:?} allows",
                            self.ttl
                        );
                        return Err(self.name(Error::new(ErrorKind::Unavailable, why)));
                    }
                    attempt = attempt.start_over(deadline).await?;
                }
                Some(Ok(Standing::Waiting {
                    recheck,
                    holder,
                    ahead,
                })) => {
                    client
                        .observe
                        .attempt(&self.key, Seen::Waiting, now.since(looked));
                    if self.settings.wait == Wait::Try {
                        // Nothing is left at the engine, unless an earlier attempt may still arrive.
                        attempt.touched = attempt.unresolved;
                        let holder = client.queue.holder(&self.key).filter(|h| h.here).or(holder);
                        return Err(self
                            .name(Error::new(ErrorKind::Busy, "held by someone else"))
                            .with_holder(holder));
                    }
                    gauge.get_or_insert_with(|| client.observe.waiting());
                    self.waits(Some(&attempt.want), &holder, ahead);
                    backoff.reset();
                    tries = 0;
                    if let Some(permit) = &attempt.permit {
                        permit.saw(&holder);
                    }
                    let mut recheck = self.recheck(recheck);
                    if mutant::is("no_second_look") {
                        recheck = crate::driver::MAX_TTL;
                    }
                    let until = (now + recheck).min(deadline).min(notice);
                    clock.deadline(until, attempt.want.bell.rung()).await;
                    let now = clock.now();
                    if now >= deadline {
                        let holder = client.queue.holder(&self.key).filter(|h| h.here).or(holder);
                        return Err(self
                            .name(Error::timeout(now.since(start), ahead))
                            .with_holder(holder));
                    }
                    if now >= notice {
                        notice = self.notice(start, &holder, ahead);
                    }
                    let pause = floor.pause(now.since(looked));
                    if !pause.is_zero() {
                        clock.sleep(pause).await;
                    }
                }
                Some(Err(e)) => {
                    client.observe.attempt(&self.key, Seen::Error, now.since(looked));
                    tries += 1;
                    // A connection that died while idle fails the first request: that one is made again at once.
                    let give_up = !e.retry || self.settings.wait == Wait::Try && tries > 1 || now >= deadline;
                    if give_up {
                        return Err(self.error(e));
                    }
                    if tries > 1 {
                        let until = (now + backoff.pause(clock.unit())).min(deadline);
                        clock.deadline(until, attempt.want.bell.rung()).await;
                        if clock.now() >= deadline {
                            return Err(self.error(e));
                        }
                    }
                }
                None => {
                    let e = DriverError::unavailable(Reached::Maybe, "no answer within the wait");
                    return Err(self.error(e));
                }
            }
            looked = clock.now();
        }
    }

    /// A paced engine is asked at times that differ between clients.
    fn recheck(&self, recheck: Duration) -> Duration {
        let recheck = recheck.max(Duration::from_millis(1));
        match self.client.promises.wakes {
            Wakes::Notified => recheck,
            Wakes::Paced => recheck.mul_f64(0.8 + 0.4 * self.client.engine.clock().unit()),
        }
    }

    fn granted(
        &self,
        start: Moment,
        now: Moment,
        grant: Grant,
        mut attempt: Attempt<'_>,
    ) -> Result<Arc<HoldState>, Error> {
        if self.settings.fenced && grant.token.is_none() {
            let why = "the engine granted the lock without a fencing token";
            return Err(self.name(Error::new(ErrorKind::Unsupported, why)));
        }
        let Some(claim) = attempt.claim.take() else {
            return Err(self.name(Error::new(ErrorKind::Closed, "the claim is gone")));
        };
        let (client, want, permit) = (self.client.clone(), attempt.want.clone(), attempt.permit.take());
        let held = crate::hold::Held {
            claim,
            permit,
            unresolved: attempt.unresolved,
        };
        let hold = HoldState::new(client, want, held, grant, now, &self.settings);
        self.client.keeper.watch(&hold, now);
        let waited = now.since(start);
        self.client.observe.granted(&self.key, waited);
        if waited >= WAIT_NOTICE {
            info!(target: "distlock", key = %self.key, engine = self.client.observe.engine(), ?waited,
                "obtained a lock after a long wait");
        }
        if let Some(owner) = &self.settings.owner {
            owner.note(&hold);
        }
        Ok(hold)
    }
}

impl<'a> Attempt<'a> {
    /// One look at the engine, at most until `deadline`: `None` if that came first.
    async fn look(&mut self, now: Moment, deadline: Moment) -> Option<Result<Standing, DriverError>> {
        // A ring after this is about what the look may not have seen yet.
        self.want.bell.take();
        let Some(claim) = self.claim.as_mut() else {
            return Some(Err(DriverError::closed()));
        };
        self.touched = true;
        let earlier = std::mem::replace(&mut self.unresolved, true);
        // A grant that comes later than the lease is long is worth nothing: an engine that does not answer is asked
        // again.
        let clock = self.plan.client.engine.clock();
        let limit = now + self.want.ttl;
        let found = match clock.deadline(deadline.min(limit), claim.try_acquire()).await {
            Some(found) => found,
            None if limit < deadline => Err(DriverError::unavailable(
                Reached::Maybe,
                "no answer within the length of a lease",
            )),
            None => return None,
        };
        // An answer does not speak for an earlier attempt that was not answered: that one may still arrive.
        self.unresolved = earlier || matches!(&found, Err(e) if e.reached == Reached::Maybe);
        Some(found)
    }

    /// Gives a grant back that came too late, and begins anew with the same permit.
    async fn start_over(mut self, deadline: Moment) -> Result<Attempt<'a>, Error> {
        let permit = self.permit.take();
        let plan = self.plan;
        let clock = plan.client.engine.clock();
        let limit = deadline.min(clock.now() + self.want.ttl);
        if let Some(claim) = self.claim.as_mut()
            && let Some(Ok(_)) = clock.deadline(limit, claim.release(None)).await
            && !self.unresolved
        {
            self.claim = None;
        }
        // Unanswered, it goes to the clean-up (by the drop of `self`).
        plan.attempt(permit)
    }
}
