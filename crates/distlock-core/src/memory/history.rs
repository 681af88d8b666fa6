//! What was asked of a store and what became of it, for checkers.

use std::fmt;

use super::plan::Call;
use crate::clock::Moment;
use crate::driver::{DriverError, LostReason, Mode, Released, Renewal, Standing};
use crate::owner::OwnerId;
use crate::token::FencingToken;

/// One request, at the moment at which the store applied it or a fault kept it from doing so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// When.
    pub at: Moment,
    /// The record's name, with the namespace.
    pub record: String,
    /// Who asked.
    pub owner: OwnerId,
    /// For what mode.
    pub mode: Mode,
    /// What was asked.
    pub call: Call,
    /// What the store did, whether or not the answer arrived.
    pub answer: Answer,
}

/// What a store did with a request.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Answer {
    /// Granted, or found held by the same owner.
    Held {
        /// The token of an exclusive hold.
        token: Option<FencingToken>,
        /// Until when.
        valid_until: Moment,
    },
    /// Not the asker's turn.
    Waiting,
    /// Renewed until then.
    Renewed(Moment),
    /// The renewal found the hold gone.
    Lost(LostReason),
    /// The release freed a hold.
    Freed,
    /// The release found no hold.
    NotHeld,
    /// Refused, with the message.
    Refused(String),
    /// A fault kept the request from the store.
    NotApplied,
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            at,
            record,
            owner,
            call,
            answer,
            ..
        } = self;
        write!(f, "{at:?} {owner} {call:?} {record}: {answer:?}")
    }
}

impl From<&Standing> for Answer {
    fn from(standing: &Standing) -> Self {
        match standing {
            Standing::Held(grant) => Self::Held {
                token: grant.token,
                valid_until: grant.valid_until,
            },
            Standing::Waiting { .. } => Self::Waiting,
        }
    }
}

impl From<&Released> for Answer {
    fn from(released: &Released) -> Self {
        match released {
            Released::Freed => Self::Freed,
            Released::NotHeld => Self::NotHeld,
        }
    }
}

impl From<&Renewal> for Answer {
    fn from(renewal: &Renewal) -> Self {
        match renewal {
            Renewal::Good(until) => Self::Renewed(*until),
            Renewal::Lost(reason) => Self::Lost(reason.clone()),
            Renewal::Unknown(e) => e.into(),
        }
    }
}

impl From<&DriverError> for Answer {
    fn from(e: &DriverError) -> Self {
        Self::Refused(e.to_string())
    }
}
