//! What an engine answers.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::{DriverError, Holder, Want};
use crate::clock::Moment;
use crate::token::FencingToken;

/// A granted hold.
#[derive(Debug, Clone, Copy)]
pub struct Grant {
    /// The token; `None` for shared and slot holds, or where the engine has none.
    pub token: Option<FencingToken>,
    /// Until when the engine will keep the hold (law 6), before the core's margin.
    pub valid_until: Moment,
    /// The driver's own word, given back in [`Hold::mark`].
    pub mark: u64,
}

/// What an attempt found.
#[derive(Debug)]
pub enum Standing {
    /// The lock is held by this claim.
    Held(Grant),
    /// Somebody else holds it, or it is not our turn.
    Waiting {
        /// The longest time after which it is worth looking again without a ring.
        recheck: Duration,
        /// The present holder, where known.
        holder: Option<Holder>,
        /// How many contenders are ahead in line, where known.
        ahead: Option<u32>,
    },
}

/// A hold as the keeper knows it.
#[derive(Debug, Clone)]
pub struct Hold {
    /// What was asked for.
    pub want: Arc<Want>,
    /// [`Grant::mark`].
    pub mark: u64,
    /// The lease to set, counted from the renewal.
    pub ttl: Duration,
    /// Raise the stored token to at least this (Redlock's second phase).
    pub floor: Option<FencingToken>,
}

/// The answer to a renewal.
#[derive(Debug)]
pub enum Renewal {
    /// Renewed: valid until then, before the margin.
    Good(Moment),
    /// No longer ours. Final.
    Lost(LostReason),
    /// The engine did not say. Not lost, and not held for ever.
    Unknown(DriverError),
}

/// The answer to a release.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Released {
    /// The claim held the lock; it no longer does.
    Freed,
    /// The claim did not hold the lock (it only waited, or the hold was gone).
    NotHeld,
}

/// Why a hold was lost.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum LostReason {
    /// The lease ran out: no renewal was confirmed in time.
    Expired,
    /// The engine no longer has the record, or another owner's is there.
    Taken,
    /// The session that the hold depended on ended.
    SessionEnded,
    /// Somebody broke the lock on purpose.
    Broken {
        /// The reason that was given.
        reason: Option<String>,
    },
    /// The hold's own `max_hold` passed.
    MaxHold,
    /// The engine could not be reached and the client was told to stop at once (`on_disconnect=stop`).
    Disconnected,
    /// The client was shut down.
    Shutdown,
    /// This process is a forked child; the hold belongs to its parent.
    Forked,
}

impl LostReason {
    /// A stable word for metrics and machines.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Expired => "expired",
            Self::Taken => "taken",
            Self::SessionEnded => "session_ended",
            Self::Broken { .. } => "broken",
            Self::MaxHold => "max_hold",
            Self::Disconnected => "disconnected",
            Self::Shutdown => "shutdown",
            Self::Forked => "forked",
        }
    }
}

impl fmt::Display for LostReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Expired => f.write_str("its lease ran out before a renewal was confirmed"),
            Self::Taken => f.write_str("its record is gone or belongs to another owner"),
            Self::SessionEnded => f.write_str("the session that it depended on ended"),
            Self::Broken { reason: Some(why) } => write!(f, "it was broken: {why}"),
            Self::Broken { reason: None } => f.write_str("it was broken"),
            Self::MaxHold => f.write_str("its max_hold passed"),
            Self::Disconnected => f.write_str("the engine could not be reached (on_disconnect=stop)"),
            Self::Shutdown => f.write_str("the client was shut down"),
            Self::Forked => f.write_str("this process is a fork of the holder"),
        }
    }
}
