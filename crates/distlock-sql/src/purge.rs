//! Removes the rows of keys that nobody uses any more, page by page, so that millions of names do not stay for ever.

use std::sync::Arc;
use std::time::Duration;

use distlock_core::driver::DriverError;
use rand::RngExt;
use tracing::debug;

use crate::statement::{Arg, Verb};
use crate::store::{Lane, Store};
use crate::times::in_micros;

/// Rows looked at in one statement.
const PAGE: i64 = 1000;

/// Purges from time to time for as long as the driver lives.
pub(crate) fn start(store: &Arc<Store>) {
    let weak = Arc::downgrade(store);
    let clock = store.engine.clock().clone();
    // Several times within the age at which rows go, at a time of each client's own.
    let every = (store.config.purge_after / 8).clamp(Duration::from_millis(500), Duration::from_secs(3600));
    store.engine.spawn(async move {
        loop {
            let share = rand::rng().random_range(0.5..1.5);
            clock.sleep(every.mul_f64(share)).await;
            let Some(store) = weak.upgrade() else { return };
            if store.is_used()
                && let Err(e) = purge(&store).await
            {
                debug!(target: "distlock", error = %e, "idle rows were not purged");
            }
        }
    });
}

/// One pass over the table; how many rows went.
pub(crate) async fn purge(store: &Store) -> Result<u64, DriverError> {
    let mut after = String::new();
    let mut gone = 0;
    let mut lane = Lane::default();
    loop {
        let args = [Arg::from(after.as_str()), PAGE.into()];
        let page = store.ask(&mut lane, "", Verb::Page, &args).await?;
        let Some(row) = page.rows.first().filter(|row| row[1].int() > 0) else {
            return Ok(gone);
        };
        let to = row[0].text().to_owned();
        let args = [
            Arg::from(after.as_str()),
            to.as_str().into(),
            in_micros(store.config.purge_after).into(),
        ];
        gone += store.ask(&mut lane, "", Verb::Purge, &args).await?.changed;
        if row[1].int() < PAGE {
            return Ok(gone);
        }
        after = to;
        // Others come first.
        store.engine.clock().sleep(Duration::from_millis(20)).await;
    }
}
