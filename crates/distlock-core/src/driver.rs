//! The engine port: what an engine implements, and the laws that it keeps.
//!
//! An engine hands out a [`Claim`]: one contender's (possibly empty) place in line for one lock. The core drives
//! it; the claim lives with the caller until it holds, then with the guard. The waiting loop, the watchdog,
//! reentrancy, clean-up, metrics and time-outs exist once, in the core; an engine only answers the questions below.
//!
//! # Laws
//! Each of them is a test of the conformance suite (`distlock-testkit`).
//!
//! 1. **Exclusion.** At most one live exclusive claim per key is `Held`; shared and slot claims likewise within
//!    their rules.
//! 2. **Idempotence.** [`Claim::try_acquire`] is idempotent by owner: after an error or a dropped future, calling
//!    again finds the claim's own place and the same token, or a larger one if the first was never returned; never
//!    a second contender, never a count of two. A claim serves one hold: once it has answered `Held` or was
//!    released, `try_acquire` answers [`DriverErrorKind::Closed`].
//! 3. **Tokens grow.** The token of a new exclusive hold is larger than all before it for that key, as far as
//!    [`Promises::token`] says. The engine mints it in the same atomic step.
//! 4. **Renewal never acquires.** [`Renewal::Lost`] is final.
//! 5. **Release works in any state**, any number of times, and goes first to where an unanswered request went (the
//!    same connection keeps order). An engine that does not execute one client's requests in order lets a started
//!    join run to its end and releases after it. A late arrival is chased by the core.
//! 6. **Validity is conservative.** [`Grant::valid_until`] is counted from a moment taken before the request was
//!    handed to the socket, or is the engine's own deadline on the same clock. The core takes the margin off.
//! 7. **Arm, then look.** A claim that answers `Waiting` armed its bell *before* the look that found it waiting. A
//!    missed or spurious ring never costs correctness; the core looks again within `recheck`.
//! 8. **Every call may be dropped at any await.**
//! 9. After `Held` the core does not call `try_acquire` again.
//! 10. `Any` and `Fifo` may be mixed on a key; an `Any` never passes a waiting `Fifo`.
//!
//! Sessions (an etcd lease, a ZooKeeper session) are private to the engine: renewal answers from local state, and
//! a session that dies rings the bells of all its claims, so that the keeper asks at once.

use std::error::Error as StdError;
use std::fmt;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;

use crate::bell::Bell;
use crate::clock::{Clock, Moment};
use crate::key::Key;
use crate::owner::OwnerId;
use crate::token::FencingToken;

/// An engine: where locks are kept.
///
/// Built with an [`Engine`](crate::engine::Engine) handle, which gives it the client's engine thread, clock,
/// namespace and label. The [laws](self) are the contract.
pub trait Driver: fmt::Debug + Send + Sync + 'static {
    /// What this engine promises; constant for the life of the driver.
    fn promises(&self) -> Promises;

    /// Makes a contender. No I/O; a claim that is dropped unused leaves no trace.
    ///
    /// # Errors
    /// [`DriverErrorKind::Refused`] for what the engine cannot store or does not support.
    fn claim(&self, want: Arc<Want>) -> Result<Box<dyn Claim>, DriverError>;

    /// Renews all of these holds for their `ttl`, counted from now, and answers each as soon as it is known, by
    /// its index. A hold without an answer when the future ends is *unknown*. Never acquires. Also serves `extend`
    /// (with its TTL) and `verify`.
    fn renew<'a>(
        &'a self,
        holds: &'a [Hold],
        answer: &'a (dyn Fn(usize, Renewal) + Send + Sync),
    ) -> BoxFuture<'a, ()>;

    /// Ends the driver's sessions and files; called once, from the client's shutdown or its thread's end, and
    /// bounded in time by the caller.
    fn close(&self) -> BoxFuture<'_, ()>;

    /// Looks at and breaks locks, where the engine can.
    fn inspect(&self) -> Option<&dyn Inspect> {
        None
    }

    /// A descriptor that keeps this process's holds alive while any copy of it is open (the file engine). Given to
    /// the command's guardian process, never to the guarded command.
    #[cfg(unix)]
    fn liveness(&self) -> Option<std::os::fd::OwnedFd> {
        None
    }
}

/// One contender for one lock. See the [laws](self).
#[async_trait]
pub trait Claim: fmt::Debug + Send + Sync {
    /// One look: takes the lock if it is this claim's turn, else says that it waits. Joins a line only if
    /// [`Want::line`] is [`Line::Join`].
    ///
    /// # Errors
    /// Any [`DriverError`]; its `reached` says whether the engine may have applied the request.
    ///
    /// # Cancel safety
    /// Safe by law 2: the caller may drop the future and call again, or release.
    async fn try_acquire(&mut self) -> Result<Standing, DriverError>;

    /// Leaves: whether the claim holds, waits, or nobody knows. Never resends inside. `Ok` means answered; after
    /// `Err` the caller calls again. `keep`: leave an ownerless record for that long (`min_hold`, once-per-window).
    ///
    /// # Errors
    /// Any [`DriverError`] when the engine did not answer.
    ///
    /// # Cancel safety
    /// Safe by law 5: the caller may drop the future and call again.
    async fn release(&mut self, keep: Option<Duration>) -> Result<Released, DriverError>;
}

/// What a contender wants. Immutable, shared by the claim and the keeper.
#[derive(Debug)]
pub struct Want {
    /// The lock's name, without the namespace.
    pub key: Key,
    /// The contender; unique.
    pub owner: OwnerId,
    /// How it wants to hold the key.
    pub mode: Mode,
    /// Whether it insists on its turn.
    pub order: Order,
    /// Whether an attempt that finds the lock taken joins the line.
    pub line: Line,
    /// What the hold's life depends on.
    pub life: Life,
    /// The length of the lease.
    pub ttl: Duration,
    /// The name of the process or service, for people who look.
    pub label: Option<Arc<str>>,
    /// Why the lock is taken, for people who look.
    pub reason: Option<Arc<str>>,
    /// Rung by the engine when this contender's standing may have changed.
    pub bell: Bell,
}

/// How a key is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Alone, as a mutex.
    Mutex,
    /// Alone, as the writer of a read/write lock.
    Write,
    /// Together with other readers of a read/write lock.
    Read,
    /// One of `of` slots of a semaphore. All contenders must name the same number.
    Slot {
        /// The number of slots; at least 1.
        of: u32,
    },
}

impl Mode {
    /// Whether nobody else may hold the key at the same time. Only exclusive holds have a token.
    pub fn is_exclusive(self) -> bool {
        matches!(self, Mode::Mutex | Mode::Write)
    }

    /// The kind of lock that this mode belongs to. Contenders of different kinds on one key are refused with
    /// [`Refusal::KindMismatch`].
    pub fn kind(self) -> Kind {
        match self {
            Mode::Mutex => Kind::Mutex,
            Mode::Write | Mode::Read => Kind::ReadWrite,
            Mode::Slot { of } => Kind::Semaphore { of },
        }
    }
}

/// The kind of lock that a key is used as.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// One holder.
    Mutex,
    /// Many readers or one writer.
    ReadWrite,
    /// Up to `of` holders.
    Semaphore {
        /// The number of slots.
        of: u32,
    },
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Kind::Mutex => f.write_str("a mutex"),
            Kind::ReadWrite => f.write_str("a read/write lock"),
            Kind::Semaphore { of } => write!(f, "a semaphore of {of} permits"),
        }
    }
}

/// Whether a contender insists on its turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Order {
    /// Whoever comes first when the lock is free; faster, not fair. Never passes a waiting `Fifo`.
    #[default]
    Any,
    /// First come, first served, across processes.
    Fifo,
}

/// Whether an attempt that finds the lock taken joins the line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Line {
    /// A single try: leaves nothing behind when the lock is taken.
    Never,
    /// Takes or keeps a place in line, where the engine has one.
    Join,
}

/// What a hold's life depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Life {
    /// The holder's process or session where the engine can tell, else the TTL.
    Process,
    /// The TTL alone: the hold may outlive the process that took it and be renewed by another one.
    Lease,
}

/// A granted hold.
#[derive(Debug, Clone, Copy)]
pub struct Grant {
    /// The token; `None` for shared and slot holds, or where the engine has none.
    pub token: Option<FencingToken>,
    /// Until when the engine will keep the hold (law 6), before the core's margin.
    pub valid_until: Moment,
    /// The driver's own word, given back in [`Hold::mark`].
    pub mark: u64,
}

/// What an attempt found.
#[derive(Debug)]
pub enum Standing {
    /// The lock is held by this claim.
    Held(Grant),
    /// Somebody else holds it, or it is not our turn.
    Waiting {
        /// The longest time after which it is worth looking again without a ring.
        recheck: Duration,
        /// The present holder, where known.
        holder: Option<Holder>,
        /// How many contenders are ahead in line, where known.
        ahead: Option<u32>,
    },
}

/// A hold as the keeper knows it.
#[derive(Debug, Clone)]
pub struct Hold {
    /// What was asked for.
    pub want: Arc<Want>,
    /// [`Grant::mark`].
    pub mark: u64,
    /// The lease to set, counted from the renewal.
    pub ttl: Duration,
    /// Raise the stored token to at least this (Redlock's second phase).
    pub floor: Option<FencingToken>,
}

/// The answer to a renewal.
#[derive(Debug)]
pub enum Renewal {
    /// Renewed: valid until then, before the margin.
    Good(Moment),
    /// No longer ours. Final.
    Lost(LostReason),
    /// The engine did not say. Not lost, and not held for ever.
    Unknown(DriverError),
}

/// The answer to a release.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Released {
    /// The claim held the lock; it no longer does.
    Freed,
    /// The claim did not hold the lock (it only waited, or the hold was gone).
    NotHeld,
}

/// Why a hold was lost.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum LostReason {
    /// The lease ran out: no renewal was confirmed in time.
    Expired,
    /// The engine no longer has the record, or another owner's is there.
    Taken,
    /// The session that the hold depended on ended.
    SessionEnded,
    /// Somebody broke the lock on purpose.
    Broken {
        /// The reason that was given.
        reason: Option<String>,
    },
    /// The hold's own `max_hold` passed.
    MaxHold,
    /// The engine could not be reached and the client was told to stop at once (`on_disconnect=stop`).
    Disconnected,
    /// The client was shut down.
    Shutdown,
    /// This process is a forked child; the hold belongs to its parent.
    Forked,
}

impl LostReason {
    /// A stable word for metrics and machines.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Expired => "expired",
            Self::Taken => "taken",
            Self::SessionEnded => "session_ended",
            Self::Broken { .. } => "broken",
            Self::MaxHold => "max_hold",
            Self::Disconnected => "disconnected",
            Self::Shutdown => "shutdown",
            Self::Forked => "forked",
        }
    }
}

impl fmt::Display for LostReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Expired => f.write_str("its lease ran out before a renewal was confirmed"),
            Self::Taken => f.write_str("its record is gone or belongs to another owner"),
            Self::SessionEnded => f.write_str("the session that it depended on ended"),
            Self::Broken { reason: Some(why) } => write!(f, "it was broken: {why}"),
            Self::Broken { reason: None } => f.write_str("it was broken"),
            Self::MaxHold => f.write_str("its max_hold passed"),
            Self::Disconnected => f.write_str("the engine could not be reached (on_disconnect=stop)"),
            Self::Shutdown => f.write_str("the client was shut down"),
            Self::Forked => f.write_str("this process is a fork of the holder"),
        }
    }
}

/// A holder or a waiter, as far as the engine knows it. For people to read; never used to decide who holds.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Holder {
    /// The owner as the engine stores it.
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

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.label, self.pid) {
            (Some(label), _) => write!(f, "{label}")?,
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
            write!(f, ": {reason}")?;
        }
        if self.here {
            f.write_str(" [held by this process]")?;
        }
        Ok(())
    }
}

/// What an engine promises. The conformance suite chooses its cases by it, and the capability table in the docs is
/// generated from it.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Promises {
    /// The engine's name in errors and metrics: `file`, `redis`, …
    pub engine: &'static str,
    /// The orders in which waiters are served.
    pub order: Orders,
    /// Whether read/write locks are supported.
    pub shared: bool,
    /// Whether semaphores are supported.
    pub slots: bool,
    /// How far tokens are promised to grow.
    pub token: TokenPromise,
    /// The range of TTLs that the engine can keep.
    pub ttl: RangeInclusive<Duration>,
    /// How waiters learn that it may be their turn.
    pub wakes: Wakes,
    /// When the holder learns of a loss.
    pub loss: Loss,
    /// When the lock of a holder that died is free.
    pub death: Death,
    /// Whether holds with [`Life::Lease`] are supported.
    pub lease_records: bool,
    /// Whether a release can leave an ownerless record (`min_hold`).
    pub keep: bool,
}

impl Promises {
    /// The promises of an engine that promises least; set the fields that are better.
    pub fn new(engine: &'static str) -> Self {
        Self {
            engine,
            order: Orders::Any,
            shared: false,
            slots: false,
            token: TokenPromise::None,
            ttl: Duration::from_millis(100)..=MAX_TTL,
            wakes: Wakes::Paced,
            loss: Loss::BeforeRegrant,
            death: Death::AtTtl,
            lease_records: false,
            keep: false,
        }
    }
}

/// The ceiling of every TTL: 366 days.
pub const MAX_TTL: Duration = Duration::from_secs(366 * 24 * 3600);

/// The orders in which an engine can serve its waiters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Orders {
    /// [`Order::Fifo`] is refused as unsupported.
    Any,
    /// Both orders, as asked for.
    AnyOrFifo,
    /// Every waiter is served in order, asked for or not.
    AlwaysFifo,
}

/// How far an engine promises that tokens grow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenPromise {
    /// There are no tokens; `.fenced()` is refused.
    None,
    /// They grow unless the stated thing happens.
    BestEffort {
        /// What would have to happen for a token to step back.
        unless: &'static str,
    },
    /// They grow whatever happens to clients and, within the engine's own durability, to servers.
    Durable,
}

/// How waiters learn that it may be their turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wakes {
    /// The engine notifies.
    Notified,
    /// The core asks at intervals that the engine suggests.
    Paced,
}

/// When the holder learns of a loss *by time*. A lock that is taken away is always told within a second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loss {
    /// Before anybody else can be granted, by the guard's own clock.
    BeforeRegrant,
    /// When the notice arrives; somebody else may hold by then.
    OnNotice,
}

/// When the lock of a holder that died is free.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Death {
    /// At once.
    AtOnce,
    /// When its lease or session has run out.
    AtTtl,
}

/// Why a driver could not answer.
#[derive(Debug)]
pub struct DriverError {
    /// What kind of trouble.
    pub kind: DriverErrorKind,
    /// Whether the engine may have applied the request.
    pub reached: Reached,
    /// Whether trying again later can help.
    pub retry: bool,
    /// The cause, without secrets.
    pub source: Option<Box<dyn StdError + Send + Sync>>,
}

/// The kinds of [`DriverError`].
#[derive(Debug)]
#[non_exhaustive]
pub enum DriverErrorKind {
    /// The engine could not be reached, or cannot serve now.
    Unavailable,
    /// The engine, or the driver on its behalf, will not do this.
    Refused(Refusal),
    /// The claim or the driver has ended.
    Closed,
}

/// Why an engine refuses.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// Not supported by this engine; says what.
    Unsupported(String),
    /// The engine cannot store this key; says why.
    InvalidKey(String),
    /// A setting is out of the engine's range; names the value and the range.
    InvalidConfig(String),
    /// The key is in use as another kind of lock, or by another product.
    KindMismatch {
        /// What the record is.
        have: String,
        /// What was asked for.
        want: String,
    },
    /// A `break` named a token that is not the present holder's.
    TokenMismatch {
        /// The present holder's token.
        have: Option<FencingToken>,
    },
    /// Not enough members of a quorum agreed; one line for each member's vote.
    NoQuorum(Vec<String>),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unsupported(what) => write!(f, "not supported: {what}"),
            Self::InvalidKey(why) => write!(f, "invalid key: {why}"),
            Self::InvalidConfig(why) => f.write_str(why),
            Self::KindMismatch { have, want } => write!(f, "the key is in use as {have}, not as {want}"),
            Self::TokenMismatch { have: Some(have) } => write!(f, "the present holder's token is {have}"),
            Self::TokenMismatch { have: None } => f.write_str("the present holder has no token"),
            Self::NoQuorum(votes) => write!(f, "no quorum ({})", votes.join("; ")),
        }
    }
}

/// Whether the engine may have applied a request that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reached {
    /// It was not sent, or was refused.
    No,
    /// Nobody knows. Only this becomes `OutcomeUnknown`, and is chased.
    Maybe,
    /// It was applied.
    Yes,
}

impl DriverError {
    /// The engine could not be reached or did not answer; worth trying again.
    pub fn unavailable(reached: Reached, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Self {
            kind: DriverErrorKind::Unavailable,
            reached,
            retry: true,
            source: Some(source.into()),
        }
    }

    /// The engine will not do this, now or later.
    pub fn refused(refusal: Refusal) -> Self {
        Self {
            kind: DriverErrorKind::Refused(refusal),
            reached: Reached::No,
            retry: false,
            source: None,
        }
    }

    /// The claim or driver has ended.
    pub fn closed() -> Self {
        Self {
            kind: DriverErrorKind::Closed,
            reached: Reached::No,
            retry: false,
            source: None,
        }
    }
}

impl fmt::Display for DriverError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.kind, &self.source) {
            (DriverErrorKind::Unavailable, Some(source)) => write!(f, "{source}"),
            (DriverErrorKind::Unavailable, None) => f.write_str("the engine could not be reached"),
            (DriverErrorKind::Refused(refusal), _) => fmt::Display::fmt(refusal, f),
            (DriverErrorKind::Closed, _) => f.write_str("closed"),
        }
    }
}

impl StdError for DriverError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.source.as_deref().map(|e| e as &(dyn StdError + 'static))
    }
}

/// Looking at locks, and breaking them.
#[async_trait]
pub trait Inspect: fmt::Debug + Send + Sync {
    /// Locks whose keys start with `prefix`, in key order, strictly after `after`, at most `limit`. Locks that
    /// nobody holds or waits for may be left out.
    ///
    /// # Errors
    /// Any [`DriverError`].
    async fn list(
        &self,
        prefix: &str,
        after: Option<&Key>,
        limit: usize,
    ) -> Result<Vec<LockInfo>, DriverError>;

    /// One lock: who holds it, who waits, in order. A free lock has no holders.
    ///
    /// # Errors
    /// Any [`DriverError`].
    async fn inspect(&self, key: &Key) -> Result<LockInfo, DriverError>;

    /// Takes the lock away from its holders; returns those. With a grace, an ownerless record stays that long.
    ///
    /// # Errors
    /// [`Refusal::TokenMismatch`] when [`Break::expect`] is not the present holder's token.
    async fn break_lock(&self, key: &Key, how: &Break) -> Result<Vec<Holder>, DriverError>;

    /// The states of one lock from now on, one at each change. The default looks four times a second.
    fn watch<'a>(&'a self, key: &'a Key, clock: &'a Clock) -> BoxStream<'a, Result<LockInfo, DriverError>> {
        Box::pin(futures_util::stream::unfold(
            None::<LockInfo>,
            move |last| async move {
                loop {
                    if last.is_some() {
                        clock.sleep(Duration::from_millis(250)).await;
                    }
                    match self.inspect(key).await {
                        Ok(now) if last.as_ref().is_some_and(|last| last.same_people(&now)) => {}
                        Ok(now) => return Some((Ok(now.clone()), Some(now))),
                        Err(e) => {
                            clock.sleep(Duration::from_millis(250)).await;
                            return Some((Err(e), last));
                        }
                    }
                }
            },
        ))
    }

    /// Examines the deployment for settings that endanger locks.
    ///
    /// # Errors
    /// Any [`DriverError`] when the engine cannot be asked.
    async fn doctor(&self) -> Result<Vec<Finding>, DriverError> {
        Ok(Vec::new())
    }
}

/// The state of one lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockInfo {
    /// The lock's name.
    pub key: Key,
    /// What the key is used as, where that is known.
    pub kind: Option<Kind>,
    /// The largest token that was granted, where the engine keeps it.
    pub token: Option<FencingToken>,
    /// Who holds it.
    pub holders: Vec<Holder>,
    /// Who waits, in line order where there is one.
    pub waiters: Vec<Holder>,
}

impl LockInfo {
    /// A lock that nobody holds or waits for.
    pub fn free(key: Key) -> Self {
        Self {
            key,
            kind: None,
            token: None,
            holders: Vec::new(),
            waiters: Vec::new(),
        }
    }

    /// Whether the same owners hold and wait, whatever time they have left.
    pub fn same_people(&self, other: &Self) -> bool {
        fn owners(list: &[Holder]) -> impl Iterator<Item = (&str, Mode)> {
            list.iter().map(|h| (h.owner.as_str(), h.mode))
        }
        owners(&self.holders).eq(owners(&other.holders)) && owners(&self.waiters).eq(owners(&other.waiters))
    }
}

/// How to break a lock.
#[derive(Debug, Clone, Default)]
pub struct Break {
    /// Break only if the present holder's token is this.
    pub expect: Option<FencingToken>,
    /// How long nobody may be granted after the holder was told.
    pub grace: Duration,
    /// Why; told to the holder where the engine can.
    pub reason: Option<String>,
}

/// One thing that the doctor found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// How bad it is.
    pub severity: Severity,
    /// A stable word for machines, such as `redis-eviction`.
    pub id: &'static str,
    /// What was found, with the value.
    pub what: String,
    /// What to change.
    pub fix: String,
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
        f.write_str(match self {
            Self::Info => "info",
            Self::Warning => "warning",
            Self::Error => "error",
        })
    }
}
