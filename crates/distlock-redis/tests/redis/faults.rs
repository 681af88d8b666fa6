//! Networks and servers that fail, seen through the core: nobody is told a wrong thing, nothing is left behind.

#[path = "faults/network.rs"]
mod network;
#[path = "faults/refusals.rs"]
mod refusals;
#[path = "faults/server.rs"]
mod server;

use std::time::Duration;

use distlock_testkit::servers::Redis;

use crate::common::{keys, until};

const TTL: Duration = Duration::from_secs(3);

async fn locks_are_gone(redis: &Redis) {
    until("no lock to be left", async || {
        keys(redis, "*")
            .await
            .iter()
            .all(|key| key.ends_with("}:distlock"))
    })
    .await;
}
