//! A second connection that is asked whether our nodes exist, when nothing is heard over the first one.
//!
//! Whoever closes a session by taking it over throws its owner out, again and again if both go on connecting. The
//! session client then pauses for seconds between two attempts. A server may also tell the owner that it is connected
//! and then drop its requests without an answer (`ZooKeeperServer` does not answer requests of sessions that it does
//! not know), which the session client notices after two fifths of the session timeout. Servers that are merely slow
//! show the witness the same nodes as ever, and nothing happens.

use std::sync::Arc;

use distlock_core::driver::DriverError;
use futures_util::future::join_all;
use tracing::debug;
use zookeeper_client::{Error, Stat};

use crate::call::fault;
use crate::driver::Shared;
use crate::session::{Session, connector};

/// Looks at the nodes of all holds of this session over a session of its own, and tells the holders of those that
/// are gone.
pub(crate) async fn testify(shared: &Shared, session: &Arc<Session>) {
    let clock = shared.engine.clock();
    let looked = clock.timeout(session.patience(), look(shared, session)).await;
    if !matches!(looked, Some(Ok(()))) {
        debug!(target: "distlock", ?looked, "nobody could say whether the nodes of a silent session exist");
    }
}

async fn look(shared: &Shared, session: &Arc<Session>) -> Result<(), DriverError> {
    let held = shared.registry.held_in(session);
    if held.is_empty() {
        return Ok(());
    }
    let connector = connector(&shared.config)
        .with_session_timeout(session.timeout())
        .with_fail_eagerly();
    let witness = connector
        .connect(&shared.config.hosts.join(","))
        .await
        .map_err(fault)?;
    witness.sync("/").await.map_err(fault)?;
    let looks = join_all(held.iter().map(|(held, _)| {
        let stats = held.nodes.iter().map(|node| witness.check_stat(&node.path));
        join_all(stats)
    }))
    .await;
    let mut left = 0;
    for ((held, bell), stats) in held.iter().zip(looks) {
        let ours = |stat: &Option<Stat>| {
            stat.as_ref()
                .is_some_and(|stat| stat.ephemeral_owner == session.id())
        };
        if stats.iter().flatten().all(ours) {
            left += 1;
        } else {
            held.is_lost();
            bell.ring();
        }
        if let Some(e) = stats
            .into_iter()
            .filter_map(Result::err)
            .find(|e| *e != Error::NoAuth)
        {
            return Err(fault(e));
        }
    }
    shared.registry.tell_losses();
    if left == 0 {
        // Nothing of it is left: a new session is better than waiting for this one to be told.
        session.end();
    }
    Ok(())
}
