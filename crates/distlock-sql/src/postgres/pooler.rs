//! Telling a pooler that shares server processes between sessions (PgBouncer in transaction or statement mode).

use distlock_core::engine::Engine;
use futures_util::future::try_join;
use tokio_postgres::Client;

use super::{Connector, fault};
use crate::fault::Fault;

/// How often two sessions try to meet each other's server process. One time is enough if nobody else uses the pooler;
/// others, who take a process in between, hide what it does in about one of four.
const ROUNDS: usize = 4;

/// Whether two sessions that are open at the same time are served by one server process, or one of them by several.
///
/// A pooler that has one process free gives it to both. To one that has more, both sessions begin a transaction, which
/// takes two, and end it, the first one first. Whether it then hands out what was used last or what rests longest, one
/// of the two meets the other's: the second asks before the first.
pub(crate) async fn is_pooled(connector: &Connector, engine: &Engine, first: &Client) -> Result<bool, Fault> {
    let second = connector.connect(engine).await?;
    let (here, there) = (pid(first).await?, pid(&second).await?);
    if here == there {
        return Ok(true);
    }
    for _ in 0..ROUNDS {
        let begun = try_join(begin(first), begin(&second)).await?;
        if begun != (Some(here), Some(there)) {
            return Ok(true);
        }
        for session in [first, &second] {
            session
                .batch_execute("COMMIT")
                .await
                .map_err(|e| fault(e, false))?;
        }
        if pid(&second).await? != there || pid(first).await? != here {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Begins a transaction; by which server process. None: there are no transactions, as behind a pooler that shares out
/// statements.
async fn begin(session: &Client) -> Result<Option<i32>, Fault> {
    match session.batch_execute("BEGIN").await {
        Ok(()) => pid(session).await.map(Some),
        Err(e) => match fault(e, false) {
            Fault::Unable(_) => Ok(None),
            fault => Err(fault),
        },
    }
}

/// Whether what a session prepares is still its own later. Not so behind a pooler that hands a server process on with
/// what was prepared there: the process knows the statement by the driver's name. A pooler that keeps statements apart
/// (PgBouncer since 1.21) gives them names of its own.
pub(crate) async fn keeps_statements(
    connector: &Connector,
    engine: &Engine,
    session: &Client,
) -> Result<bool, Fault> {
    if !is_pooled(connector, engine, session).await? {
        return Ok(true);
    }
    // A session of its own: the other may be left within a transaction.
    let session = connector.connect(engine).await?;
    if begin(&session).await?.is_none() {
        return Ok(false);
    }
    let failed = |e| fault(e, false);
    let _prepared = session.prepare("SELECT 1").await.map_err(failed)?;
    let own = "SELECT 1 FROM pg_prepared_statements WHERE name ~ '^s[0-9]+$' LIMIT 1";
    let own = session.query_typed(own, &[]).await.map_err(failed)?;
    Ok(own.is_empty())
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
