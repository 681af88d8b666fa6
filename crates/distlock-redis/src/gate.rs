//! A fencing gate for data that is kept in Redis: a write that carries an old token is refused.
//!
//! The token of the last write is kept beside the data, `{name}:fence`, and compared in the same script that
//! writes. The gate is what protects the data when a holder was paused past its lease; the lock alone cannot.

use std::fmt;

use distlock_core::FencingToken;
use redis::aio::ConnectionLike;

use crate::script::GATE;

/// Refused: a later holder has written already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stale {
    /// The largest token that the gate has seen.
    pub seen: FencingToken,
}

impl fmt::Display for Stale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "a holder with the later token {} has written already",
            self.seen
        )
    }
}

impl std::error::Error for Stale {}

/// Writes a string, unless a later holder has written: `SET name value` guarded by the token.
///
/// The first token of a name is always accepted; the same token may write again. The gate's own key never expires,
/// and must be deleted only together with the data and the lock's own record.
///
/// # Errors
/// `Ok(Err(Stale))` when it was refused; `Err` when Redis did not answer, and may or may not have written.
///
/// # Cancel safety
/// A dropped future may have written; writing the same again with the same token is harmless.
///
/// ```no_run
/// # async fn example(guard_token: distlock_core::FencingToken) -> Result<(), Box<dyn std::error::Error>> {
/// let client = redis::Client::open("redis://127.0.0.1/")?;
/// let mut connection = client.get_multiplexed_async_connection().await?;
/// distlock_redis::guarded_set(&mut connection, "report", b"total=42", guard_token).await??;
/// # Ok(()) }
/// ```
pub async fn guarded_set(
    connection: &mut impl ConnectionLike,
    name: &str,
    value: &[u8],
    token: FencingToken,
) -> redis::RedisResult<Result<(), Stale>> {
    let mut call = GATE.call(2);
    call.arg(name)
        .arg(crate::names::Names(name).gate())
        .arg(token.get())
        .arg(value);
    let answer: redis::RedisResult<Option<String>> = match call.query_async(connection).await {
        Err(e) if crate::fault::is_noscript(&e) => GATE.in_full(&call).query_async(connection).await,
        answer => answer,
    };
    Ok(match answer?.and_then(|seen| seen.parse().ok()) {
        None => Ok(()),
        Some(seen) => Err(Stale { seen }),
    })
}
