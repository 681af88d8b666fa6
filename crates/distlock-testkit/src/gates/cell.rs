//! One cell of the matrix: its world, the call that is dropped, and the look at what is left.

use std::fmt;
use std::task::Poll;
use std::time::Duration;

use distlock_core::clock::{Clock, ManualClock};
use distlock_core::memory::{Call, Fault, Memory, Rule};
use distlock_core::{Client, Error, ErrorKind, Guard, Key, RunError};
use futures_util::future::BoxFuture;
use uuid::Uuid;

use super::{Cell, DELAY, Op, TTL, Tally};

/// By how much time is moved between two polls of the call.
const STEP: Duration = Duration::from_millis(250);
/// How much later than the last arrival everything must be gone: the interval of the chase, and a release that is
/// sent again after no answer.
const CHASE: Duration = Duration::from_secs(2);
const NO_ANSWER: Duration = Duration::from_secs(6);

/// A store, the time, and two clients.
struct World {
    time: ManualClock,
    memory: Memory,
    a: Client,
    b: Client,
    /// The identity of `a`, whose requests are struck.
    struck: Uuid,
    key: Key,
}

impl World {
    fn new() -> Result<Self, Error> {
        let (time, memory) = (ManualClock::new(), Memory::new());
        let mut ids = Vec::new();
        let mut client = || {
            let builder = Client::builder().clock(Clock::Manual(time.clone()));
            builder.build_now(|engine| {
                ids.push(engine.owners().client());
                Ok(memory.driver(engine))
            })
        };
        let (a, b) = (client()?, client()?);
        let struck = ids[0];
        Ok(Self {
            key: Key::new("gate")?,
            time,
            memory,
            a,
            b,
            struck,
        })
    }

    /// What is left of the lock, if anything.
    async fn rest(&self) -> Result<Option<String>, Error> {
        let info = self.b.inspect(&self.key).await?;
        let held = self.a.held() + self.b.held();
        let clean = info.holders.is_empty() && info.waiters.is_empty() && held == 0;
        Ok((!clean).then(|| format!("{held} holds watched, {info:?}")))
    }
}

impl Cell {
    /// Whether the call ended by itself.
    pub(super) async fn prove(self, tally: &mut Tally) -> Result<bool, String> {
        let world = World::new().map_err(text)?;
        let faults = world.memory.faults();
        let guard = match self.op.begins_held() {
            true => Some(
                self.sort
                    .lock(&world.a, &world.key)
                    .acquire()
                    .await
                    .map_err(text)?,
            ),
            false => None,
        };
        if matches!(self.op, Op::AcquireHeld | Op::TryHeld) {
            self.block(&world).await.map_err(text)?;
        }
        if let Some(fault) = self.fault {
            faults.add(Rule::new(self.call, fault).of(world.struck).times(self.times));
        }
        let out = self.drive(&world, guard).await;
        let ended = out.is_some();
        if let Some(Ok(Some(guard))) = &out {
            self.is_held(&world, guard).await?;
        }
        drop(out);
        // A fault on a release may strike the clean-up, at the latest when the blocker's second is over.
        self.nothing_is_left(&world).await?;
        tally.cells += 1;
        tally.ended += u32::from(ended);
        tally.dropped += u32::from(!ended);
        tally.struck += u32::from(self.fault.is_some() && faults.pending() == 0);
        Ok(ended)
    }

    /// `b` holds the lock for a second.
    async fn block(self, world: &World) -> Result<(), Error> {
        let mut guards = Vec::new();
        for lock in self.sort.blockers(&world.b, &world.key) {
            guards.push(lock.acquire().await?);
        }
        let clock = world.b.clock().clone();
        tokio::spawn(async move {
            clock.sleep(Duration::from_secs(1)).await;
            drop(guards);
        });
        Ok(())
    }

    fn call<'a>(self, world: &'a World, guard: Option<Guard>) -> BoxFuture<'a, Result<Option<Guard>, Error>> {
        let lock = self.sort.lock(&world.a, &world.key);
        Box::pin(async move {
            let Some(guard) = guard else {
                return match self.op {
                    Op::TryAcquire | Op::TryHeld => lock.try_acquire().await,
                    Op::Run => {
                        let body = async |_| {
                            world.time_passes().await;
                            Ok::<(), Error>(())
                        };
                        lock.run(body).await.map(|()| None).map_err(of_run)
                    }
                    _ => lock.acquire().await.map(Some),
                };
            };
            match self.op {
                Op::Release => guard.release().await.map(|_| None),
                Op::Extend => guard.extend(TTL * 2).await.map(|()| Some(guard)),
                Op::Verify => guard.verify().await.map(|()| Some(guard)),
                _ => Ok(None),
            }
        })
    }

    /// Polls the call, moving the time in between, and drops it.
    async fn drive(self, world: &World, guard: Option<Guard>) -> Option<Result<Option<Guard>, Error>> {
        let mut call = self.call(world, guard);
        for _ in 0..self.polls {
            if let Poll::Ready(out) = futures_util::poll!(call.as_mut()) {
                return Some(out);
            }
            world.time.advance(STEP).await;
        }
        None
    }

    /// The guard that the call gave is the truth.
    async fn is_held(self, world: &World, guard: &Guard) -> Result<(), String> {
        let info = world.b.inspect(&world.key).await.map_err(text)?;
        let owner = guard.owner().to_string();
        let on_record = info
            .holders
            .iter()
            .any(|h| h.owner == owner && h.token == guard.token());
        if !on_record || !guard.is_held() {
            return Err(format!("a guard of {owner} without a hold: {info:?}"));
        }
        Ok(())
    }

    /// When everything must be gone.
    fn bound(self) -> Duration {
        let silent = matches!(self.fault, Some(Fault::Silent | Fault::SilentApplied));
        let answers = if silent && self.call == Call::Release {
            NO_ANSWER * self.times
        } else {
            Duration::ZERO
        };
        let blocked = Duration::from_secs(1);
        DELAY * self.times + CHASE + answers + blocked
    }

    async fn nothing_is_left(self, world: &World) -> Result<(), String> {
        let bound = self.bound();
        let mut passed = Duration::ZERO;
        while passed < bound {
            world.time.advance(STEP).await;
            passed += STEP;
        }
        if let Some(rest) = world.rest().await.map_err(text)? {
            return Err(format!("left after {passed:?}: {rest}"));
        }
        for lock in self.sort.blockers(&world.b, &world.key) {
            let Some(guard) = lock.try_acquire().await.map_err(text)? else {
                return Err("the next one does not get the lock".to_owned());
            };
            guard.release().await.map_err(text)?;
        }
        Ok(())
    }
}

impl World {
    async fn time_passes(&self) {
        self.a.clock().sleep(Duration::from_secs(1)).await;
    }
}

fn text(e: impl fmt::Display) -> String {
    e.to_string()
}

fn of_run(e: RunError<Error>) -> Error {
    match e {
        RunError::Lock(e) | RunError::Body(e) => e,
        RunError::Lost { reason, .. } => Error::new(ErrorKind::Lost, reason.to_string()),
    }
}
