//! The Redis engine beside its own scripts sent raw by the same client, the bare minimum, and other products.

mod alone;
pub(crate) mod cluster;
mod contended;
mod held;
mod peer;
pub(crate) mod redlock;

use std::time::Duration;

use distlock_testkit::servers::Redis;
use redis::aio::MultiplexedConnection;
use redis::{IntoConnectionInfo, ProtocolVersion, RedisConnectionInfo};
use tokio::runtime::Runtime;

use self::alone::Bench;
pub(crate) use self::contended::take_turns;
use self::peer::Peers;
use crate::children::runtime;
use crate::peer::PeerPrograms;
use crate::report::{Report, good};

/// Parts of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Rows {
    /// One client and a free lock, beside raw scripts.
    Alone,
    /// The same beside other products.
    Beside,
    /// One key that many want.
    Contended,
    /// Very many locks held.
    Held,
}

pub(crate) fn measure(quick: bool, programs: &PeerPrograms) -> Report {
    let mut report = Report::new("redis");
    let background = background();
    let server = match background.block_on(Redis::start()) {
        Ok(server) => server,
        Err(e) => {
            report.note("skipped", e);
            return report;
        }
    };
    let rt = runtime();
    let url = server.url();
    let wanted = |rows| programs.rows.is_empty() || programs.rows.contains(&rows);
    let bench = rt.block_on(async { Bench::new(&url, connect(&url).await, "PUBLISH").await });
    if wanted(Rows::Alone) {
        alone::one_task(&mut report, &rt, &bench, if quick { 200 } else { 2000 });
        alone::many_tasks(&mut report, &rt, &bench, if quick { 7 } else { 31 });
    }
    if wanted(Rows::Beside) || wanted(Rows::Contended) {
        let mut peers = Peers::start(&url, programs, &mut report);
        if wanted(Rows::Beside) {
            let rounds = if quick { 10 } else { 60 };
            alone::beside_peers(&mut report, &rt, &bench.locks, &mut peers, rounds);
        }
        if wanted(Rows::Contended) {
            let seconds = if quick { 4 } else { 12 };
            contended::measure(&mut report, &background, &server, &mut peers, seconds);
        }
    }
    if wanted(Rows::Held) {
        let watch = Duration::from_secs(if quick { 30 } else { 180 });
        held::measure(&mut report, &rt, &url, std::slice::from_ref(&server), watch);
    }
    report
}

/// What servers and proxies need goes on while the measuring thread waits.
fn background() -> Runtime {
    good(
        tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build(),
    )
}

async fn connect(url: &str) -> MultiplexedConnection {
    let info = good(url.into_connection_info());
    let settings = RedisConnectionInfo::default().set_protocol(ProtocolVersion::RESP3);
    let tcp = redis::io::tcp::TcpSettings::default().set_nodelay(true);
    let info = info.set_redis_settings(settings).set_tcp_settings(tcp);
    let client = good(redis::Client::open(info));
    good(client.get_multiplexed_async_connection().await)
}

/// How many scripts the server has run.
fn scripts_run(rt: &Runtime, server: &Redis) -> u64 {
    let info = good(rt.block_on(server.command(&["INFO", "commandstats"])));
    let text = info.text().unwrap_or_default();
    let line = text
        .lines()
        .find_map(|l| l.strip_prefix("cmdstat_evalsha:calls="));
    line.and_then(|l| l.split(',').next()?.parse().ok()).unwrap_or(0)
}
