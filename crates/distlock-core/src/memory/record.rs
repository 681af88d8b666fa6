//! One lock's record: who holds, who waits, and what each request does to it. Pure; time comes in as an argument.

use std::sync::Arc;
use std::time::Duration;

use super::Rings;
use crate::clock::Moment;
use crate::driver::{
    Break, DriverError, Grant, Hold, Kind, Line, LostReason, Mode, Order, Refusal, Released, Renewal,
    Standing, Want,
};
use crate::line::{Turn, turn};
use crate::owner::OwnerId;
use crate::token::FencingToken;

/// A waiter's place lives at least this long without a look, so that a short lease on a busy machine does not cost
/// its owner the place in line.
const PLACE_LIFE: Duration = Duration::from_secs(1);

/// A holder or a waiter.
#[derive(Debug)]
pub(super) struct Place {
    /// `None` for a record that outlives its owner (`keep`, a broken lock's grace).
    pub(super) owner: Option<OwnerId>,
    pub(super) want: Arc<Want>,
    pub(super) token: Option<FencingToken>,
    pub(super) since: Moment,
    pub(super) expires: Moment,
}

impl Place {
    fn is(&self, owner: OwnerId) -> bool {
        self.owner == Some(owner)
    }

    fn mode(&self) -> Mode {
        self.want.mode
    }
}

/// A hold that was broken, remembered until its owner has had time to ask why.
#[derive(Debug)]
struct Broken {
    owner: OwnerId,
    reason: Option<String>,
    until: Moment,
}

/// The state of one lock.
#[derive(Debug, Default)]
pub(super) struct Record {
    /// The largest token that was granted.
    pub(super) token: Option<FencingToken>,
    /// No token is smaller than or equal to this: what earlier records of the key may have granted.
    floor: u64,
    pub(super) holders: Vec<Place>,
    /// In the order in which they joined.
    pub(super) waiters: Vec<Place>,
    broken: Vec<Broken>,
}

impl Record {
    /// A record whose tokens start above `floor`.
    pub(super) fn new(floor: u64) -> Self {
        Self {
            floor,
            ..Self::default()
        }
    }

    /// The largest token that this record or an earlier one of the key may have granted.
    pub(super) fn last_token(&self) -> u64 {
        self.token.map_or(self.floor, FencingToken::get).max(self.floor)
    }

    /// Whether nothing but the token would be lost with it.
    pub(super) fn is_idle(&self) -> bool {
        self.holders.is_empty() && self.waiters.is_empty() && self.broken.is_empty()
    }

    pub(super) fn kind(&self) -> Option<Kind> {
        let place = self.holders.first().or(self.waiters.first())?;
        Some(place.mode().kind())
    }

    /// Forgets what has run out.
    pub(super) fn prune(&mut self, now: Moment, rings: &mut Rings) {
        let before = self.holders.len() + self.waiters.len();
        self.holders.retain(|p| p.expires > now);
        self.waiters.retain(|p| p.expires > now);
        self.broken.retain(|b| b.until > now);
        if self.holders.len() + self.waiters.len() < before {
            self.wake(rings);
        }
    }

    /// One look: see [`Claim::try_acquire`](crate::driver::Claim::try_acquire).
    pub(super) fn try_acquire(
        &mut self,
        want: &Arc<Want>,
        proposed: Option<FencingToken>,
        now: Moment,
        rings: &mut Rings,
    ) -> Result<Standing, DriverError> {
        self.prune(now, rings);
        if let Some(mine) = self.holders.iter_mut().find(|p| p.is(want.owner)) {
            mine.expires = now + want.ttl;
            return Ok(Standing::Held(grant(mine)));
        }
        let kind = want.mode.kind();
        if let Some(have) = self.kind().filter(|have| *have != kind) {
            return Err(DriverError::refused(Refusal::KindMismatch {
                have: have.to_string(),
                want: kind.to_string(),
            }));
        }
        let place = self.waiters.iter().position(|p| p.is(want.owner));
        if self.is_turn_of(want.mode, place) {
            if let Some(at) = place {
                self.waiters.remove(at);
            }
            return Ok(Standing::Held(self.grant_to(want, proposed, now)));
        }
        let life = want.ttl.max(PLACE_LIFE);
        let ahead = match (place, want.line) {
            (Some(at), _) => {
                self.waiters[at].expires = now + life;
                at
            }
            (None, Line::Join) => {
                self.waiters.push(Place {
                    owner: Some(want.owner),
                    want: want.clone(),
                    token: None,
                    since: now,
                    expires: now + life,
                });
                self.waiters.len() - 1
            }
            (None, Line::Never) => self.waiters.len(),
        };
        let in_the_way = self.holders.iter().chain(&self.waiters[..ahead]);
        let earliest = in_the_way.map(|p| p.expires.since(now)).min();
        // Looking again within a third of the place's life keeps it.
        let recheck = earliest.unwrap_or(life).min(life / 3);
        let holder = self
            .holders
            .first()
            .map(|p| super::inspect::person(p, want.owner.client, now));
        let ahead = (want.order == Order::Fifo).then_some(ahead as u32);
        Ok(Standing::Waiting {
            recheck,
            holder,
            ahead,
        })
    }

    /// Whether a contender of this mode may hold now, given that it waits at `place` or does not wait yet.
    fn is_turn_of(&self, mode: Mode, place: Option<usize>) -> bool {
        // The common case needs no line.
        if self.holders.is_empty() && self.waiters.is_empty() {
            return true;
        }
        // Nobody passes a `Fifo` that came earlier; `Any`s pass each other, and a `Fifo` passes an `Any`.
        let ahead = &self.waiters[..place.unwrap_or(self.waiters.len())];
        let ahead = ahead.iter().filter(|p| p.want.order == Order::Fifo);
        let line: Vec<Mode> = self
            .holders
            .iter()
            .chain(ahead)
            .map(Place::mode)
            .chain([mode])
            .collect();
        turn(&line, line.len() - 1) == Turn::Mine
    }

    fn grant_to(&mut self, want: &Arc<Want>, proposed: Option<FencingToken>, now: Moment) -> Grant {
        let token = want.mode.is_exclusive().then(|| {
            let last = self.last_token();
            if crate::mutant::is("token_not_bumped") && last > 0 {
                FencingToken::new(last)
            } else {
                FencingToken::new(last.saturating_add(1)).max(proposed.unwrap_or(FencingToken::new(0)))
            }
        });
        self.token = token.or(self.token);
        let place = Place {
            owner: Some(want.owner),
            want: want.clone(),
            token,
            since: now,
            expires: now + want.ttl,
        };
        let grant = grant(&place);
        if self.holders.capacity() == 0 {
            // Usually the only one, ever.
            self.holders.reserve_exact(1);
        }
        self.holders.push(place);
        grant
    }

    /// See [`Claim::release`](crate::driver::Claim::release).
    pub(super) fn release(
        &mut self,
        owner: OwnerId,
        keep: Option<Duration>,
        now: Moment,
        rings: &mut Rings,
    ) -> Released {
        self.prune(now, rings);
        let any_owner = crate::mutant::is("release_without_owner_check");
        let answer = match self.holders.iter().position(|p| p.is(owner) || any_owner) {
            Some(at) => {
                match keep.filter(|keep| !keep.is_zero()) {
                    Some(keep) => self.holders[at].disown(now + keep),
                    None => drop(self.holders.remove(at)),
                }
                Released::Freed
            }
            None => {
                self.waiters.retain(|p| !p.is(owner));
                Released::NotHeld
            }
        };
        self.wake(rings);
        answer
    }

    /// One hold of [`Driver::renew`](crate::driver::Driver::renew).
    pub(super) fn renew(&mut self, hold: &Hold, now: Moment, rings: &mut Rings) -> Renewal {
        let owner = hold.want.owner;
        let mine = self.holders.iter().position(|p| p.is(owner));
        if let Some(at) = mine.filter(|at| self.holders[*at].expires > now) {
            let expires = now + hold.ttl;
            let place = &mut self.holders[at];
            place.expires = expires;
            if hold.want.mode.is_exclusive() {
                place.token = place.token.max(hold.floor);
                self.token = self.token.max(hold.floor);
            }
            return Renewal::Good(expires);
        }
        let was_broken = self.broken.iter().find(|b| b.owner == owner);
        let reason = match was_broken {
            _ if mine.is_some() => LostReason::Expired,
            Some(broken) => LostReason::Broken {
                reason: broken.reason.clone(),
            },
            None => LostReason::Taken,
        };
        self.prune(now, rings);
        if crate::mutant::is("renew_acquires") && self.is_turn_of(hold.want.mode, None) {
            return Renewal::Good(self.grant_to(&hold.want, None, now).valid_until);
        }
        Renewal::Lost(reason)
    }

    /// See [`Inspect::break_lock`](crate::driver::Inspect::break_lock); `describe` is called for each holder that
    /// is told.
    pub(super) fn break_all(
        &mut self,
        how: &Break,
        now: Moment,
        rings: &mut Rings,
        mut describe: impl FnMut(&Place),
    ) -> Result<(), DriverError> {
        self.prune(now, rings);
        let have = self.holders.first().and_then(|p| p.token);
        if how.expect.is_some_and(|expect| have != Some(expect)) {
            return Err(DriverError::refused(Refusal::TokenMismatch { have }));
        }
        for place in &mut self.holders {
            let Some(owner) = place.owner else { continue };
            describe(place);
            rings.push(place.want.bell.clone());
            self.broken.push(Broken {
                owner,
                reason: how.reason.clone(),
                until: now + place.want.ttl.max(PLACE_LIFE),
            });
            place.disown(now + how.grace);
        }
        for ownerless in &mut self.holders {
            ownerless.expires = now + how.grace;
        }
        self.prune(now, rings);
        Ok(())
    }

    /// Takes the holders away without a trace, as if their leases had run out or the record had been deleted.
    pub(super) fn drop_holders(&mut self, rings: &mut Rings) -> usize {
        rings.extend(self.holders.iter().map(|p| p.want.bell.clone()));
        let gone = self.holders.drain(..).count();
        self.wake(rings);
        gone
    }

    /// Forgets everybody.
    pub(super) fn clear(&mut self, rings: &mut Rings) -> usize {
        let gone = self.holders.drain(..).chain(self.waiters.drain(..));
        gone.map(|p| rings.push(p.want.bell.clone())).count()
    }

    /// Puts a stranger in the place of the holders.
    pub(super) fn steal(&mut self, thief: &Arc<Want>, now: Moment, rings: &mut Rings) -> Grant {
        rings.extend(self.holders.drain(..).map(|p| p.want.bell.clone()));
        self.grant_to(thief, None, now)
    }

    /// Rings those waiters who may hold now if each that is rung takes its turn: no herd, and none left asleep.
    fn wake(&self, rings: &mut Rings) {
        if self.waiters.is_empty() {
            return;
        }
        let mut line: Vec<Mode> = self.holders.iter().map(Place::mode).collect();
        for place in &self.waiters {
            line.push(place.mode());
            let mine = turn(&line, line.len() - 1) == Turn::Mine;
            if mine {
                rings.push(place.want.bell.clone());
            } else if place.want.order == Order::Any {
                line.pop();
            }
            // Behind somebody exclusive, or a slot that is not free, nobody has a chance.
            let is_slot = matches!(place.mode(), Mode::Slot { .. });
            if line.last().is_some_and(|m| m.is_exclusive()) || (is_slot && !mine) {
                return;
            }
        }
    }
}

impl Place {
    fn disown(&mut self, until: Moment) {
        self.owner = None;
        self.token = None;
        self.expires = until;
    }
}

fn grant(place: &Place) -> Grant {
    Grant {
        token: place.token,
        valid_until: place.expires,
        mark: 0,
    }
}
