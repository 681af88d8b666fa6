//! The bodies of the API. Times are strings with a unit when they are asked for, milliseconds when they are told.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use distlock_core::clock::Moment;
use distlock_core::driver::{Holder, Kind, LockInfo, Mode, Order};
use distlock_core::{Error, ErrorKind, Key, Lease, OwnerId};
use serde::{Deserialize, Deserializer, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::mask::masked;

/// A duration, written `30s`, `1m 30s`, `250ms`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Time(pub(crate) Duration);

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(from)?;
        humantime::parse_duration(&text).map(Time).map_err(|e| {
            serde::de::Error::custom(format!(
                "{text:?} is not a time such as \"30s\" or \"250ms\": {e}"
            ))
        })
    }
}

/// How a key is to be held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ModeName {
    /// Alone.
    #[default]
    Mutex,
    /// With other readers of a read/write lock.
    Read,
    /// Alone, as the writer of a read/write lock.
    Write,
    /// As one of `permits` holders.
    Semaphore,
}

/// Who is served first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum OrderName {
    /// Whoever comes first when the lock is free.
    #[default]
    Any,
    /// First come, first served.
    Fifo,
}

impl From<OrderName> for Order {
    fn from(order: OrderName) -> Self {
        match order {
            OrderName::Any => Order::Any,
            OrderName::Fifo => Order::Fifo,
        }
    }
}

/// How a lock is to be taken.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"ttl": "30s", "wait": "10s", "label": "billing-2", "reason": "month end"}))]
pub(crate) struct AcquireBody {
    /// The lease: how long the lock outlives a holder that does not renew it. Default: the engine's, usually 30 s.
    #[schema(value_type = Option<String>, example = "30s")]
    pub(crate) ttl: Option<Time>,
    /// How long to wait while somebody else holds it. Default: not at all. At most a minute, except in a stream.
    #[schema(value_type = Option<String>, example = "10s")]
    pub(crate) wait: Option<Time>,
    /// Default: a mutex.
    #[serde(default)]
    pub(crate) mode: ModeName,
    /// How many may hold it at a time; for a semaphore, and only there.
    #[schema(minimum = 1)]
    pub(crate) permits: Option<u32>,
    /// Default: any.
    #[serde(default)]
    pub(crate) order: OrderName,
    /// Who takes it, for people who look.
    pub(crate) label: Option<String>,
    /// Why, for people who look.
    pub(crate) reason: Option<String>,
}

/// One of several locks that are taken together.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Part {
    /// The lock's name.
    pub(crate) key: String,
    /// Default: a mutex.
    #[serde(default)]
    pub(crate) mode: ModeName,
    /// How many may hold it at a time; for a semaphore, and only there.
    #[schema(minimum = 1)]
    pub(crate) permits: Option<u32>,
}

/// How several locks are to be taken, all or none.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"locks": [{"key": "account:3"}, {"key": "account:7"}], "ttl": "30s"}))]
pub(crate) struct AcquireAllBody {
    /// The locks, 1 to 64, in whatever order.
    #[schema(min_items = 1, max_items = 64)]
    pub(crate) locks: Vec<Part>,
    /// As for one lock.
    #[schema(value_type = Option<String>, example = "30s")]
    pub(crate) ttl: Option<Time>,
    /// How long to wait, in all, for all.
    #[schema(value_type = Option<String>, example = "10s")]
    pub(crate) wait: Option<Time>,
    /// Who takes them.
    pub(crate) label: Option<String>,
    /// Why.
    pub(crate) reason: Option<String>,
}

/// A lock that is held.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct LeaseView {
    /// What renews and releases it, at any gateway of this engine. Treat it like a password.
    pub(crate) handle: String,
    /// The lock's name.
    pub(crate) key: String,
    /// How it is held.
    pub(crate) mode: ModeName,
    /// The fencing token, with every exclusive lock of an engine that has tokens.
    pub(crate) token: Option<u64>,
    /// The length of the lease at each renewal.
    pub(crate) ttl_ms: u64,
    /// How long the lock is held, counted from the answer, if nothing renews it. Count from the moment at which you
    /// sent the request, plus `answered_after_ms`: then it is never too long.
    pub(crate) valid_for_ms: u64,
    /// How long the request was here before it was answered.
    pub(crate) answered_after_ms: u64,
    /// Whether the lock ends with this gateway, because the engine ties locks to a session.
    pub(crate) bound_to_gateway: bool,
}

/// A lease that was granted or renewed, before it is told to somebody.
#[derive(Debug, Clone)]
pub(crate) struct Granted {
    pub(crate) handle: String,
    pub(crate) key: Key,
    pub(crate) mode: Mode,
    pub(crate) token: Option<u64>,
    pub(crate) ttl: Duration,
    pub(crate) valid_until: Moment,
    pub(crate) bound: bool,
}

impl Granted {
    pub(crate) fn of(lease: &Lease, valid_until: Moment) -> Self {
        Self {
            handle: lease.to_string(),
            key: lease.key().clone(),
            mode: lease.mode(),
            token: lease.token().map(|t| t.get()),
            ttl: lease.ttl(),
            valid_until,
            bound: false,
        }
    }

    /// What its owner is told now, of a request that came at `received`.
    pub(crate) fn view(&self, received: Moment, now: Moment) -> LeaseView {
        LeaseView {
            handle: self.handle.clone(),
            key: self.key.to_string(),
            mode: mode_name(self.mode),
            token: self.token,
            ttl_ms: millis(self.ttl),
            valid_for_ms: millis(self.valid_until.since(now)),
            answered_after_ms: millis(now.since(received)),
            bound_to_gateway: self.bound,
        }
    }
}

/// Several locks that are held.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct LeasesView {
    /// One for each, in key order.
    pub(crate) leases: Vec<LeaseView>,
}

/// Which lease.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RenewBody {
    /// What `acquire` or the last renewal gave.
    pub(crate) handle: String,
}

/// Which lease, and how long it shall be from now on.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ExtendBody {
    /// What `acquire` or the last renewal gave.
    pub(crate) handle: String,
    /// The new length of the lease, counted from now.
    #[schema(value_type = String, example = "5m")]
    pub(crate) ttl: Time,
}

/// Which lease to give back, or which attempt.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReleaseBody {
    /// What `acquire` or the last renewal gave.
    pub(crate) handle: Option<String>,
    /// The idempotency key of an `acquire` at this gateway. Without a handle, because its answer is not known: it
    /// leaves the line, and gives back what it got; if it arrives later, it is refused. With one: it is forgotten.
    pub(crate) idempotency_key: Option<String>,
}

/// Whether a lock was given back.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct ReleaseView {
    /// Whether it was held; false for an attempt that only waited.
    pub(crate) released: bool,
}

/// One renewal of several.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RenewPart {
    /// What `acquire` or the last renewal gave.
    pub(crate) handle: String,
    /// Another length of the lease from now on.
    #[schema(value_type = Option<String>, example = "30s")]
    pub(crate) ttl: Option<Time>,
}

/// Several renewals in one request.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RenewAllBody {
    /// At most 256.
    #[schema(max_items = 256)]
    pub(crate) leases: Vec<RenewPart>,
}

/// The answer to one of several renewals: a lease or a problem.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Renewed {
    /// It was renewed.
    Lease(LeaseView),
    /// It was not.
    Problem(Box<crate::problem::Body>),
}

/// The answers to several renewals.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct RenewAllView {
    /// In the order of the request.
    pub(crate) renewed: Vec<Renewed>,
}

/// Someone who holds a lock or waits for it.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct HolderView {
    /// Tells one holder from another, and neither renews nor releases: the first part is a digest.
    pub(crate) owner: String,
    /// How it holds, or wants to hold, the lock.
    pub(crate) mode: ModeName,
    /// The size of the semaphore, of one of its slots.
    pub(crate) permits: Option<u32>,
    /// The fencing token of an exclusive hold.
    pub(crate) token: Option<u64>,
    /// Who.
    pub(crate) label: Option<String>,
    /// Why.
    pub(crate) reason: Option<String>,
    /// On which host, where the engine knows.
    pub(crate) host: Option<String>,
    /// In which process.
    pub(crate) pid: Option<u32>,
    /// Since when, in milliseconds since 1970.
    pub(crate) since_ms: Option<u64>,
    /// How long the record lives without a renewal.
    pub(crate) expires_in_ms: Option<u64>,
    /// Whether it is the client that the request named itself by `Distlock-Client`.
    pub(crate) yours: bool,
}

impl HolderView {
    /// As it is shown to this client.
    pub(crate) fn new(h: &Holder, client: Option<Uuid>) -> Self {
        let is_client = |client: Uuid| {
            h.owner
                .parse::<OwnerId>()
                .is_ok_and(|owner| owner.client == client)
        };
        Self {
            yours: client.is_some_and(is_client),
            owner: masked(&h.owner),
            mode: mode_name(h.mode),
            permits: match h.mode {
                Mode::Slot { of } => Some(of),
                _ => None,
            },
            token: h.token.map(|t| t.get()),
            label: h.label.clone(),
            reason: h.reason.clone(),
            host: h.host.clone(),
            pid: h.pid,
            since_ms: h.since.and_then(epoch_millis),
            expires_in_ms: h.expires_in.map(millis),
        }
    }
}

/// The state of one lock.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct LockView {
    /// The lock's name.
    pub(crate) key: String,
    /// `mutex`, `read_write` or `semaphore`, where known.
    pub(crate) kind: Option<&'static str>,
    /// The size of a semaphore.
    pub(crate) permits: Option<u32>,
    /// The largest token that was granted, where the engine keeps it.
    pub(crate) token: Option<u64>,
    /// Who holds it.
    pub(crate) holders: Vec<HolderView>,
    /// Who waits: in the engine's order where it has a line, then those in line at this gateway.
    pub(crate) waiters: Vec<HolderView>,
}

impl LockView {
    /// As it is shown to this client.
    pub(crate) fn new(info: &LockInfo, client: Option<Uuid>) -> Self {
        let people = |all: &[Holder]| all.iter().map(|h| HolderView::new(h, client)).collect();
        let (kind, permits) = match info.kind {
            None => (None, None),
            Some(Kind::Mutex) => (Some("mutex"), None),
            Some(Kind::ReadWrite) => (Some("read_write"), None),
            Some(Kind::Semaphore { of }) => (Some("semaphore"), Some(of)),
        };
        Self {
            key: info.key.to_string(),
            kind,
            permits,
            token: info.token.map(|t| t.get()),
            holders: people(&info.holders),
            waiters: people(&info.waiters),
        }
    }
}

/// Some locks.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct ListView {
    /// In key order.
    pub(crate) locks: Vec<LockView>,
    /// Where the next page begins (`after`); null after the last one.
    pub(crate) next: Option<String>,
}

/// How a lock is to be broken.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"reason": "host is down", "grace": "5s"}))]
pub(crate) struct BreakBody {
    /// Why: told to the holder, and kept in the audit log.
    #[schema(min_length = 1)]
    pub(crate) reason: String,
    /// Break only if the present holder's token is this.
    pub(crate) expect_token: Option<u64>,
    /// How long nobody is granted the lock after its holder was told. Default: 5 s.
    #[schema(value_type = Option<String>, example = "5s")]
    pub(crate) grace: Option<Time>,
}

/// Whose lock was broken.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct BreakView {
    /// Those who held it.
    pub(crate) broken: Vec<HolderView>,
}

pub(crate) fn mode_name(mode: Mode) -> ModeName {
    match mode {
        Mode::Mutex => ModeName::Mutex,
        Mode::Read => ModeName::Read,
        Mode::Write => ModeName::Write,
        Mode::Slot { .. } => ModeName::Semaphore,
    }
}

/// The mode that is asked for, checked.
pub(crate) fn mode(name: ModeName, permits: Option<u32>) -> Result<Mode, Error> {
    match (name, permits) {
        (ModeName::Semaphore, Some(of)) => Ok(Mode::Slot { of }),
        (ModeName::Semaphore, None) => Err(bad("a semaphore needs `permits`, 1 to 4294967295")),
        (_, Some(_)) => Err(bad("`permits` is for semaphores; set \"mode\": \"semaphore\"")),
        (ModeName::Mutex, None) => Ok(Mode::Mutex),
        (ModeName::Read, None) => Ok(Mode::Read),
        (ModeName::Write, None) => Ok(Mode::Write),
    }
}

pub(crate) fn bad(why: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidConfig, why)
}

/// Whole milliseconds, rounded down: what is told as left is never too much.
pub(crate) fn millis(d: Duration) -> u64 {
    u64::try_from(d.as_millis()).unwrap_or(u64::MAX)
}

pub(crate) fn epoch_millis(at: SystemTime) -> Option<u64> {
    at.duration_since(UNIX_EPOCH).ok().map(millis)
}
