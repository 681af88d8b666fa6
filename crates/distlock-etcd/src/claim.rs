//! One contender: joins, looks, holds, leaves.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use distlock_core::FencingToken;
use distlock_core::driver::{
    Claim, DriverError, Grant, Life, Line, LostReason, Mode, Reached, Released, Standing, Want,
};

use crate::ask::{Ask, Joined, View};
use crate::driver::Shared;
use crate::failure::{Failure, Why};
use crate::place::Place;
use crate::record;
use crate::session::{Fresh, Session};
use crate::watcher::Watch;
use crate::wire::{KeyValue, TxnRequest, TxnResponse};

/// How often one attempt starts again because what it relied on has gone: its lease, its key, its session's version.
const ROUNDS: usize = 16;

/// The life of a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Nothing was asked yet.
    New,
    /// Something was asked.
    Asked,
    Held,
    Over,
}

/// One contender.
#[derive(Debug)]
pub(crate) struct EtcdClaim {
    pub(crate) shared: Arc<Shared>,
    pub(crate) want: Arc<Want>,
    /// The prefix of the lock's contenders.
    pub(crate) lock: String,
    pub(crate) value: Vec<u8>,
    stage: Stage,
    place: Option<Arc<Place>>,
    /// Whether a join is unanswered and may still be applied.
    pub(crate) unsettled: bool,
    blocker: Option<Watch>,
    ahead: Option<u32>,
}

impl EtcdClaim {
    pub(crate) fn new(shared: Arc<Shared>, want: Arc<Want>, lock: String) -> Self {
        let value = record::encode(&want);
        Self {
            shared,
            want,
            lock,
            value,
            stage: Stage::New,
            place: None,
            unsettled: false,
            blocker: None,
            ahead: None,
        }
    }

    pub(crate) fn ask<'a>(&'a self, place: &'a Place) -> Ask<'a> {
        let version = place.session.joins.load(std::sync::atomic::Ordering::Acquire);
        Ask {
            lock: &self.lock,
            own: &place.key,
            mode: self.want.mode,
            lease: place.session.id,
            joins: place.session.record.as_deref().map(|record| (record, version)),
        }
    }

    async fn session(&self) -> Result<Arc<Session>, DriverError> {
        let sessions = &self.shared.sessions;
        let session = match self.want.life {
            Life::Process => sessions.shared(self.want.ttl).await?,
            Life::Lease => sessions.own(self.want.owner, self.want.ttl).await?,
        };
        match session.fresh().await {
            Ok(_) => Ok(session),
            Err(Fresh::Unknown(e)) => Err(e),
            Err(Fresh::Over(_)) => Err(Failure::unsent("the etcd lease has just ended").into()),
        }
    }

    /// Sends a join; until it is answered, it may be applied at any time.
    async fn send_join(&mut self, request: TxnRequest) -> Result<TxnResponse, Failure> {
        let earlier = std::mem::replace(&mut self.unsettled, true);
        let answered = self.shared.client.call(request).await;
        self.unsettled = match &answered {
            Ok(_) => earlier,
            // Without the lease, no join of ours can be applied any more.
            Err(failure) if failure.why == Why::NoLease => false,
            Err(failure) => earlier || failure.reached != Reached::No,
        };
        answered
    }

    /// The lease is gone, and with it everything that was ours.
    fn lease_ended(&mut self, place: &Place) {
        place.session.end(LostReason::SessionEnded);
        self.drop_place();
    }

    fn drop_place(&mut self) {
        if let Some(place) = self.place.take() {
            place.leave();
            place.session.forget(self.want.owner.n);
        }
        self.blocker = None;
        self.unsettled = false;
        self.ahead = None;
    }

    /// Takes a place, or the lock; `None`: look, or begin again.
    async fn enter(&mut self) -> Result<Option<Standing>, DriverError> {
        let place = match &self.place {
            Some(place) => place.clone(),
            None => {
                let session = self.session().await?;
                let place = Place::new(&self.lock, &self.want, session);
                self.place = Some(place.clone());
                place
            }
        };
        let seen = match (self.want.line, self.want.mode) {
            (Line::Never, Mode::Slot { .. }) => match self.free_slot(&place).await? {
                Some(revision) => revision,
                None => return self.busy(&place, None).await.map(Some),
            },
            _ => 0,
        };
        let ask = self.ask(&place);
        let sent = ask.joins.map(|(_, version)| version);
        let request = match self.want.line {
            Line::Join => ask.join(&self.value),
            Line::Never => ask.attempt(&self.value, seen),
        };
        let reply = match self.send_join(request).await {
            Ok(reply) => reply,
            Err(failure) if failure.why == Why::NoLease => {
                self.lease_ended(&place);
                return Ok(None);
            }
            Err(failure) => return Err(failure.into()),
        };
        match Ask::joined(&reply, sent) {
            Joined::Made { at } => {
                place.stands(at);
                let view = self.ask(&place).view(&reply, 1);
                if let Err(refused) = self.check_line(view.first) {
                    // Nobody shall wait behind us; what fails here is released by the caller.
                    if self.leave(&place).await.is_ok() {
                        self.drop_place();
                    }
                    return Err(refused);
                }
                Ok(Some(self.stand(&place, &view, reply.revision())))
            }
            Joined::Found { at } => {
                place.stands(at);
                Ok(None)
            }
            Joined::Outdated { version } => {
                place
                    .session
                    .joins
                    .fetch_max(version, std::sync::atomic::Ordering::AcqRel);
                Ok(None)
            }
            Joined::Busy if self.want.line == Line::Never && !matches!(self.want.mode, Mode::Slot { .. }) => {
                self.busy(&place, reply.range(1).first()).await.map(Some)
            }
            // Somebody came since a slot was seen to be free, or the version was raised twice: again.
            Joined::Busy => Ok(None),
        }
    }

    /// The revision at which a slot was free; `None` if none is.
    async fn free_slot(&mut self, place: &Place) -> Result<Option<i64>, DriverError> {
        let range = self.shared.client.call(self.ask(place).slots()).await?;
        self.check_line(range.kvs.first())?;
        let Mode::Slot { of } = self.want.mode else {
            return Ok(None);
        };
        let own = range.kvs.iter().any(|kv| kv.key == place.key.as_bytes());
        let free = own || range.kvs.len() < of.max(1) as usize;
        Ok(free.then(|| range.header.map_or(0, |h| h.revision)))
    }

    /// A single try found the lock taken; it leaves nothing.
    async fn busy(&mut self, place: &Arc<Place>, first: Option<&KeyValue>) -> Result<Standing, DriverError> {
        self.check_line(first)?;
        if self.want.life == Life::Lease {
            place.session.end(LostReason::SessionEnded);
            self.shared.leave_lease(&self.lock, &self.want).await?;
        }
        if !self.unsettled {
            place.give_back(&self.lock);
            self.drop_place();
        }
        Ok(self.waiting(first))
    }

    fn waiting(&self, first: Option<&KeyValue>) -> Standing {
        Standing::Waiting {
            recheck: (self.want.ttl / 2).clamp(Duration::from_secs(1), Duration::from_secs(5)),
            holder: first.map(|kv| self.shown(kv)),
            ahead: self.ahead,
        }
    }

    /// What standing the key has, as seen at `revision`.
    fn stand(&mut self, place: &Arc<Place>, view: &View<'_>, revision: i64) -> Standing {
        let watcher = &self.shared.watcher;
        let Some(blocker) = view.blocker else {
            return self.granted(place, revision);
        };
        let bell = self.want.bell.clone();
        // Both from the revision after the read: what happens in between is not missed.
        self.blocker = Some(watcher.watch(
            blocker.key.clone(),
            revision + 1,
            false,
            Box::new(move |_| bell.ring()),
        ));
        place.arm(watcher, revision + 1);
        let ahead = u32::try_from(view.contenders - 1).unwrap_or(u32::MAX);
        self.ahead = Some(self.ahead.map_or(ahead, |before| before.min(ahead)));
        self.waiting(view.first)
    }

    fn granted(&mut self, place: &Arc<Place>, revision: i64) -> Standing {
        self.stage = Stage::Held;
        self.blocker = None;
        place.granted(revision);
        if self.want.life == Life::Lease {
            place.session.by_hand();
        }
        self.shared.holds.add(self.want.owner.n, place);
        self.shared.settle(place, &self.value);
        let token = u64::try_from(revision)
            .ok()
            .filter(|_| self.want.mode.is_exclusive());
        Standing::Held(Grant {
            token: token.map(FencingToken::new),
            valid_until: place.session.valid_until(),
            mark: place.session.id.cast_unsigned(),
        })
    }

    /// Reads the line again; `None`: the key is gone, begin again.
    async fn look(&mut self, place: &Arc<Place>, at: i64) -> Result<Option<Standing>, DriverError> {
        let reply = self.shared.client.call(self.ask(place).look(at)).await?;
        if !reply.succeeded {
            place.session.doubt();
            place.reset();
            self.ahead = None;
            return Ok(None);
        }
        let view = self.ask(place).view(&reply, 0);
        self.check_line(view.first)?;
        if view.blocker.is_some() && self.want.line == Line::Never {
            return Ok(Some(self.waiting(view.first)));
        }
        // A grant on a lease of which nothing was heard lately would be late at once.
        if view.blocker.is_none() && matches!(place.session.fresh().await, Err(Fresh::Over(_))) {
            return Ok(None);
        }
        Ok(Some(self.stand(place, &view, reply.revision())))
    }

    fn over(&mut self, freed: bool) -> Released {
        let held = matches!(self.stage, Stage::Held | Stage::New);
        self.stage = Stage::Over;
        self.shared.holds.remove(self.want.owner.n);
        self.drop_place();
        if freed && held {
            Released::Freed
        } else {
            Released::NotHeld
        }
    }
}

#[async_trait]
impl Claim for EtcdClaim {
    async fn try_acquire(&mut self) -> Result<Standing, DriverError> {
        if matches!(self.stage, Stage::Held | Stage::Over) {
            return Err(DriverError::closed());
        }
        self.stage = Stage::Asked;
        for _ in 0..ROUNDS {
            if self
                .place
                .as_ref()
                .is_some_and(|place| place.session.over().is_some())
            {
                self.drop_place();
            }
            let standing = match self.place.clone() {
                Some(place) => match place.revision() {
                    Some(at) => self.look(&place, at).await?,
                    None => self.enter().await?,
                },
                None => self.enter().await?,
            };
            if let Some(standing) = standing {
                return Ok(standing);
            }
        }
        Err(Failure::unsent("the place in line was lost again and again").into())
    }

    async fn release(&mut self, keep: Option<Duration>) -> Result<Released, DriverError> {
        if self.stage == Stage::Over {
            return Ok(Released::NotHeld);
        }
        let place = self.place.clone();
        if let Some(place) = &place {
            place.leave();
        }
        let left = match (&place, keep.filter(|_| self.stage == Stage::Held)) {
            (Some(place), Some(keep)) => self.leave_kept(place, keep).await,
            _ if self.want.life == Life::Lease => self.shared.leave_lease(&self.lock, &self.want).await,
            (Some(place), None) => self.leave(place).await,
            (None, _) => Ok(false),
        };
        match left {
            Ok(freed) => Ok(self.over(freed)),
            // Without the lease there is nothing left, and nothing can come.
            Err(failure) if failure.why == Why::NoLease => Ok(self.over(false)),
            Err(failure) => Err(failure.into()),
        }
    }
}

impl Drop for EtcdClaim {
    fn drop(&mut self) {
        if self.stage != Stage::Over {
            self.shared.holds.remove(self.want.owner.n);
            self.drop_place();
        }
    }
}
