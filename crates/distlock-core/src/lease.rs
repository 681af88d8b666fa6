//! Leases that change hands: a hold as a string that another process can go on with.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use crate::behalf::answer_to;
use crate::client::Client;
use crate::driver::{Grant, Hold, Life, Line, Mode, Order, Want};
use crate::error::{Error, ErrorKind};
use crate::guard::Guard;
use crate::hold::{Held, HoldState};
use crate::key::Key;
use crate::owner::OwnerId;
use crate::settings::Settings;
use crate::token::FencingToken;

/// A hold without a guard: what another process needs to renew or release it.
///
/// It is written as one line of text (`Display`, `FromStr`). Whoever has the text can act as the owner: treat it
/// like a password. The lock ends when its TTL runs out, unless somebody [resumes](Client::resume) it in time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    key: Key,
    owner: OwnerId,
    mode: Mode,
    mark: u64,
    token: Option<FencingToken>,
    ttl: Duration,
}

impl Lease {
    /// The lock's key.
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// The fencing token of the hold.
    pub fn token(&self) -> Option<FencingToken> {
        self.token
    }

    /// The length of the lease at each renewal.
    pub fn ttl(&self) -> Duration {
        self.ttl
    }

    /// The owner as the engine stores it.
    pub fn owner(&self) -> OwnerId {
        self.owner
    }

    /// How the key is held.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// The same lease, renewed for another time from the next renewal on.
    #[must_use]
    pub fn with_ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// What an owner has, or may have, at the engine: to renew or release it.
    pub fn new(key: Key, owner: OwnerId, mode: Mode, ttl: Duration) -> Self {
        Self {
            key,
            owner,
            mode,
            mark: 0,
            token: None,
            ttl,
        }
    }

    /// A contender's place at the engine, held or not.
    pub(crate) fn of_place(want: &Want) -> Self {
        Self::new(want.key.clone(), want.owner, want.mode, want.ttl)
    }

    /// The contender again, as one that only renews and releases.
    fn want(&self) -> Want {
        Want {
            key: self.key.clone(),
            owner: self.owner,
            mode: self.mode,
            order: Order::Any,
            line: Line::Never,
            life: Life::Lease,
            ttl: self.ttl,
            label: None,
            reason: None,
            bell: Default::default(),
        }
    }

    /// The hold as drivers see it.
    pub(crate) fn hold(&self) -> Hold {
        Hold {
            want: Arc::new(self.want()),
            mark: self.mark,
            ttl: self.ttl,
            floor: None,
        }
    }
}

impl fmt::Display for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mode = match self.mode {
            Mode::Mutex => "m".to_owned(),
            Mode::Write => "w".to_owned(),
            Mode::Read => "r".to_owned(),
            Mode::Slot { of } => format!("s{of}"),
        };
        let token = self.token.map_or(String::from("-"), |t| t.to_string());
        let ttl = self.ttl.as_nanos();
        write!(
            f,
            "dl1/{}/{}/{mode}/{}/{token}/{ttl}/{}",
            self.owner.client, self.owner.n, self.mark, self.key
        )
    }
}

impl FromStr for Lease {
    type Err = Error;

    fn from_str(s: &str) -> Result<Self, Error> {
        parse(s).ok_or_else(|| {
            Error::new(
                ErrorKind::InvalidConfig,
                "this is not a lease handle (dl1/…), or it was cut short",
            )
        })
    }
}

fn parse(s: &str) -> Option<Lease> {
    let mut parts = s.trim_end_matches(['\r', '\n']).splitn(8, '/');
    if parts.next()? != "dl1" {
        return None;
    }
    let owner = OwnerId {
        client: parts.next()?.parse().ok()?,
        n: parts.next()?.parse().ok()?,
    };
    let mode = match parts.next()? {
        "m" => Mode::Mutex,
        "w" => Mode::Write,
        "r" => Mode::Read,
        slot => Mode::Slot {
            of: slot.strip_prefix('s')?.parse().ok()?,
        },
    };
    let mark = parts.next()?.parse().ok()?;
    let token = match parts.next()? {
        "-" => None,
        n => Some(n.parse().ok()?),
    };
    let ttl = Duration::from_nanos(parts.next()?.parse().ok()?);
    let key = Key::new(parts.next()?).ok()?;
    Some(Lease {
        key,
        owner,
        mode,
        mark,
        token,
        ttl,
    })
}

impl Guard {
    /// Turns the hold into a lease that outlives this process: renewal stops, nothing is released.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidConfig`] unless the lock was taken alone and [`detachable`](crate::Lock::detachable);
    /// [`ErrorKind::Lost`]. The guard is dropped, and so releases, in both cases.
    pub fn detach(self) -> Result<Lease, Error> {
        let mut leases = if self.holds().len() == 1 {
            self.detach_all()?
        } else {
            Vec::new()
        };
        leases.pop().ok_or_else(|| {
            let why = "several locks taken together are no single lease; `detach_all` gives one for each";
            Error::new(ErrorKind::InvalidConfig, why)
        })
    }

    /// As [`detach`](Self::detach), for locks that were taken together: a lease for each, in key order.
    ///
    /// # Errors
    /// As [`detach`](Self::detach), unless all were [`detachable`](crate::Lock::detachable).
    pub fn detach_all(self) -> Result<Vec<Lease>, Error> {
        self.ensure()?;
        if let Some(hold) = self.holds().iter().find(|hold| hold.want.life != Life::Lease) {
            let why = "the lock was not taken with `detachable`, so it ends with this process";
            return Err(Error::new(ErrorKind::InvalidConfig, why).with_key(&hold.want.key));
        }
        let leases = self.holds().iter().map(|hold| {
            let Hold { want, mark, ttl, .. } = hold.hold();
            let lease = Lease {
                mark,
                token: hold.token,
                ttl,
                ..Lease::of_place(&want)
            };
            // The claim leaves without a release; the permit goes to the next local waiter, who will wait at the
            // engine.
            drop(hold.take(hold.client.now()));
            lease
        });
        Ok(leases.collect())
    }
}

impl Client {
    /// Goes on with a lease: renews it and gives a guard for it. Never acquires.
    ///
    /// # Errors
    /// [`ErrorKind::NotHeld`] when the lease is over; [`ErrorKind::Unavailable`] or [`ErrorKind::OutcomeUnknown`].
    ///
    /// # Cancel safety
    /// Safe: the lease may have been renewed.
    pub async fn resume(&self, lease: &Lease) -> Result<Guard, Error> {
        self.0.check_open()?;
        let client = self.0.clone();
        let hold = lease.hold();
        let want = Arc::new(Want {
            label: client.engine.label().cloned(),
            ..lease.want()
        });
        let name = |e: Error| e.with_key(&lease.key).with_engine(self.0.observe.engine());
        let answer = {
            let client = client.clone();
            let asked = async move { crate::guard::ask(&*client.driver, hold).await };
            self.0.on_runtime(asked).await?
        };
        let valid_until = answer_to(answer).map_err(name)?;
        let claim = client.driver.claim(want.clone());
        let held = Held {
            claim: claim.map_err(|e| name(Error::from_driver(e)))?,
            permit: None,
            unresolved: false,
        };
        let grant = Grant {
            token: lease.token,
            valid_until,
            mark: lease.mark,
        };
        let now = client.now();
        let hold = HoldState::new(client.clone(), want, held, grant, now, &Settings::default());
        client.keeper.watch(&hold, now);
        client.observe.granted(&lease.key, Duration::ZERO);
        Ok(Guard::new(hold.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_reads_back_as_written() {
        for mode in [Mode::Mutex, Mode::Read, Mode::Write, Mode::Slot { of: 3 }] {
            let lease = Lease {
                key: Key::new("a/b:c d").unwrap(),
                owner: crate::Owners::new().next(),
                mode,
                mark: 7,
                token: Some(FencingToken::new(42)),
                ttl: Duration::from_millis(1500),
            };
            assert_eq!(lease.to_string().parse::<Lease>().unwrap(), lease);
        }
        assert!("dl1/x".parse::<Lease>().is_err());
    }
}
