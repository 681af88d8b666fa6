//! The settings of one lock, and their checks.

use std::sync::Arc;
use std::time::Duration;

use crate::behalf::Listener;
use crate::driver::{Kind, Life, MAX_TTL, Mode, Order, Orders, Promises, TokenPromise};
use crate::error::{Error, ErrorKind};
use crate::reentrant::Owner;

/// How long a caller waits for a lock that somebody else holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// Not at all: one look of its own at the engine, past any local line.
    Try,
    /// At most this long, from the call to the grant.
    For(Duration),
    /// As long as it takes, with a notice each ten seconds.
    Forever,
}

impl From<Duration> for Wait {
    fn from(d: Duration) -> Self {
        Self::For(d)
    }
}

/// Whether the watchdog renews the lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Renew {
    /// At a third of the TTL, until the release, the loss or `max_hold`.
    #[default]
    Auto,
    /// Never: the lock is lost when its TTL runs out, unless [`Guard::extend`](crate::Guard::extend) is called.
    Never,
}

/// The default TTL.
pub(crate) const DEFAULT_TTL: Duration = Duration::from_secs(30);

#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) ttl: Option<Duration>,
    pub(crate) wait: Wait,
    pub(crate) max_hold: Option<Duration>,
    pub(crate) min_hold: Duration,
    pub(crate) expect: Option<Duration>,
    pub(crate) order: Order,
    pub(crate) renew: Renew,
    pub(crate) reason: Option<Arc<str>>,
    pub(crate) owner: Option<Owner>,
    pub(crate) fenced: bool,
    pub(crate) life: Life,
    /// Another label than the client's.
    pub(crate) label: Option<Arc<str>>,
    /// In whose name, if not the client's own.
    pub(crate) behalf: Option<uuid::Uuid>,
    pub(crate) listener: Option<Listener>,
    /// The window of a `once`: a record may stay behind the release that long.
    pub(crate) window: Option<Duration>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            ttl: None,
            wait: Wait::Forever,
            max_hold: None,
            min_hold: Duration::ZERO,
            expect: None,
            order: Order::Any,
            renew: Renew::Auto,
            reason: None,
            owner: None,
            fenced: false,
            life: Life::Process,
            label: None,
            behalf: None,
            listener: None,
            window: None,
        }
    }
}

impl Settings {
    pub(crate) fn renews(&self) -> bool {
        self.renew == Renew::Auto
    }

    /// Refuses what cannot be kept, before any I/O.
    pub(crate) fn check(&self, ttl: Duration, mode: Mode, promises: &Promises) -> Result<(), Error> {
        if let Some(window) = self.window {
            self.supported(mode, promises)?;
            in_range("window", window, promises)?;
            if self.life == Life::Lease && ttl != window {
                let why = format!("ttl {ttl:?} is not the window {window:?}, which it is with OnCrash::Skip");
                return Err(Error::new(ErrorKind::InvalidConfig, why));
            }
        }
        check_ttl(ttl, promises)?;
        if let Wait::For(d) = self.wait {
            at_most("wait", d)?;
        }
        if let Some(d) = self.max_hold {
            at_most("max_hold", d)?;
            if d.is_zero() {
                return Err(Error::new(
                    ErrorKind::InvalidConfig,
                    "max_hold 0ns is not in 1ns to 366 days",
                ));
            }
            if self.min_hold > d && self.window.is_none() {
                let why = format!("min_hold {:?} is longer than max_hold {d:?}", self.min_hold);
                return Err(Error::new(ErrorKind::InvalidConfig, why));
            }
        }
        at_most("min_hold", self.min_hold)?;
        at_most("expect", self.expect.unwrap_or_default())?;
        if mode == (Mode::Slot { of: 0 }) {
            return Err(Error::new(
                ErrorKind::InvalidConfig,
                "permits 0 is not in 1 to 4294967295",
            ));
        }
        self.supported(mode, promises)
    }

    fn supported(&self, mode: Mode, promises: &Promises) -> Result<(), Error> {
        let missing = if mode.kind() == Kind::ReadWrite && !promises.shared {
            "read/write locks"
        } else if matches!(mode, Mode::Slot { .. }) && !promises.slots {
            "semaphores"
        } else if self.order == Order::Fifo && promises.order == Orders::Any {
            "Order::Fifo"
        } else if self.fenced && promises.token == TokenPromise::None {
            "fencing tokens"
        } else if self.fenced && !mode.is_exclusive() {
            return Err(Error::new(
                ErrorKind::InvalidConfig,
                "only exclusive locks can be fenced",
            ));
        } else if self.life == Life::Lease && !promises.lease_records {
            "leases that outlive their process (detachable)"
        } else if self.window.is_some() && !promises.keep {
            "once"
        } else if !self.min_hold.is_zero() && !promises.keep {
            "min_hold"
        } else {
            return Ok(());
        };
        Err(Error::new(
            ErrorKind::Unsupported,
            format!("{missing}: not supported by this engine"),
        )
        .with_engine(promises.engine))
    }
}

/// Gives the TTL back if the engine offers it.
pub(crate) fn check_ttl(ttl: Duration, promises: &Promises) -> Result<Duration, Error> {
    in_range("ttl", ttl, promises)?;
    Ok(ttl)
}

/// Refuses a lifetime of a record that the engine does not offer.
fn in_range(name: &str, d: Duration, promises: &Promises) -> Result<(), Error> {
    let (least, most) = (*promises.ttl.start(), (*promises.ttl.end()).min(MAX_TTL));
    if (least..=most).contains(&d) {
        return Ok(());
    }
    let why = format!("{name} {d:?} is not in {least:?} to {}", days(most));
    Err(Error::new(ErrorKind::InvalidConfig, why))
}

/// The most that is kept of a label or a reason, in bytes.
const SAYING: usize = 1024;

/// A label or reason as it is kept: cut, visibly, if it is far too long for people to read.
pub(crate) fn saying(text: String) -> Arc<str> {
    if text.len() <= SAYING {
        return text.into();
    }
    let end = (0..=SAYING).rev().find(|at| text.is_char_boundary(*at));
    format!("{}…", &text[..end.unwrap_or(0)]).into()
}

pub(crate) fn at_most(name: &str, d: Duration) -> Result<(), Error> {
    if d <= MAX_TTL {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::InvalidConfig,
        format!("{name} {d:?} is not in 0 to {}", days(MAX_TTL)),
    ))
}

fn days(d: Duration) -> String {
    let days = d.as_secs() / 86_400;
    if days >= 2 {
        format!("{days} days")
    } else {
        format!("{d:?}")
    }
}
