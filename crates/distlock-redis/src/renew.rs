//! Renewal: many holds in one script, few scripts in flight, each answer given as soon as it is known.

use std::sync::atomic::Ordering;
use std::time::Duration;

use distlock_core::driver::{DriverError, Hold, LostReason, Mode, Reached, Renewal};
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, join_all};
use redis::{Cmd, FromRedisValue, Value};

use crate::config::Layout;
use crate::dial::Link;
use crate::driver::Shared;
use crate::fault::{elsewhere, unanswered};
use crate::script::{RENEW_HASH, RENEW_RAISE, RENEW_READ, RENEW_SLOT, RENEW_STRING, Script};
use crate::shape::{Shape, millis};
use crate::slot::slot;

/// Holds in one script: the server serves nobody else meanwhile (about 0.5 ms).
const BATCH: usize = 256;
/// Holds on their way at once, for the whole client: a reconnect has all holds verified together.
pub(crate) const IN_FLIGHT: usize = 4 * BATCH;

type Answer<'a> = &'a (dyn Fn(usize, Renewal) + Send + Sync);

/// What is renewed together. `asking`: the slot is on its way to this server.
#[derive(Clone, Copy)]
struct Round<'a> {
    holds: &'a [Hold],
    answer: Answer<'a>,
    asking: bool,
}

impl Shared {
    /// `asking`: the slot is on its way to this server.
    pub(crate) async fn renew(&self, holds: &[Hold], answer: Answer<'_>, asking: bool) {
        if self.closed.load(Ordering::Acquire) {
            return;
        }
        let mut groups: [(&'static Script, Vec<usize>); 5] = [
            (&RENEW_HASH, Vec::new()),
            (&RENEW_READ, Vec::new()),
            (&RENEW_SLOT, Vec::new()),
            (&RENEW_STRING, Vec::new()),
            (&RENEW_RAISE, Vec::new()),
        ];
        let string = self.config.layout != Layout::Redisson;
        for (index, hold) in holds.iter().enumerate() {
            let group = match hold.want.mode {
                mode if hold.floor.is_some() && mode.is_exclusive() => 4,
                _ if string => 3,
                Mode::Mutex | Mode::Write => 0,
                Mode::Read => 1,
                Mode::Slot { .. } => 2,
            };
            groups[group].1.push(index);
        }
        let mut scripts: Vec<BoxFuture<'_, ()>> = Vec::new();
        let round = Round {
            holds,
            answer,
            asking,
        };
        for (script, group) in &mut groups {
            let spread = self.config.clustered && !asking && !std::ptr::eq(*script, &RENEW_RAISE);
            if spread {
                for chunk in group.chunks(BATCH) {
                    scripts.push(self.renew_spread(script, chunk, round).boxed());
                }
            } else {
                for chunk in self.by_slot(group, holds) {
                    scripts.push(self.renew_declared(script, chunk, round).boxed());
                }
            }
        }
        join_all(scripts).await;
    }

    /// Renews holds of whatever slots in one script. Those of which it cannot tell (their slot is on its way, or the server
    /// wants the keys of scripts declared) are asked for again, slot by slot.
    async fn renew_spread(&self, script: &'static Script, chunk: &[usize], round: Round<'_>) {
        let mut rest = self.renew_chunk(script, chunk, round, true).await;
        let each = self.by_slot(&mut rest, round.holds);
        join_all(each.map(|same| self.renew_declared(script, same, round))).await;
    }

    async fn renew_declared(&self, script: &'static Script, chunk: &[usize], round: Round<'_>) {
        self.renew_chunk(script, chunk, round, false).await;
    }

    /// What may be in one script with its keys declared.
    fn by_slot<'a>(&'a self, group: &'a mut [usize], holds: &'a [Hold]) -> impl Iterator<Item = &'a [usize]> {
        let slot_of = |at: &usize| match self.config.clustered {
            true => slot(&self.stored_key(&holds[*at].want.key)),
            false => 0,
        };
        group.sort_by_cached_key(slot_of);
        group
            .chunk_by(move |a, b| slot_of(a) == slot_of(b))
            .flat_map(|same| same.chunks(BATCH))
    }

    /// Those of which a script without declared keys could not tell.
    async fn renew_chunk(
        &self,
        script: &'static Script,
        chunk: &[usize],
        round: Round<'_>,
        spread: bool,
    ) -> Vec<usize> {
        let Round {
            holds,
            answer,
            asking,
        } = round;
        // The work begins with the turn: batches that are due together must not keep the engine thread from reading
        // the answers of those that were sent.
        let Ok(_turn) = self
            .renewals
            .acquire_many(u32::try_from(chunk.len()).unwrap_or(u32::MAX))
            .await
        else {
            return Vec::new();
        };
        // The hub's connection is the one that the server tells about changes; a write over another would be told.
        let (link, tracks) = match self.hub_live() {
            Some(live) => (live.link, live.tracks),
            None => match self.links.get().await {
                Ok(link) => (link, false),
                Err(e) => return all_unknown(chunk, &e, answer),
            },
        };
        let (mut keys, mut args) = (Vec::new(), Vec::new());
        let mut shapes = Vec::with_capacity(chunk.len());
        for index in chunk {
            let hold = &holds[*index];
            let shape = self.shape(&hold.want);
            match hold.floor.filter(|_| std::ptr::eq(script, &RENEW_RAISE)) {
                Some(floor) => shape.raise(hold.ttl, floor.get(), &mut keys, &mut args),
                None => shape.renew(hold.ttl, &mut keys, &mut args),
            }
            shapes.push(shape);
        }
        let call = script.about(&keys, &args, spread);
        // A write forgets who tracks; where the key says by itself who holds it, we go on being told of changes.
        let tracks = tracks && !asking && shapes.iter().all(Shape::tracked);
        // A renewal that is not answered in good time is asked again while there still is some.
        let shortest = chunk
            .iter()
            .map(|index| holds[*index].ttl)
            .min()
            .unwrap_or_default();
        let patience = self
            .links
            .patience()
            .min(shortest / 3)
            .max(Duration::from_millis(20));
        let sent = self.clock().now();
        let track = async {
            // Refused or lost: the hub finds out by itself, or the next renewal tells.
            if tracks {
                let _ = link.track(&keys, spread, patience).await;
            }
        };
        // Sent together, so that nobody comes between them.
        let known = async {
            match asking {
                true => link.run_asking(script, &call, patience).await.map(Some),
                false => link.run_known(&call, patience).await,
            }
        };
        let answer_of = match tokio::join!(known, track) {
            (Ok(None), ()) => match link.ask(&script.in_full(&call), patience).await {
                Ok(value) if tracks => link.track(&keys, spread, patience).await.map(|()| value),
                other => other,
            },
            (Ok(Some(value)), ()) => Ok(value),
            (Err(fault), ()) => Err(fault),
        };
        let answers = match answer_of {
            Ok(Value::Array(answers)) if answers.len() == chunk.len() => answers,
            Ok(other) => {
                let e = DriverError::unavailable(Reached::Yes, format!("not understood: {other:?}"));
                return all_unknown(chunk, &e, answer);
            }
            Err(fault) if spread && (!fault.error.retry || elsewhere(&fault.error).is_some()) => {
                return chunk.to_vec();
            }
            Err(fault) => return all_unknown(chunk, &fault.error, answer),
        };
        let mut untold = Vec::new();
        for ((index, shape), renewed) in chunk.iter().zip(&shapes).zip(answers) {
            let hold = &holds[*index];
            match renewed {
                Value::Int(1) => {
                    let valid = sent + Duration::from_millis(millis(hold.ttl));
                    answer(*index, Renewal::Good(valid));
                }
                Value::Int(-1) => untold.push(*index),
                _ => answer(*index, Renewal::Lost(self.why_lost(&link, shape).await)),
            }
        }
        untold
    }

    /// Somebody who broke the lock left a note; otherwise it was just gone.
    async fn why_lost(&self, link: &Link, shape: &Shape) -> LostReason {
        let mut get = Cmd::new();
        get.arg("HGET").arg(shape.broken()).arg(&*shape.stored);
        match link
            .ask(&get, self.links.patience())
            .await
            .map(Option::<String>::from_redis_value)
        {
            Ok(Ok(Some(reason))) => LostReason::Broken {
                reason: (!reason.is_empty()).then_some(reason),
            },
            _ => LostReason::Taken,
        }
    }
}

/// Nothing is left to be asked for.
fn all_unknown(chunk: &[usize], e: &DriverError, answer: Answer<'_>) -> Vec<usize> {
    for index in chunk {
        answer(*index, Renewal::Unknown(unanswered(e)));
    }
    Vec::new()
}
