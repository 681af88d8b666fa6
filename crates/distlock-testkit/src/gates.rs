//! The gate matrix: every call of the public API, under every fault of one request, dropped at every poll; and
//! nothing is left behind.
//!
//! Each cell is a world of its own in memory, with time that is moved by hand: client `a` makes the call while one
//! of its requests is struck, the call is polled so often and then dropped, its guard (if any) is dropped, and some
//! time passes: more than the fault's delay, much less than a lease. Then the store must be empty, and client `b`
//! must get the lock at once. A cell whose fault would only be cured by the end of the lease fails.

use std::fmt;
use std::task::Poll;
use std::time::Duration;

use distlock_core::clock::{Clock, ManualClock};
use distlock_core::driver::Order;
use distlock_core::memory::{Call, Fault, Memory, Rule};
use distlock_core::{Client, Error, Guard, Key, Lock, RunError};
use futures_util::future::BoxFuture;
use uuid::Uuid;

/// The lease: much longer than any cell lasts, so that nothing is cleaned up by its end.
const TTL: Duration = Duration::from_secs(60);
/// By how much time is moved between two polls of the call.
const STEP: Duration = Duration::from_millis(250);
/// How late a request arrives that is struck by a delay.
const DELAY: Duration = Duration::from_millis(700);
/// The call is dropped after so many polls at the latest.
const MOST_POLLS: u32 = 10;
/// How much later than the last arrival everything must be gone: the interval of the chase, and a release that is
/// sent again after no answer.
const CHASE: Duration = Duration::from_secs(2);
const NO_ANSWER: Duration = Duration::from_secs(6);

/// A call of the public API.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Op {
    /// `acquire` of a free lock.
    Acquire,
    /// `acquire` of a lock that `b` holds and releases a second later.
    AcquireHeld,
    /// `try_acquire` of a free lock.
    TryAcquire,
    /// `try_acquire` of a lock that `b` holds.
    TryHeld,
    /// `release` of a guard.
    Release,
    /// The drop of a guard.
    DropGuard,
    /// `extend` of a guard, which is then dropped.
    Extend,
    /// `verify` of a guard, which is then dropped.
    Verify,
    /// `run` with a body that takes a second.
    Run,
}

impl Op {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::Acquire,
        Self::AcquireHeld,
        Self::TryAcquire,
        Self::TryHeld,
        Self::Release,
        Self::DropGuard,
        Self::Extend,
        Self::Verify,
        Self::Run,
    ];

    /// The requests that it sends.
    fn calls(self) -> &'static [Call] {
        match self {
            Self::Acquire | Self::AcquireHeld | Self::TryAcquire => &[Call::Try, Call::Release],
            Self::TryHeld => &[Call::Try],
            Self::Release | Self::DropGuard => &[Call::Release],
            Self::Extend | Self::Verify => &[Call::Renew],
            Self::Run => &[Call::Try, Call::Release],
        }
    }

    fn begins_held(self) -> bool {
        matches!(
            self,
            Self::Release | Self::DropGuard | Self::Extend | Self::Verify
        )
    }
}

/// The kinds of lock, in both orders.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Sort {
    /// A mutex.
    Mutex(Order),
    /// A reader.
    Read(Order),
    /// A writer.
    Write(Order),
    /// One of two slots.
    Slot(Order),
}

impl Sort {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Mutex(Order::Any),
        Self::Mutex(Order::Fifo),
        Self::Read(Order::Any),
        Self::Read(Order::Fifo),
        Self::Write(Order::Any),
        Self::Write(Order::Fifo),
        Self::Slot(Order::Any),
        Self::Slot(Order::Fifo),
    ];

    fn lock(self, client: &Client, key: &Key) -> Lock {
        let (lock, order) = match self {
            Self::Mutex(order) => (client.mutex(key), order),
            Self::Read(order) => (client.rw(key).read(), order),
            Self::Write(order) => (client.rw(key).write(), order),
            Self::Slot(order) => (client.semaphore(key, 2), order),
        };
        lock.order(order).ttl(TTL)
    }

    /// Locks that leave no room for another one of this sort.
    fn blockers(self, client: &Client, key: &Key) -> Vec<Lock> {
        match self {
            Self::Read(order) => vec![Self::Write(order).lock(client, key)],
            Self::Slot(_) => vec![self.lock(client, key), self.lock(client, key)],
            Self::Mutex(_) | Self::Write(_) => vec![self.lock(client, key)],
        }
    }
}

/// The faults that can strike a request; `None` is the control.
pub const FAULTS: [Option<Fault>; 8] = [
    None,
    Some(Fault::NotSent),
    Some(Fault::LostReply),
    Some(Fault::Slow(DELAY)),
    Some(Fault::Late(DELAY)),
    Some(Fault::LateLost(DELAY)),
    Some(Fault::Silent),
    Some(Fault::SilentApplied),
];

/// One cell of the matrix.
#[derive(Clone, Copy)]
pub struct Cell {
    /// The call.
    pub op: Op,
    /// The lock.
    pub sort: Sort,
    /// The request that is struck.
    pub call: Call,
    /// By what.
    pub fault: Option<Fault>,
    /// How many requests in a row.
    pub times: u32,
    /// How often the call is polled before it is dropped.
    pub polls: u32,
}

impl fmt::Debug for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            op,
            sort,
            call,
            fault,
            times,
            polls,
        } = self;
        write!(
            f,
            "{op:?} of {sort:?}, {call:?} struck {times} times by {fault:?}, dropped after {polls} polls"
        )
    }
}

/// What was seen in the matrix: that it was not vacuous.
#[derive(Debug, Default, Clone, Copy)]
pub struct Tally {
    /// Cells that were proven.
    pub cells: u32,
    /// Cells in which the call ended by itself.
    pub ended: u32,
    /// Cells in which it was dropped before its end.
    pub dropped: u32,
    /// Cells whose fault struck.
    pub struck: u32,
}

/// Proves all cells of one call.
///
/// # Errors
/// The first cell that left something behind, and what.
pub async fn prove(op: Op) -> Result<Tally, String> {
    let mut tally = Tally::default();
    for sort in Sort::ALL {
        for &call in op.calls() {
            for fault in FAULTS {
                for times in [1, 2] {
                    for polls in 0..=MOST_POLLS {
                        let cell = Cell {
                            op,
                            sort,
                            call,
                            fault,
                            times,
                            polls,
                        };
                        let ended = cell
                            .prove(&mut tally)
                            .await
                            .map_err(|why| format!("{cell:?}: {why}"))?;
                        if ended {
                            break;
                        }
                    }
                }
            }
        }
    }
    Ok(tally)
}

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
    async fn prove(self, tally: &mut Tally) -> Result<bool, String> {
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
        RunError::Lost { reason, .. } => Error::new(distlock_core::ErrorKind::Lost, reason.to_string()),
    }
}
