//! Examining a deployment: what an engine finds about itself, and what two clients find out by using it.

use std::borrow::Cow;
use std::fmt;
use std::time::{Duration, SystemTime};

use futures_util::future::join;

use crate::client::Client;
use crate::driver::Wakes;
use crate::error::Error;
use crate::key::Key;
use crate::settings::Wait;

/// One thing that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// How bad it is.
    pub severity: Severity,
    /// A stable word for machines, such as `redis-eviction`.
    pub id: Cow<'static, str>,
    /// What was found, with the value, and what that does to locks.
    pub what: String,
    /// What to change.
    pub fix: String,
}

impl Finding {
    /// A finding.
    pub fn new(
        severity: Severity,
        id: impl Into<Cow<'static, str>>,
        what: impl Into<String>,
        fix: impl Into<String>,
    ) -> Self {
        Self {
            severity,
            id: id.into(),
            what: what.into(),
            fix: fix.into(),
        }
    }
}

/// How bad a [`Finding`] is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Good to know.
    Info,
    /// Locks can be lost in a way that the setting could prevent.
    Warning,
    /// Locks will be lost, or do not work.
    Error,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Info => "info",
            Self::Warning => "warning",
            Self::Error => "error",
        })
    }
}

/// What two clients of a deployment saw when they used it.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Probe {
    /// Taking a free lock.
    pub acquire: Spread,
    /// Asking whether it is still held, which renews it.
    pub renew: Spread,
    /// Giving it back.
    pub release: Spread,
    /// From the call that releases a lock to its grant to another client, which waits for it. `None` if that
    /// did not happen within [`HAND_OFF_LIMIT`].
    pub hand_off: Option<Duration>,
    /// The engine's clock against this host's, where the engine has one that can be asked.
    pub clock: Option<ClockOffset>,
    /// What was not as it should be.
    pub findings: Vec<Finding>,
}

/// How long something took, in a few tries after the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spread {
    /// The median.
    pub typical: Duration,
    /// The longest.
    pub worst: Duration,
}

impl Spread {
    fn of(mut times: Vec<Duration>) -> Self {
        times.sort_unstable();
        Self {
            typical: times.get(times.len() / 2).copied().unwrap_or_default(),
            worst: times.last().copied().unwrap_or_default(),
        }
    }
}

/// How far two clocks are apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockOffset {
    /// Whether the engine's clock is ahead of this host's.
    pub ahead: bool,
    /// By how much.
    pub by: Duration,
    /// How far off that may be: half of the time that the question took.
    pub within: Duration,
}

impl fmt::Display for ClockOffset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let way = if self.ahead { "ahead" } else { "behind" };
        write!(f, "{:.1?} {way} (± {:.1?})", self.by, self.within)
    }
}

/// A waiter that is not woken within this is late on an engine that notifies.
const LATE: Duration = Duration::from_secs(2);
/// How long [`probe`] waits for a lock to change hands.
pub const HAND_OFF_LIMIT: Duration = Duration::from_secs(8);
/// How long the waiter gets to be seen waiting. Some engines do not list those that wait.
const SETTLE: Duration = Duration::from_millis(300);
/// How often each step is timed.
const ROUNDS: usize = 5;
/// More than this between the clocks confuses people who read since when a lock is held.
const CLOCKS_APART: Duration = Duration::from_secs(1);

/// Uses a deployment with two clients of it, on a key of its own: takes, renews, refuses, hands over, releases.
///
/// The two must be different clients (not clones), so that they meet at the engine and not in this process.
///
/// # Errors
/// What [`Lock::acquire`](crate::Lock::acquire) and [`Guard::verify`](crate::Guard::verify) say; that the engine
/// answers and is wrong is a [`Finding`].
///
/// # Cancel safety
/// Safe: what is held is released in the background.
pub async fn probe(one: &Client, other: &Client) -> Result<Probe, Error> {
    let key = Key::new(format!("distlock-doctor:{}", one.id()))?;
    let clock = one.clock().clone();
    let mut findings = Vec::new();
    let (mut acquire, mut renew, mut release) = (Vec::new(), Vec::new(), Vec::new());
    // The first round connects, subscribes, prepares statements; it is not like the later ones.
    for round in 0..=ROUNDS {
        let start = clock.now();
        let guard = one
            .mutex(&key)
            .reason("doctor")
            .wait(HAND_OFF_LIMIT)
            .acquire()
            .await?;
        let taken = clock.now();
        guard.verify().await?;
        let renewed = clock.now();
        guard.release().await?;
        if round > 0 {
            acquire.push(taken.since(start));
            renew.push(renewed.since(taken));
            release.push(clock.now().since(renewed));
        }
    }
    let hand_off = hand_off(one, other, &key, &mut findings).await?;
    if one.capabilities().wakes == Wakes::Notified && hand_off.is_none_or(|took| took > LATE) {
        let what = match hand_off {
            Some(took) => format!("a waiter was woken {took:.1?} after the release"),
            None => format!("a waiter was not woken within {HAND_OFF_LIMIT:?} of the release"),
        };
        let fix =
            "look whether notices reach the clients: a proxy in between, a firewall, a right that is missing";
        findings.push(Finding::new(Severity::Warning, "slow-hand-off", what, fix));
    }
    let offset = clock_offset(one).await?;
    if let Some(offset) = offset
        && offset.by > offset.within + CLOCKS_APART
    {
        let what = format!(
            "the engine's clock is {offset} of this host's: leases are not concerned, the times that `ls` shows are"
        );
        let fix = "keep both by NTP";
        findings.push(Finding::new(Severity::Info, "clock-offset", what, fix));
    }
    Ok(Probe {
        acquire: Spread::of(acquire),
        renew: Spread::of(renew),
        release: Spread::of(release),
        hand_off,
        clock: offset,
        findings,
    })
}

/// One holds, the other is refused, waits, and gets the lock with a larger token.
async fn hand_off(
    one: &Client,
    other: &Client,
    key: &Key,
    findings: &mut Vec<Finding>,
) -> Result<Option<Duration>, Error> {
    let clock = one.clock();
    let guard = one.mutex(key).wait(HAND_OFF_LIMIT).acquire().await?;
    let token = guard.token();
    if other.mutex(key).wait(Wait::Try).try_acquire().await?.is_some() {
        let what = "a lock that one client held was given to another";
        let fix = "do the two clients reach the same servers? A balancer over independent servers is none";
        findings.push(Finding::new(Severity::Error, "no-exclusion", what, fix));
    }
    let waits = async {
        let granted = other.mutex(key).wait(HAND_OFF_LIMIT).acquire().await;
        (granted, clock.now())
    };
    let lets_go = async {
        let until = clock.now() + SETTLE;
        while clock.now() < until && one.inspect(key).await.is_ok_and(|lock| lock.waiters.is_empty()) {
            clock.sleep(SETTLE / 30).await;
        }
        let start = clock.now();
        (guard.release().await, start)
    };
    let ((granted, at), (released, start)) = join(waits, lets_go).await;
    released?;
    let next = match granted {
        Ok(next) => next,
        Err(e) if e.is_contention() => return Ok(None),
        Err(e) => return Err(e),
    };
    if next.token() <= token && token.is_some() {
        let what = format!(
            "the next holder's token, {:?}, is not larger than {token:?}",
            next.token()
        );
        let fix = "do not rely on fencing here; report it";
        findings.push(Finding::new(Severity::Error, "token-stood-still", what, fix));
    }
    next.release().await?;
    Ok(Some(at.since(start)))
}

async fn clock_offset(client: &Client) -> Result<Option<ClockOffset>, Error> {
    let clock = client.clock();
    let (before, start) = (SystemTime::now(), clock.now());
    let Some(theirs) = client.engine_time().await? else {
        return Ok(None);
    };
    let within = clock.now().since(start) / 2;
    let ours = before + within;
    let (ahead, by) = match theirs.duration_since(ours) {
        Ok(by) => (true, by),
        Err(e) => (false, e.duration()),
    };
    Ok(Some(ClockOffset { ahead, by, within }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Memory;

    async fn probed(memory: &Memory, late: impl FnOnce(&Client)) -> Probe {
        let client = || Client::builder().memory(memory).unwrap();
        let (one, other) = (client(), client());
        late(&other);
        probe(&one, &other).await.unwrap()
    }

    #[tokio::test]
    async fn a_good_engine_gives_figures_and_no_findings() {
        let seen = probed(&Memory::new(), |_| {}).await;
        assert_eq!(seen.findings, []);
        assert!(seen.hand_off.is_some_and(|took| took < LATE));
        assert!(seen.acquire.typical <= seen.acquire.worst && !seen.renew.worst.is_zero());
    }

    #[tokio::test]
    async fn two_engines_that_are_taken_for_one_are_found_out() {
        let client = || Client::builder().memory(&Memory::new()).unwrap();
        let seen = probe(&client(), &client()).await.unwrap();
        assert_eq!(seen.findings[0].id, "no-exclusion");
        assert_eq!(seen.findings[0].severity, Severity::Error);
    }
}
