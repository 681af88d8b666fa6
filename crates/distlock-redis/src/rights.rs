//! Whether the user may do all that the scripts do, asked before the first lock is taken.

use distlock_core::Key;
use distlock_core::driver::{DriverError, Refusal};
use distlock_core::engine::Engine;
use redis::FromRedisValue;

use crate::config::Layout;
use crate::driver::Shared;
use crate::names::{Names, STAMP, client_channel};
use crate::script::RIGHTS;

/// The name of a lock that nobody uses, one of many.
pub(crate) fn probe(engine: &Engine, n: u32) -> Result<Key, DriverError> {
    Key::new(format!("distlock-rights:{}:{n}", engine.owners().client()))
        .map_err(|e| DriverError::refused(Refusal::InvalidKey(e.to_string())))
}

/// Refuses with the names of the commands, keys and channels that are denied.
///
/// A server that cannot say now (it is loading, or a replica) is no reason to refuse.
pub(crate) async fn check(shared: &Shared) -> Result<(), DriverError> {
    check_at(shared, &probe(&shared.engine, 0)?).await
}

/// The same with this lock, which nobody uses.
pub(crate) async fn check_at(shared: &Shared, probe: &Key) -> Result<(), DriverError> {
    let stored = shared.stored_key(probe);
    let names = Names(&stored);
    let (mut keys, channels) = match shared.config.layout {
        Layout::String { .. } => (vec![stored.clone(), names.record()], vec![names.string_channel()]),
        Layout::Redisson => (
            vec![
                stored.clone(),
                names.record(),
                names.queue(),
                names.deadlines(),
                names.leases(),
                names.life("x"),
                names.line(),
            ],
            vec![
                names.mutex_channel(),
                names.fair_channel("x"),
                names.rw_channel(),
                names.slot_channel(),
            ],
        ),
    };
    if shared.config.aged {
        keys.push(STAMP.to_owned());
    }
    let mut call = RIGHTS.call(keys.len());
    call.arg(keys)
        .arg(channels)
        .arg(client_channel(shared.engine.owners().client()));
    let link = shared.links.get().await?;
    let denied = match shared.run(&link, &(&RIGHTS, call)).await {
        Ok(answer) => Vec::<String>::from_redis_value(answer).unwrap_or_default(),
        Err(fault) if fault.error.retry => return Ok(()),
        Err(fault) => return Err(fault.error),
    };
    if denied.is_empty() {
        return Ok(());
    }
    Err(DriverError::refused(Refusal::InvalidConfig(format!(
        "the Redis user may not run {}; the engine's page has the ACL rules",
        denied.join(", ")
    ))))
}
