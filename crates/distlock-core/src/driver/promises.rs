//! What an engine promises.

use std::ops::RangeInclusive;
use std::time::Duration;

/// What an engine promises. The conformance suite chooses its cases by it, and the capability table in the docs is
/// generated from it.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Promises {
    /// The engine's name in errors and metrics: `file`, `redis`, …
    pub engine: &'static str,
    /// The orders in which waiters are served.
    pub order: Orders,
    /// Whether read/write locks are supported.
    pub shared: bool,
    /// Whether semaphores are supported.
    pub slots: bool,
    /// How far tokens are promised to grow.
    pub token: TokenPromise,
    /// The range of TTLs that the engine can keep.
    pub ttl: RangeInclusive<Duration>,
    /// How waiters learn that it may be their turn.
    pub wakes: Wakes,
    /// When the holder learns of a loss.
    pub loss: Loss,
    /// When the lock of a holder that died is free.
    pub death: Death,
    /// Whether holds with [`Life::Lease`](super::Life::Lease) are supported.
    pub lease_records: bool,
    /// Whether a release can leave an ownerless record (`min_hold`).
    pub keep: bool,
}

impl Promises {
    /// The promises of an engine that promises least; set the fields that are better.
    pub fn new(engine: &'static str) -> Self {
        Self {
            engine,
            order: Orders::Any,
            shared: false,
            slots: false,
            token: TokenPromise::None,
            ttl: Duration::from_millis(100)..=MAX_TTL,
            wakes: Wakes::Paced,
            loss: Loss::BeforeRegrant,
            death: Death::AtTtl,
            lease_records: false,
            keep: false,
        }
    }
}

/// The ceiling of every TTL: 366 days.
pub const MAX_TTL: Duration = Duration::from_secs(366 * 24 * 3600);

/// The orders in which an engine can serve its waiters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Orders {
    /// [`Order::Fifo`](super::Order::Fifo) is refused as unsupported.
    Any,
    /// Both orders, as asked for.
    AnyOrFifo,
    /// Every waiter is served in order, asked for or not.
    AlwaysFifo,
}

/// How far an engine promises that tokens grow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenPromise {
    /// There are no tokens; `.fenced()` is refused.
    None,
    /// They grow unless the stated thing happens.
    BestEffort {
        /// What would have to happen for a token to step back.
        unless: &'static str,
    },
    /// They grow whatever happens to clients and, within the engine's own durability, to servers.
    Durable,
}

/// How waiters learn that it may be their turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wakes {
    /// The engine notifies.
    Notified,
    /// The core asks at intervals that the engine suggests.
    Paced,
}

/// When the holder learns of a loss *by time*. A lock that is taken away is always told within a second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loss {
    /// Before anybody else can be granted, by the guard's own clock.
    BeforeRegrant,
    /// When the notice arrives; somebody else may hold by then.
    OnNotice,
}

/// When the lock of a holder that died is free.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Death {
    /// At once.
    AtOnce,
    /// When its lease or session has run out.
    AtTtl,
}
