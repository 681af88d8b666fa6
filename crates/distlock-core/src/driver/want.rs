//! What a contender asks for.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::bell::Bell;
use crate::key::Key;
use crate::owner::OwnerId;

/// What a contender wants. Immutable, shared by the claim and the keeper.
#[derive(Debug)]
pub struct Want {
    /// The lock's name, without the namespace.
    pub key: Key,
    /// The contender; unique.
    pub owner: OwnerId,
    /// How it wants to hold the key.
    pub mode: Mode,
    /// Whether it insists on its turn.
    pub order: Order,
    /// Whether an attempt that finds the lock taken joins the line.
    pub line: Line,
    /// What the hold's life depends on.
    pub life: Life,
    /// The length of the lease.
    pub ttl: Duration,
    /// The name of the process or service, for people who look.
    pub label: Option<Arc<str>>,
    /// Why the lock is taken, for people who look.
    pub reason: Option<Arc<str>>,
    /// Rung by the engine when this contender's standing may have changed.
    pub bell: Bell,
}

/// How a key is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Alone, as a mutex.
    Mutex,
    /// Alone, as the writer of a read/write lock.
    Write,
    /// Together with other readers of a read/write lock.
    Read,
    /// One of `of` slots of a semaphore. All contenders must name the same number.
    Slot {
        /// The number of slots; at least 1.
        of: u32,
    },
}

impl Mode {
    /// Whether nobody else may hold the key at the same time. Only exclusive holds have a token.
    pub fn is_exclusive(self) -> bool {
        matches!(self, Mode::Mutex | Mode::Write)
    }

    /// The kind of lock that this mode belongs to. Contenders of different kinds on one key are refused with
    /// [`Refusal::KindMismatch`](super::Refusal::KindMismatch).
    pub fn kind(self) -> Kind {
        match self {
            Mode::Mutex => Kind::Mutex,
            Mode::Write | Mode::Read => Kind::ReadWrite,
            Mode::Slot { of } => Kind::Semaphore { of },
        }
    }
}

/// The kind of lock that a key is used as.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// One holder.
    Mutex,
    /// Many readers or one writer.
    ReadWrite,
    /// Up to `of` holders.
    Semaphore {
        /// The number of slots.
        of: u32,
    },
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Kind::Mutex => f.write_str("a mutex"),
            Kind::ReadWrite => f.write_str("a read/write lock"),
            Kind::Semaphore { of } => write!(f, "a semaphore of {of} permits"),
        }
    }
}

/// Whether a contender insists on its turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Order {
    /// Whoever comes first when the lock is free; faster, not fair. Never passes a waiting `Fifo`.
    #[default]
    Any,
    /// First come, first served, across processes.
    Fifo,
}

/// Whether an attempt that finds the lock taken joins the line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Line {
    /// A single try: leaves nothing behind when the lock is taken.
    Never,
    /// Takes or keeps a place in line, where the engine has one.
    Join,
}

/// What a hold's life depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Life {
    /// The holder's process or session where the engine can tell, else the TTL.
    Process,
    /// The TTL alone: the hold may outlive the process that took it and be renewed by another one.
    Lease,
}
