//! A contender on the table.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use distlock_core::FencingToken;
use distlock_core::clock::Moment;
use distlock_core::driver::{Claim, DriverError, Grant, Holder, Line, Refusal, Released, Standing, Want};

use crate::driver::Shared;
use crate::entry;
use crate::peers::Watch;
use crate::place::Place;
use crate::protocol::{self, Look};
use crate::snapshot::{Entry, State};
use crate::table::Table;

/// One claim; see the port's laws.
#[derive(Debug)]
pub(crate) struct FileClaim {
    shared: Arc<Shared>,
    want: Arc<Want>,
    me: Entry,
    bucket: usize,
    hung: bool,
    /// Counted as a hold.
    held: bool,
    ended: bool,
    watches: Vec<Watch>,
}

impl FileClaim {
    pub(crate) fn new(shared: Arc<Shared>, want: Arc<Want>, id: u64) -> Self {
        let me = entry::of(&want, shared.engine.namespace(), &shared.me, id);
        Self {
            bucket: Table::bucket(me.hash),
            shared,
            want,
            me,
            hung: false,
            held: false,
            ended: false,
            watches: Vec::new(),
        }
    }

    /// One look in this place; `None` if the place is gone.
    async fn look(&mut self, place: &Arc<Place>) -> Result<Option<Look>, DriverError> {
        self.me.process = place.fifos.own;
        let join = self.want.line == Line::Join;
        let mut dead: Vec<u128> = Vec::new();
        loop {
            let (look, wakes) = {
                let (me, dead) = (&self.me, &dead);
                let mut decide = |s: &mut crate::snapshot::Snapshot, now: Moment| {
                    let mut wakes = Vec::new();
                    let (look, changed) = protocol::acquire(s, now, me, join, dead, &mut wakes);
                    ((look, wakes), changed)
                };
                self.shared.change(place, self.bucket, &mut decide).await?
            };
            let known = dead.len();
            self.shared.wake(place, self.bucket, wakes).await?;
            match &look {
                Look::Held { .. } => {
                    if place.table.is_removed() {
                        return Ok(None);
                    }
                    return Ok(Some(look));
                }
                Look::Waiting { probe, .. } => self.probe(place, probe, &mut dead)?,
                Look::Mismatch { processes, .. } => self.probe(place, processes, &mut dead)?,
            }
            if dead.len() == known
                && let Look::Waiting { watch, .. } = &look
                && join
            {
                place.listen_here();
                self.watch(place, watch, &mut dead)?;
            }
            if dead.len() == known {
                if place.table.is_removed() {
                    return Ok(None);
                }
                return Ok(Some(look));
            }
            // One death is rarely alone: ask after everybody in line before looking again.
            let everybody = self.everybody(place)?;
            self.probe(place, &everybody, &mut dead)?;
        }
    }

    fn everybody(&self, place: &Place) -> Result<Vec<u128>, DriverError> {
        let (_, s) = place.table.read(self.bucket)?;
        Ok(s.line(&self.me).map(|e| e.process).filter(|p| *p != 0).collect())
    }

    fn probe(&self, place: &Place, processes: &[u128], dead: &mut Vec<u128>) -> Result<(), DriverError> {
        for p in processes {
            if !dead.contains(p) && !place.peers.is_alive(&place.fifos, *p)? {
                dead.push(*p);
            }
        }
        Ok(())
    }

    /// Watches exactly these processes.
    fn watch(&mut self, place: &Place, processes: &[u128], dead: &mut Vec<u128>) -> Result<(), DriverError> {
        self.watches.retain(|w| processes.contains(&w.process));
        for &p in processes {
            if self.watches.iter().any(|w| w.process == p) {
                continue;
            }
            let (engine, bell) = (&self.shared.engine, &self.want.bell);
            match place.peers.watch(&place.fifos, engine, p, self.me.claim, bell)? {
                Some(watch) => self.watches.push(watch),
                None => dead.push(p),
            }
        }
        Ok(())
    }

    fn let_go(&mut self) {
        if std::mem::take(&mut self.held) {
            self.shared.vigil.ended();
        }
    }

    fn end(&mut self) {
        self.ended = true;
        self.watches.clear();
        self.let_go();
    }
}

#[async_trait]
impl Claim for FileClaim {
    async fn try_acquire(&mut self) -> Result<Standing, DriverError> {
        let mut place = self.shared.place();
        if self.ended || self.shared.bells.is_closed() || place.table.is_forked() {
            return Err(DriverError::closed());
        }
        if !self.hung {
            self.hung = true;
            self.shared.bells.hang(self.me.claim, &self.want.bell);
        }
        let look = loop {
            match self.look(&place).await? {
                Some(look) => break look,
                None => {
                    self.watches.clear();
                    place = self.shared.reopen(&place)?;
                }
            }
        };
        match look {
            Look::Held { token, until } => {
                self.end();
                self.held = true;
                self.shared.vigil.began();
                Ok(Standing::Held(Grant {
                    token: (token != 0).then(|| FencingToken::new(token)),
                    valid_until: Moment::from_nanos(until),
                    mark: self.me.claim,
                }))
            }
            Look::Waiting {
                recheck,
                holder,
                ahead,
                ..
            } => Ok(Standing::Waiting {
                recheck,
                holder: holder.map(|h| self.shared.holder(&place, &h)),
                ahead: Some(ahead),
            }),
            Look::Mismatch { have, .. } => Err(DriverError::refused(Refusal::KindMismatch {
                have: have.to_string(),
                want: self.want.mode.kind().to_string(),
            })),
        }
    }

    async fn release(&mut self, keep: Option<Duration>) -> Result<Released, DriverError> {
        let place = self.shared.place();
        if place.table.is_forked() {
            self.end();
            return Ok(Released::NotHeld);
        }
        let (released, wakes) = {
            let me = &self.me;
            let mut decide = |s: &mut crate::snapshot::Snapshot, now: Moment| {
                let mut wakes = Vec::new();
                let (released, changed) = protocol::release(s, now, me, keep, &mut wakes);
                ((released, wakes), changed)
            };
            self.shared.change(&place, self.bucket, &mut decide).await?
        };
        self.end();
        if !wakes.is_empty() {
            // The release itself is done, whatever comes of the wake-ups.
            if let Err(e) = self.shared.wake(&place, self.bucket, wakes).await {
                tracing::warn!(error = %e, "cannot wake the next waiter; it will be late");
            }
        }
        Ok(released)
    }
}

impl Drop for FileClaim {
    fn drop(&mut self) {
        self.let_go();
        if self.hung {
            self.shared.bells.take_down(self.me.claim);
        }
    }
}

impl Shared {
    /// An entry, for people.
    pub(crate) fn holder(&self, place: &Place, e: &Entry) -> Holder {
        let now = self.clock().now().as_nanos();
        let owner = match e.state {
            State::Kept | State::Barred => String::new(),
            _ => e.owner.to_string(),
        };
        let mut h = Holder::new(owner, e.mode);
        h.token = (e.token != 0).then(|| FencingToken::new(e.token));
        h.label = e.label.as_deref().map(str::to_owned);
        h.reason = e.reason.as_deref().map(str::to_owned);
        h.host = e.host.as_deref().map(str::to_owned);
        h.pid = (e.pid != 0).then_some(e.pid);
        h.since = SystemTime::now().checked_sub(Duration::from_nanos(now.saturating_sub(e.since)));
        h.expires_in = (e.state != State::Waiting).then(|| Duration::from_nanos(e.until.saturating_sub(now)));
        h.here = e.process == place.fifos.own;
        h
    }
}
