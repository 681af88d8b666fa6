//! One contender for one row.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use distlock_core::FencingToken;
use distlock_core::clock::Moment;
use distlock_core::driver::{
    Claim, DriverError, Grant, Holder, Life, Line, Reached, Released, Standing, Want,
};
use rand::RngExt;

use crate::config::Layout;
use crate::kind::kind_word;
use crate::people;
use crate::postgres::Seat;
use crate::state::{Ask, Found, State};
use crate::statement::{Arg, Verb};
use crate::store::{Backend, Lane, Store};
use crate::times::{in_micros, micros};
use crate::watch::{Entry, Watch};

/// How often a change that lost against another client's is made again.
const TRIES: u32 = 12;
/// For how long a waiter says that it wants to be notified.
const MARK: i64 = 30_000_000;
/// How often those look again whom nobody notifies, on average, in milliseconds.
const PACE: std::ops::Range<u64> = 45..65;
/// How often those look again who are notified: a notice can get lost with its connection.
const QUIET: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(crate) struct RowClaim {
    store: Arc<Store>,
    watch: Arc<Watch>,
    want: Arc<Want>,
    name: String,
    owner: String,
    kind: String,
    about: String,
    ttl: i64,
    lane: Lane,
    /// Where notices for this contender arrive.
    seat: Option<Seat>,
    /// Keeps an eye on the hold.
    entry: Option<Entry>,
    asked: bool,
    /// Whether it may have a place in the crowd.
    joined: bool,
    over: bool,
}

impl RowClaim {
    pub(crate) fn new(store: Arc<Store>, watch: Arc<Watch>, want: Arc<Want>) -> Self {
        Self {
            name: store.engine.namespace().record(&want.key),
            owner: want.owner.to_string(),
            kind: kind_word(want.mode.kind()),
            about: crate::people::about(&want),
            ttl: in_micros(want.ttl),
            joined: !want.mode.is_exclusive(),
            lane: Lane::default(),
            seat: None,
            entry: None,
            asked: false,
            over: false,
            store,
            watch,
            want,
        }
    }

    fn now(&self) -> Moment {
        self.store.engine.clock().now()
    }

    /// Takes the key with one statement, if it is free.
    async fn take(&mut self) -> Result<Option<Standing>, DriverError> {
        let sent = self.now();
        let args: [Arg<'_>; 5] = [
            self.name.as_str().into(),
            self.kind.as_str().into(),
            self.owner.as_str().into(),
            self.ttl.into(),
            self.about.as_str().into(),
        ];
        let answer = self
            .store
            .ask(&mut self.lane, &self.name, Verb::Acquire, &args)
            .await?;
        Ok((answer.changed > 0).then(|| self.held(sent, Some(answer.number))))
    }

    fn held(&mut self, sent: Moment, token: Option<i64>) -> Standing {
        self.over = true;
        self.seat = None;
        self.entry = Some(self.watch.add(&self.name, &self.owner, &self.want.bell));
        let token = token.filter(|_| self.store.config.layout == Layout::Row);
        Standing::Held(Grant {
            token: token.map(|t| FencingToken::new(t.unsigned_abs())),
            valid_until: sent + self.want.ttl,
            mark: 0,
        })
    }

    /// Looks at the row; says that we wait if the last word on that was long ago.
    async fn look(&mut self, mark: bool) -> Result<State, DriverError> {
        if mark {
            let args = [Arg::from(self.name.as_str()), MARK.into()];
            let answer = self
                .store
                .ask(&mut self.lane, &self.name, Verb::Mark, &args)
                .await?;
            if let Some(row) = answer.rows.first() {
                return State::read(row).map_err(crate::store::unreadable);
            }
        }
        self.store.look(&mut self.lane, &self.name).await
    }

    /// Reads, decides, and writes if nobody else did meanwhile.
    async fn negotiate(&mut self, mut mark: bool) -> Result<Standing, DriverError> {
        for tries in 1..=TRIES {
            let sent = self.now();
            let seen = self.look(mark).await?;
            if self.seat.is_some()
                && !mark
                && seen.waits < seen.now.saturating_add(MARK / 2)
                && seen.version != 0
            {
                mark = true;
                continue;
            }
            let mut next = seen.clone();
            let ask = Ask {
                owner: &self.owner,
                mode: self.want.mode,
                order: self.want.order,
                join: self.want.line == Line::Join,
                ttl: self.ttl,
                about: &self.about,
            };
            match next.ask(&ask) {
                Found::Refused(refusal) => return Err(DriverError::refused(refusal)),
                Found::Held { token } => {
                    // The next in line may be able to share with us.
                    let notify = !self.want.mode.is_exclusive() && !next.next().is_empty();
                    if self
                        .store
                        .write(&mut self.lane, &self.name, &seen, &next, notify)
                        .await?
                    {
                        return Ok(self.held(sent, token));
                    }
                }
                Found::Waits { ahead, recheck } => {
                    let place = |s: &State| s.crowd.iter().find(|m| m.owner == self.owner).cloned();
                    let mut keeps = true;
                    if ahead.is_some() && place(&seen) != place(&next) {
                        self.joined = true;
                        keeps = self
                            .store
                            .write(&mut self.lane, &self.name, &seen, &next, false)
                            .await?;
                    }
                    if keeps {
                        let holder = self.holder(&seen);
                        return Ok(Standing::Waiting {
                            recheck: self.recheck(recheck, ahead),
                            holder,
                            ahead,
                        });
                    }
                }
            }
            self.store.pause(tries).await;
        }
        // Many others write this row: that is work in progress, not trouble.
        Ok(Standing::Waiting {
            recheck: self.paced(0),
            holder: None,
            ahead: None,
        })
    }

    fn holder(&self, state: &State) -> Option<Holder> {
        people::holders(state, self.store.engine.owners().client())
            .into_iter()
            .next()
    }

    fn recheck(&self, over: i64, ahead: Option<u32>) -> Duration {
        let over = micros(over);
        match &self.store.backend {
            Backend::Postgres { listener, .. } if self.seat.is_some() && listener.is_live() => {
                over.min(QUIET)
            }
            _ => over.min(self.paced(ahead.unwrap_or(0))),
        }
    }

    fn paced(&self, ahead: u32) -> Duration {
        let pace = Duration::from_millis(rand::rng().random_range(PACE));
        (pace * ahead.saturating_add(1)).min(Duration::from_secs(1))
    }

    /// Registers for notices, where there are any. Whether the next look has to mark the row.
    async fn arm(&mut self) -> bool {
        let Backend::Postgres { listener, .. } = &self.store.backend else {
            return false;
        };
        if self.want.line == Line::Never || self.store.config.layout != Layout::Row {
            return false;
        }
        if self.seat.is_none() {
            let (seat, live) = listener.sit(&self.name, &self.owner, &self.want.bell).await;
            self.seat = Some(seat);
            return live;
        }
        listener.is_live()
    }
}

#[async_trait]
impl Claim for RowClaim {
    async fn try_acquire(&mut self) -> Result<Standing, DriverError> {
        if self.over || self.store.is_closed() {
            return Err(DriverError::closed());
        }
        let first = !std::mem::replace(&mut self.asked, true);
        let rung = self.seat.as_ref().is_some_and(Seat::rung);
        if !self.joined
            && (first || rung)
            && let Some(held) = self.take().await?
        {
            return Ok(held);
        }
        let mark = self.arm().await && (first || rung);
        self.negotiate(mark).await
    }

    async fn release(&mut self, keep: Option<Duration>) -> Result<Released, DriverError> {
        self.over = true;
        self.seat = None;
        self.entry = None;
        // A lease may have been taken by another process, in the name of the same owner.
        if !self.asked && self.want.life == Life::Process {
            return Ok(Released::NotHeld);
        }
        let keep = keep.map_or(0, in_micros);
        let said = |held: bool| if held { Released::Freed } else { Released::NotHeld };
        if !self.joined {
            let mut args: Vec<Arg<'_>> =
                vec![self.name.as_str().into(), self.owner.as_str().into(), keep.into()];
            if matches!(self.store.backend, Backend::Postgres { .. }) {
                args.push(self.store.channel().into());
            }
            let answer = self
                .store
                .ask(&mut self.lane, &self.name, Verb::Release, &args)
                .await?;
            // A lease that was never asked for here may still be in line, where another process put it.
            if answer.changed > 0 || self.asked {
                return Ok(said(answer.changed > 0));
            }
        }
        for tries in 1..=TRIES * 2 {
            let seen = self.store.look(&mut self.lane, &self.name).await?;
            if seen.owner != self.owner && !seen.crowd.iter().any(|m| m.owner == self.owner) {
                return Ok(Released::NotHeld);
            }
            let mut next = seen.clone();
            let held = next.leave(&self.owner, keep);
            if self
                .store
                .write(&mut self.lane, &self.name, &seen, &next, true)
                .await?
            {
                return Ok(said(held));
            }
            self.store.pause(tries).await;
        }
        Err(DriverError::unavailable(
            Reached::No,
            "many others write this row at the same time",
        ))
    }
}
