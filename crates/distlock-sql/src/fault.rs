//! What can go wrong with a statement, and what it means.

use std::error::Error as StdError;

use distlock_core::driver::{DriverError, Reached, Refusal};

use crate::config::invalid;

type Source = Box<dyn StdError + Send + Sync>;

/// Why a statement has no answer.
#[derive(Debug)]
pub(crate) enum Fault {
    /// It was rolled back for the sake of another one (deadlock, serialization, lock wait): asking again helps.
    Conflict(Source),
    /// The table is not there.
    NoTable(Source),
    /// This server does not take writes.
    ReadOnly(Source),
    /// There is no connection; nothing was sent.
    Unsent(Source),
    /// The connection ended, or did not answer in time, after the statement was sent.
    Unanswered(Source),
    /// The server answered that it cannot do this now.
    Unable(Source),
    /// The server will never do this, as things are configured.
    Denied(String),
}

impl Fault {
    /// Whether the connection is of no more use.
    pub(crate) fn ends_connection(&self) -> bool {
        matches!(self, Self::Unsent(_) | Self::Unanswered(_) | Self::ReadOnly(_))
    }

    /// What the core is told.
    pub(crate) fn into_error(self) -> DriverError {
        match self {
            Self::Unanswered(e) => DriverError::unavailable(Reached::Maybe, e),
            Self::ReadOnly(e) => {
                let fix =
                    "this server takes no writes; name the primary, or all hosts of its group, in the URL";
                DriverError::unavailable(Reached::No, format!("{fix} ({e})"))
            }
            Self::Conflict(e) | Self::NoTable(e) | Self::Unsent(e) | Self::Unable(e) => {
                DriverError::unavailable(Reached::No, e)
            }
            Self::Denied(why) => invalid(why),
        }
    }
}

/// The driver's refusal of something that it does not do.
pub(crate) fn unsupported(what: impl Into<String>) -> DriverError {
    DriverError::refused(Refusal::Unsupported(what.into()))
}
