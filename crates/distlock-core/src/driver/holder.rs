//! Who holds or waits, for people to read.

use std::fmt;
use std::time::{Duration, SystemTime};

use super::Mode;
use crate::token::FencingToken;

/// A holder or a waiter, as far as the engine knows it. For people to read; never used to decide who holds.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Holder {
    /// The owner as the engine stores it. Empty for a record that nobody owns: see [`is_nobody`](Self::is_nobody).
    pub owner: String,
    /// How it holds, or wants to hold, the key.
    pub mode: Mode,
    /// The token of an exclusive hold.
    pub token: Option<FencingToken>,
    /// The label of its client.
    pub label: Option<String>,
    /// Its reason.
    pub reason: Option<String>,
    /// Its host's name.
    pub host: Option<String>,
    /// Its process id, in its own PID namespace.
    pub pid: Option<u32>,
    /// Since when it holds or waits.
    pub since: Option<SystemTime>,
    /// How long the record will live without renewal.
    pub expires_in: Option<Duration>,
    /// Whether it belongs to this very client.
    pub here: bool,
}

impl Holder {
    /// A holder of whom only the stored owner and the mode are known.
    pub fn new(owner: impl Into<String>, mode: Mode) -> Self {
        Self {
            owner: owner.into(),
            mode,
            token: None,
            label: None,
            reason: None,
            host: None,
            pid: None,
            since: None,
            expires_in: None,
            here: false,
        }
    }
}

impl Holder {
    /// Whether this is a record that a former holder left behind to keep others out (`min_hold`, `once`), or the grace
    /// of a broken lock: nobody is at work.
    pub fn is_nobody(&self) -> bool {
        self.owner.is_empty()
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_nobody() {
            return f.write_str("nobody any more, but kept from others for some time");
        }
        match (&self.label, self.pid) {
            (Some(label), _) => one_line(f, label)?,
            (None, Some(pid)) => write!(f, "pid {pid}")?,
            (None, None) => write!(f, "{}", self.owner)?,
        }
        if let (Some(_), Some(pid)) = (&self.label, self.pid) {
            write!(f, " (pid {pid}")?;
            if let Some(host) = &self.host {
                write!(f, " on {host}")?;
            }
            f.write_str(")")?;
        } else if let Some(host) = &self.host {
            write!(f, " on {host}")?;
        }
        if let Some(reason) = &self.reason {
            f.write_str(": ")?;
            one_line(f, reason)?;
        }
        if self.here {
            f.write_str(" [held by this process]")?;
        }
        Ok(())
    }
}

/// Writes what a stranger chose to say so that it stays on one line of a log or a terminal.
fn one_line(f: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    for c in text.chars() {
        if c.is_control() {
            write!(f, "{}", c.escape_default())?;
        } else {
            write!(f, "{c}")?;
        }
    }
    Ok(())
}
