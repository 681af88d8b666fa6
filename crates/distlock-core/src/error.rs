//! The errors that users see.

use std::convert::Infallible;
use std::error::Error as StdError;
use std::fmt;
use std::time::Duration;

use crate::driver::{DriverError, DriverErrorKind, Holder, LostReason, Reached, Refusal};
use crate::key::Key;

/// What went wrong, for programs to branch on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// Somebody else holds the lock and the caller did not want to wait.
    Busy,
    /// Somebody else held the lock for all of the wait.
    Timeout,
    /// The hold is over although nobody released it.
    Lost,
    /// There is nothing to renew, release or resume.
    NotHeld,
    /// Waiting could never end: the caller's own scope or owner holds the lock.
    WouldDeadlock,
    /// The key is in use as another kind of lock.
    KindMismatch,
    /// The engine cannot do this.
    Unsupported,
    /// The key is not allowed.
    InvalidKey,
    /// A setting is not allowed; the message names the value and the range.
    InvalidConfig,
    /// The engine could not be reached; nothing was acquired.
    Unavailable,
    /// The engine did not answer in time and may have applied the request; clean-up goes on in the background.
    OutcomeUnknown,
    /// Too few members of a quorum agreed; nothing was acquired.
    NoQuorum,
    /// The client was shut down.
    Closed,
}

impl ErrorKind {
    /// A stable word for machines.
    pub fn word(self) -> &'static str {
        match self {
            Self::Busy => "busy",
            Self::Timeout => "timeout",
            Self::Lost => "lost",
            Self::NotHeld => "not_held",
            Self::WouldDeadlock => "would_deadlock",
            Self::KindMismatch => "kind_mismatch",
            Self::Unsupported => "unsupported",
            Self::InvalidKey => "invalid_key",
            Self::InvalidConfig => "invalid_config",
            Self::Unavailable => "unavailable",
            Self::OutcomeUnknown => "outcome_unknown",
            Self::NoQuorum => "no_quorum",
            Self::Closed => "closed",
        }
    }
}

/// Any failure of distlock: one type, told apart by [`kind`](Error::kind).
pub struct Error(Box<Inner>);

struct Inner {
    kind: ErrorKind,
    message: String,
    key: Option<Key>,
    engine: Option<&'static str>,
    holder: Option<Holder>,
    reason: Option<LostReason>,
    refusal: Option<Refusal>,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

impl Error {
    /// An error of this kind that says this.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        let message = message.into();
        Self(Box::new(Inner {
            kind,
            message,
            key: None,
            engine: None,
            holder: None,
            reason: None,
            refusal: None,
            source: None,
        }))
    }

    /// The hold was lost, for this reason.
    pub fn lost(reason: LostReason) -> Self {
        let mut e = Self::new(ErrorKind::Lost, format!("the lock was lost: {reason}"));
        e.0.reason = Some(reason);
        e
    }

    /// What a driver's error means to the user.
    pub fn from_driver(e: DriverError) -> Self {
        let kind = match (&e.kind, e.reached) {
            (DriverErrorKind::Unavailable, Reached::Maybe) => ErrorKind::OutcomeUnknown,
            (DriverErrorKind::Unavailable, _) => ErrorKind::Unavailable,
            (DriverErrorKind::Closed, _) => ErrorKind::Closed,
            (DriverErrorKind::Refused(refusal), _) => match refusal {
                Refusal::Unsupported(_) => ErrorKind::Unsupported,
                Refusal::InvalidKey(_) => ErrorKind::InvalidKey,
                Refusal::InvalidConfig(_) => ErrorKind::InvalidConfig,
                Refusal::KindMismatch { .. } => ErrorKind::KindMismatch,
                Refusal::TokenMismatch { .. } => ErrorKind::NotHeld,
                Refusal::NoQuorum(_) => ErrorKind::NoQuorum,
            },
        };
        let message = match kind {
            ErrorKind::OutcomeUnknown => {
                format!("the engine did not answer, and may have applied the request: {e}")
            }
            ErrorKind::Unavailable => format!("the engine is unavailable: {e}"),
            _ => e.to_string(),
        };
        let mut out = Self::new(kind, message);
        if let DriverErrorKind::Refused(refusal) = e.kind {
            out.0.refusal = Some(refusal);
        }
        out.0.source = e.source;
        out
    }

    /// Names the lock.
    #[must_use]
    pub fn with_key(mut self, key: &Key) -> Self {
        self.0.key.get_or_insert_with(|| key.clone());
        self
    }

    /// Names the engine.
    #[must_use]
    pub fn with_engine(mut self, engine: &'static str) -> Self {
        self.0.engine.get_or_insert(engine);
        self
    }

    /// Names the present holder, where known.
    #[must_use]
    pub fn with_holder(mut self, holder: Option<Holder>) -> Self {
        self.0.holder = holder;
        self
    }

    /// Says why the hold is over.
    #[must_use]
    pub fn with_reason(mut self, reason: LostReason) -> Self {
        self.0.reason = Some(reason);
        self
    }

    /// Names the cause.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.0.source = Some(source.into());
        self
    }

    /// What went wrong, for programs.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// The lock, where one is concerned.
    pub fn key(&self) -> Option<&Key> {
        self.0.key.as_ref()
    }

    /// The engine, where one is concerned.
    pub fn engine(&self) -> Option<&'static str> {
        self.0.engine
    }

    /// The holder that was in the way, where known.
    pub fn holder(&self) -> Option<&Holder> {
        self.0.holder.as_ref()
    }

    /// What the engine refused, where it did, with its details.
    pub fn refusal(&self) -> Option<&Refusal> {
        self.0.refusal.as_ref()
    }

    /// Why the hold was lost, for [`ErrorKind::Lost`], and for [`ErrorKind::NotHeld`] where it is known.
    pub fn lost_reason(&self) -> Option<&LostReason> {
        self.0.reason.as_ref()
    }

    /// The message without key and engine.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// Whether somebody else's hold was the obstacle: [`Busy`](ErrorKind::Busy) or [`Timeout`](ErrorKind::Timeout).
    pub fn is_contention(&self) -> bool {
        matches!(self.0.kind, ErrorKind::Busy | ErrorKind::Timeout)
    }

    pub(crate) fn timeout(waited: Duration, ahead: Option<u32>) -> Self {
        // For people: microseconds of a wait mean nothing.
        let waited = Duration::from_millis(u64::try_from(waited.as_millis()).unwrap_or(u64::MAX));
        let mut message = format!("not obtained within {waited:?}");
        if let Some(ahead) = ahead.filter(|n| *n > 0) {
            message.push_str(&format!(" ({ahead} ahead in line)"));
        }
        Self::new(ErrorKind::Timeout, message)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(key) = &self.0.key {
            write!(f, "lock {key:?}: ")?;
        }
        f.write_str(&self.0.message)?;
        if let Some(holder) = &self.0.holder {
            write!(f, "; held by {holder}")?;
        }
        if let Some(engine) = self.0.engine {
            write!(f, " [{engine}]")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Error({:?}: {self}", self.0.kind)?;
        if let Some(source) = &self.0.source {
            write!(f, ", caused by {source:?}")?;
        }
        f.write_str(")")
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source.as_deref().map(|e| e as &(dyn StdError + 'static))
    }
}

/// Why `run` did not give the body's value.
///
/// `T` is the body's value type in the blocking forms, which cannot stop a body and so may have its value although
/// the lock was lost; in the async form it is [`Infallible`].
#[derive(Debug)]
pub enum RunError<E, T = Infallible> {
    /// The lock was not obtained; the body never ran.
    Lock(Error),
    /// The lock was lost while the body ran. An async body was dropped at its next await.
    Lost {
        /// Why.
        reason: LostReason,
        /// What the body returned, if it ran to its end.
        value: Option<T>,
    },
    /// The body's own error. The lock was released.
    Body(E),
}

impl<E: fmt::Display, T> fmt::Display for RunError<E, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lock(e) => e.fmt(f),
            Self::Lost { reason, .. } => write!(f, "the lock was lost while the body ran: {reason}"),
            Self::Body(e) => e.fmt(f),
        }
    }
}

impl<E: StdError + 'static, T: fmt::Debug> StdError for RunError<E, T> {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match self {
            Self::Lock(e) => e.source(),
            Self::Lost { .. } => None,
            Self::Body(e) => e.source(),
        }
    }
}

impl<E, T> From<Error> for RunError<E, T> {
    fn from(e: Error) -> Self {
        Self::Lock(e)
    }
}
