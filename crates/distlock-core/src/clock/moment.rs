//! Points in time.

use std::fmt;
use std::ops::Add;
use std::time::Duration;

/// A point on a [`Clock`](super::Clock): nanoseconds since the host's boot, or since a manual clock's start.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(pub(super) u64);

impl Moment {
    /// The start of the clock.
    pub const START: Moment = Moment(0);
    /// Later than every other moment.
    pub const FAR: Moment = Moment(u64::MAX);

    /// The moment that many nanoseconds after the clock's start.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the clock's start.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// The time from `earlier` to `self`; zero if `earlier` is later.
    pub fn since(self, earlier: Moment) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// `self` moved back, not before the clock's start.
    pub fn before(self, by: Duration) -> Moment {
        Moment(self.0.saturating_sub(nanos(by)))
    }
}

impl Add<Duration> for Moment {
    type Output = Moment;
    /// Saturates at [`Moment::FAR`].
    fn add(self, by: Duration) -> Moment {
        Moment(self.0.saturating_add(nanos(by)))
    }
}

impl fmt::Debug for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::FAR {
            f.write_str("far")
        } else {
            write!(f, "{:?}", Duration::from_nanos(self.0))
        }
    }
}

pub(super) fn nanos(d: Duration) -> u64 {
    u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)
}
