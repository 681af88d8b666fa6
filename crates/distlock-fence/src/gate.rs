//! The rule of fencing, as a trait that every store can keep.

use distlock_core::FencingToken;

use crate::error::FenceError;

/// A store that refuses stale writers.
///
/// `W` is what a write is to this store: a closure for memory, the new content for a file, a transaction for a
/// database, a list of operations for etcd or ZooKeeper. A gate may accept several kinds.
///
/// # The contract
/// 1. A token smaller than the largest that was seen for the resource is refused with [`FenceError::Stale`], and
///    nothing is written.
/// 2. Otherwise the token is remembered and the write is done. An equal token is welcome: a holder writes often.
/// 3. Check, remembering and write are **one atomic step**: no write with a larger token can come between this
///    check and this write. A check that is only made *before* the write protects nothing, because the pause can
///    come between the two.
/// 4. What is remembered lives at least as long as the data, and in the same place. If it cannot be read, the gate
///    refuses ([`FenceError::Damaged`]).
///
/// Implementations write `async fn pass(…)`.
///
/// ```
/// use distlock_fence::{FenceGate, FencingToken, MemoryGate};
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// let gate = MemoryGate::new();
/// let sum = gate.pass("row:7", FencingToken::new(5), || 1 + 1).await?;
/// assert_eq!(sum, 2);
/// # Ok::<(), distlock_fence::FenceError>(()) })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait FenceGate<W>: Send + Sync {
    /// What a write gives back.
    type Output;

    /// Does the write if the token is not stale, in one atomic step with the check.
    ///
    /// # Errors
    /// [`FenceError::Stale`] for a caller that no longer holds the lock; the others when the store could not judge
    /// or write.
    ///
    /// # Cancel safety
    /// The write is done as a whole or not at all as far as the store can; a dropped future does not tell which.
    fn pass(
        &self,
        resource: &str,
        token: FencingToken,
        write: W,
    ) -> impl Future<Output = Result<Self::Output, FenceError>> + Send;
}

/// Judges a token by the record of a resource, for stores that keep the largest token as decimal digits. `None`: there
/// is no record yet. What is written on the strength of it must be conditional on the record's being the same still.
///
/// # Errors
/// [`FenceError::Stale`], [`FenceError::Damaged`] if the record is no number of 64 bits, or
/// [`FenceError::InvalidResource`] for a resource without a name.
///
/// ```
/// use distlock_fence::{FencingToken, judge};
///
/// assert!(judge("row:7", FencingToken::new(34), Some(b"33")).is_ok());
/// assert!(judge("row:7", FencingToken::new(33), Some(b"34")).is_err_and(|e| e.is_stale()));
/// ```
pub fn judge(resource: &str, token: FencingToken, stored: Option<&[u8]>) -> Result<(), FenceError> {
    let resource = resource.to_owned();
    if resource.is_empty() {
        let why = "it has no name";
        return Err(FenceError::InvalidResource { resource, why });
    }
    let Some(stored) = stored else { return Ok(()) };
    let newest = std::str::from_utf8(stored)
        .ok()
        .and_then(|text| text.parse().ok());
    match newest.map(FencingToken::new) {
        Some(newest) if newest > token => Err(FenceError::Stale {
            resource,
            token,
            newest,
        }),
        Some(_) => Ok(()),
        None => Err(FenceError::Damaged {
            resource,
            why: "it is not a decimal number of 64 bits".into(),
        }),
    }
}
