//! What a key is used as.

use std::sync::Arc;

use distlock_core::driver::{DriverError, Kind, Refusal, Want};
use zookeeper_client::Error;

use crate::call::fault;
use crate::contender::permits;
use crate::node::{Label, Node, line};
use crate::session::Session;

/// The children of a semaphore's node.
pub(crate) const LOCKS: &str = "locks";
pub(crate) const LEASES: &str = "leases";

/// Children of a node that need not exist.
pub(crate) async fn children(session: &Arc<Session>, path: &str) -> Result<Vec<String>, DriverError> {
    let call = session.call()?;
    match call.answer(call.client.list_children(path)).await {
        Err(Error::NoNode) => Ok(Vec::new()),
        other => other.map_err(fault),
    }
}

/// A node's data, if it is there.
pub(crate) async fn data(
    session: &Arc<Session>,
    path: &str,
) -> Result<Option<(Vec<u8>, zookeeper_client::Stat)>, DriverError> {
    let call = session.call()?;
    match call.answer(call.client.get_data(path)).await {
        Err(Error::NoNode) => Ok(None),
        other => other.map(Some).map_err(fault),
    }
}

pub(crate) fn mismatch(have: Kind, want: &Want) -> DriverError {
    mismatch_named(have.to_string(), want)
}

pub(crate) fn mismatch_named(have: String, want: &Want) -> DriverError {
    DriverError::refused(Refusal::KindMismatch {
        have,
        want: want.mode.kind().to_string(),
    })
}

/// What these contenders use the key as, if it is something else than `want` does.
pub(crate) fn other_line(contenders: &[Node], want: &Want) -> Option<Kind> {
    let kinds = contenders.iter().filter_map(|node| match node.label {
        Label::Lock | Label::Kazoo => Some(Kind::Mutex),
        Label::Read | Label::Write => Some(Kind::ReadWrite),
        Label::Lease => None,
    });
    kinds.into_iter().find(|kind| *kind != want.mode.kind())
}

/// Refuses when the lock at `path`, which has these children, is a semaphore in use.
pub(crate) async fn not_a_semaphore(
    session: &Arc<Session>,
    path: &str,
    kids: &[String],
    want: &Want,
) -> Result<(), DriverError> {
    if !kids.iter().any(|name| name == LEASES) {
        return Ok(());
    }
    let leases = format!("{path}/{LEASES}");
    let taken = line(&children(session, &leases).await?);
    let Some(first) = taken.first() else { return Ok(()) };
    let size = data(session, &format!("{leases}/{}", first.name))
        .await?
        .and_then(|(data, _)| permits(&data));
    let have = size.map_or_else(
        || "a semaphore".to_owned(),
        |of| Kind::Semaphore { of }.to_string(),
    );
    Err(mismatch_named(have, want))
}
