//! What a durable Redis, and the way to it, go through while clients contend, without a lock being given to two.

use std::io;
use std::time::Duration;

use rand::RngExt;
use rand::rngs::StdRng;
use tokio::time::sleep;

use crate::history::{Recorder, What};
use crate::proxy::{Fault, Proxy};
use crate::servers::{Data, Redis};

/// The longest that one of them lasts.
pub(super) const LONGEST: Duration = Duration::from_secs(2);
/// How long a client may take to notice that a connection is dead and to make another.
pub(super) const NOTICED: Duration = Duration::from_secs(4);

#[derive(Debug, Clone, Copy)]
enum Trouble {
    ServerStopped,
    ServerKilled,
    ConnectionsCut,
    BlackHole,
    RepliesHeld,
    ScriptsForgotten,
}

const ALL: [Trouble; 6] = [
    Trouble::ServerStopped,
    Trouble::ServerKilled,
    Trouble::ConnectionsCut,
    Trouble::BlackHole,
    Trouble::RepliesHeld,
    Trouble::ScriptsForgotten,
];

/// Makes one of them and mends it, and says so in the history.
pub(super) async fn strike(
    redis: &mut Redis,
    proxy: &Proxy,
    random: &mut StdRng,
    recorder: &Recorder,
) -> io::Result<()> {
    let trouble = ALL[random.random_range(0..ALL.len())];
    let length = LONGEST.mul_f64(random.random_range(0.1..1.0));
    let (class, target) = (format!("{trouble:?}"), redis.address());
    recorder.record(What::Fault {
        class: class.clone(),
        target: target.clone(),
    })?;
    match trouble {
        Trouble::ServerStopped => {
            redis.pause()?;
            sleep(length).await;
            redis.resume()?;
        }
        Trouble::ServerKilled => {
            redis.kill9()?;
            sleep(length / 4).await;
            redis.restart(Data::Keep).await.map_err(io::Error::other)?;
        }
        Trouble::ConnectionsCut => proxy.cut(),
        Trouble::BlackHole => {
            proxy.both(Fault::Blackhole);
            sleep(length).await;
            proxy.heal();
        }
        Trouble::RepliesHeld => {
            proxy.replies(Fault::Hold);
            sleep(length).await;
            proxy.heal();
        }
        Trouble::ScriptsForgotten => drop(redis.command(&["SCRIPT", "FLUSH"]).await?),
    }
    recorder.record(What::Healed { class, target })
}
