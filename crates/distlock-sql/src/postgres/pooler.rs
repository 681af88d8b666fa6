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

async fn pid(client: &Client) -> Result<i32, Fault> {
    let row = client
        .query_typed("SELECT pg_backend_pid()", &[])
        .await
        .map_err(|e| fault(e, false))?;
    row.first()
        .map(|row| row.get(0))
        .ok_or_else(|| Fault::Unable("no answer".into()))
}
