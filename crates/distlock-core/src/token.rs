//! Fencing tokens: numbers by which a store can refuse a writer that no longer holds the lock.

use std::fmt;

/// A number that comes with every exclusive grant and grows with each new holder of the key.
///
/// Send it along with every write, and let the store refuse a token smaller than the largest it has seen. That
/// protects the data when a holder is paused past its lease, which no lease can prevent (M. Kleppmann, "How to do
/// distributed locking", 2016). How far the growth is promised is said by
/// [`Promises::token`](crate::driver::Promises::token).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FencingToken(u64);

impl FencingToken {
    /// A token from the number that an engine or a store kept.
    pub const fn new(value: u64) -> Self {
        Self(value)
    }

    /// The number to send to the store.
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Display for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FencingToken({})", self.0)
    }
}

impl From<FencingToken> for u64 {
    fn from(token: FencingToken) -> u64 {
        token.0
    }
}

impl std::str::FromStr for FencingToken {
    type Err = std::num::ParseIntError;
    fn from_str(s: &str) -> Result<Self, Self::Err> {
        s.parse().map(Self)
    }
}
