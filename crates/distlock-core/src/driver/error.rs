//! Why an engine did not do what it was asked.

use std::error::Error as StdError;
use std::fmt;

use crate::token::FencingToken;

/// Why a driver could not answer.
#[derive(Debug)]
pub struct DriverError {
    /// What kind of trouble.
    pub kind: DriverErrorKind,
    /// Whether the engine may have applied the request.
    pub reached: Reached,
    /// Whether trying again later can help.
    pub retry: bool,
    /// The cause, without secrets.
    pub source: Option<Box<dyn StdError + Send + Sync>>,
}

/// The kinds of [`DriverError`].
#[derive(Debug)]
#[non_exhaustive]
pub enum DriverErrorKind {
    /// The engine could not be reached, or cannot serve now.
    Unavailable,
    /// The engine, or the driver on its behalf, will not do this.
    Refused(Refusal),
    /// The claim or the driver has ended.
    Closed,
}

/// Why an engine refuses.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// Not supported by this engine; says what.
    Unsupported(String),
    /// The engine cannot store this key; says why.
    InvalidKey(String),
    /// A setting is out of the engine's range; names the value and the range.
    InvalidConfig(String),
    /// The key is in use as another kind of lock, or by another product.
    KindMismatch {
        /// What the record is.
        have: String,
        /// What was asked for.
        want: String,
    },
    /// A `break` named a token that is not the present holder's.
    TokenMismatch {
        /// The present holder's token.
        have: Option<FencingToken>,
    },
    /// Not enough members of a quorum agreed; one line for each member's vote.
    NoQuorum(Vec<String>),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unsupported(what) => write!(f, "not supported: {what}"),
            Self::InvalidKey(why) => write!(f, "invalid key: {why}"),
            Self::InvalidConfig(why) => f.write_str(why),
            Self::KindMismatch { have, want } => write!(f, "the key is in use as {have}, not as {want}"),
            Self::TokenMismatch { have: Some(have) } => write!(f, "the present holder's token is {have}"),
            Self::TokenMismatch { have: None } => f.write_str("the present holder has no token"),
            Self::NoQuorum(votes) => write!(f, "no quorum ({})", votes.join("; ")),
        }
    }
}

/// Whether the engine may have applied a request that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reached {
    /// It was not sent, or was refused.
    No,
    /// Nobody knows. Only this becomes `OutcomeUnknown`, and is chased.
    Maybe,
    /// It was applied.
    Yes,
}

impl DriverError {
    /// The engine could not be reached or did not answer; worth trying again.
    pub fn unavailable(reached: Reached, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Self {
            kind: DriverErrorKind::Unavailable,
            reached,
            retry: true,
            source: Some(source.into()),
        }
    }

    /// The engine will not do this, now or later.
    pub fn refused(refusal: Refusal) -> Self {
        Self {
            kind: DriverErrorKind::Refused(refusal),
            reached: Reached::No,
            retry: false,
            source: None,
        }
    }

    /// The claim or driver has ended.
    pub fn closed() -> Self {
        Self {
            kind: DriverErrorKind::Closed,
            reached: Reached::No,
            retry: false,
            source: None,
        }
    }
}

impl fmt::Display for DriverError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.kind, &self.source) {
            (DriverErrorKind::Unavailable, Some(source)) => write!(f, "{source}"),
            (DriverErrorKind::Unavailable, None) => f.write_str("the engine could not be reached"),
            (DriverErrorKind::Refused(refusal), _) => fmt::Display::fmt(refusal, f),
            (DriverErrorKind::Closed, _) => f.write_str("closed"),
        }
    }
}

impl StdError for DriverError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.source.as_deref().map(|e| e as &(dyn StdError + 'static))
    }
}
