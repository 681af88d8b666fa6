//! Who a claim belongs to, as engines store it.

use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};

use uuid::Uuid;

/// One contender: the client's random identity and a number that is unique within the client.
///
/// Written as `<uuid>:<n>`. No two claims ever share one, so an engine can tell a repeated request of the same
/// contender from a new one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OwnerId {
    /// The client, random per client.
    pub client: Uuid,
    /// The claim, counted within the client.
    pub n: u64,
}

impl fmt::Display for OwnerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.client, self.n)
    }
}

/// Allocates once.
impl From<OwnerId> for String {
    fn from(owner: OwnerId) -> Self {
        let mut digits = Uuid::encode_buffer();
        let client = owner.client.as_hyphenated().encode_lower(&mut digits);
        // A number has twenty digits at most.
        let mut text = Self::with_capacity(client.len() + 21);
        text.push_str(client);
        // Into memory: it cannot fail.
        let _ = fmt::Write::write_fmt(&mut text, format_args!(":{}", owner.n));
        text
    }
}

impl fmt::Debug for OwnerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for OwnerId {
    type Err = &'static str;

    fn from_str(s: &str) -> Result<Self, Self::Err> {
        let (client, n) = s.rsplit_once(':').ok_or("an owner is written <uuid>:<number>")?;
        Ok(Self {
            client: client.parse().map_err(|_| "the part before ':' is not a UUID")?,
            n: n.parse().map_err(|_| "the part after ':' is not a number")?,
        })
    }
}

/// Hands out the owners of one client.
#[derive(Debug)]
pub struct Owners {
    client: Uuid,
    next: AtomicU64,
}

impl Owners {
    /// A fresh identity.
    pub fn new() -> Self {
        Self {
            client: Uuid::new_v4(),
            next: AtomicU64::new(1),
        }
    }

    /// The client part.
    pub fn client(&self) -> Uuid {
        self.client
    }

    /// A contender that never existed before.
    pub fn next(&self) -> OwnerId {
        OwnerId {
            client: self.client,
            n: self.next.fetch_add(1, Ordering::Relaxed),
        }
    }
}

impl Default for Owners {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_reads_back_as_written() {
        let owner = Owners::new().next();
        assert_eq!(owner.to_string().parse::<OwnerId>(), Ok(owner));
        assert!("x".parse::<OwnerId>().is_err());
    }
}
