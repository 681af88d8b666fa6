//! The gate matrix: every call of the public API, under every fault of one request, dropped at every poll; and
//! nothing is left behind.
//!
//! Each cell is a world of its own in memory, with time that is moved by hand: client `a` makes the call while one
//! of its requests is struck, the call is polled so often and then dropped, its guard (if any) is dropped, and some
//! time passes: more than the fault's delay, much less than a lease. Then the store must be empty, and client `b`
//! must get the lock at once. A cell whose fault would only be cured by the end of the lease fails.

use std::fmt;
use std::time::Duration;

use distlock_core::driver::Order;
use distlock_core::memory::{Call, Fault};
use distlock_core::{Client, Key, Lock};

mod cell;

/// The lease: much longer than any cell lasts, so that nothing is cleaned up by its end.
const TTL: Duration = Duration::from_secs(60);
/// How late a request arrives that is struck by a delay.
const DELAY: Duration = Duration::from_millis(700);
/// The call is dropped after so many polls at the latest.
const MOST_POLLS: u32 = 10;

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
