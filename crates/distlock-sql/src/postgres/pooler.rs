//! Telling a pooler that shares server processes between sessions (PgBouncer in transaction or statement mode).

use distlock_core::engine::Engine;
use tokio_postgres::Client;

use super::{Connector, fault};
use crate::fault::Fault;

/// Whether two sessions that are open at the same time are served by one server process. A pooler hands out the
/// process that was used last, so the second session meets the first one's.
pub(crate) async fn is_pooled(connector: &Connector, engine: &Engine, first: &Client) -> Result<bool, Fault> {
    let second = connector.connect(engine).await?;
    let (here, there) = (pid(first).await?, pid(&second).await?);
    Ok(here == there)
}

/// Whether what a session prepares is still its own later. Not so behind a pooler that hands a server process on with
/// what was prepared there: then the driver's own name of a statement of `first`, which must have one, is seen from
/// another session. A pooler that keeps statements apart (PgBouncer since 1.21) gives them names of its own.
pub(crate) async fn keeps_statements(
    connector: &Connector,
    engine: &Engine,
    first: &Client,
) -> Result<bool, Fault> {
    let second = connector.connect(engine).await?;
    if pid(first).await? != pid(&second).await? {
        return Ok(true);
    }
    let foreign = "SELECT 1 FROM pg_prepared_statements WHERE name ~ '^s[0-9]+$' LIMIT 1";
    let foreign = second.query_typed(foreign, &[]).await;
    Ok(foreign.map_err(|e| fault(e, false))?.is_empty())
}

async fn pid(client: &Client) -> Result<i32, Fault> {
    let row = client
        .query_typed("SELECT pg_backend_pid()", &[])
        .await
        .map_err(|e| fault(e, false))?;
    row.first()
        .map(|row| row.get(0))
        .ok_or_else(|| Fault::Unable("no answer".into()))
}
