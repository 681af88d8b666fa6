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

mod about;
mod answer;
mod error;
mod holder;
mod inspect;
mod promises;
mod want;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::BoxFuture;

pub use self::about::{About, host_name};
pub use self::answer::{Grant, Hold, LostReason, Released, Renewal, Standing};
pub use self::error::{DriverError, DriverErrorKind, Reached, Refusal};
pub use self::holder::Holder;
pub use self::inspect::{Break, Inspect, LockInfo};
pub use self::promises::{Death, Loss, MAX_TTL, Orders, Promises, TokenPromise, Wakes};
pub use self::want::{Kind, Life, Line, Mode, Order, Want};
pub use crate::doctor::{Finding, Severity};

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

    /// How long the store that answered the last attempt has kept data without losing them, where the engine keeps
    /// a stamp for that. Only a [quorum](crate::quorum) asks: it gives no vote to a store that may have forgotten.
    fn age(&self) -> Option<Duration> {
        None
    }

    /// The clock from which the store mints its tokens, in µs, as it was at the last attempt; `None` where tokens are no
    /// times. Only a [quorum](crate::quorum) asks.
    fn time(&self) -> Option<u64> {
        None
    }

    /// Proposes a token for the next attempt: the store gives it if it is larger than the one that it would have minted.
    /// Stores whose tokens are no [times](Self::time) need not listen.
    fn propose(&mut self, token: crate::FencingToken) {
        let _ = token;
    }
}
