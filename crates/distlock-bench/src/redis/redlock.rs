//! Redlock on five servers against its own scripts, sent raw to all five in parallel: two phases and the release.

use std::time::Instant;

use distlock::Locks;
use distlock_testkit::servers::Redis;
use futures_util::future::join_all;
use redis::aio::MultiplexedConnection;
use redis::{Cmd, Value};

use super::alone::{self, OWNER, TTL_MS};
use super::peer::Peers;
use super::{background, connect};
use crate::children::runtime;
use crate::peer::PeerPrograms;
use crate::report::{Report, good};
use crate::sample::{Sample, ratio};

const ACQUIRE: &str = concat!(
    include_str!("../../../distlock-redis/src/scripts/mint.lua"),
    include_str!("../../../distlock-redis/src/scripts/aged.lua"),
    include_str!("../../../distlock-redis/src/scripts/string_acquire.lua"),
    include_str!("../../../distlock-redis/src/scripts/aged_end.lua")
);
const RAISE: &str = include_str!("../../../distlock-redis/src/scripts/renew_raise.lua");
const RELEASE: &str = include_str!("../../../distlock-redis/src/scripts/string_release.lua");
const ABOUT: &str = " {\"owner\":\"018f0000-0000-7000-8000-000000000001:1\",\"label\":\"bench\",\"pid\":1}";

pub(crate) fn measure(quick: bool, programs: &PeerPrograms) -> Report {
    let mut report = Report::new("redlock");
    let background = background();
    let servers = match background.block_on(Redis::several(5, &Redis::options())) {
        Ok(servers) => servers,
        Err(e) => {
            report.note("skipped", e);
            return report;
        }
    };
    let hosts: Vec<String> = servers.iter().map(Redis::address).collect();
    let url = format!("redlock://{}", hosts.join(","));
    let rounds = if quick { 200 } else { 2000 };
    let (mut ours, mut raw) = (Sample::default(), Sample::default());
    let rt = runtime();
    good(rt.block_on(distlock::vouch(&url)));
    let locks = good(rt.block_on(Locks::connect(&url)));
    rt.block_on(async {
        let floor = Floor::new(&servers).await;
        for round in 0..rounds + 100 {
            let start = Instant::now();
            floor.cycle().await;
            let took = start.elapsed();
            let start = Instant::now();
            let guard = good(locks.mutex("order:close:42").acquire().await);
            drop(guard.release().await);
            // The first rounds warm up.
            if round >= 100 {
                raw.push(took);
                ours.push(start.elapsed());
            }
        }
    });
    let (floor, ours, p99) = (raw.p50(), ours.p50(), ours.quantile(0.99));
    let r = ratio(ours, floor);
    report.row(
        "acquire + release, 1 task, p50 (floor: our three scripts sent raw to all five)",
        format!("{floor:?}"),
        format!("{ours:?} ({r:.2} x)"),
        "<= 1.30 x",
        r <= 1.30,
    );
    report.note("the same, p99", format!("{p99:?}"));
    let addresses: Vec<String> = servers
        .iter()
        .map(|server| format!("redis://{}", server.address()))
        .collect();
    let mut peers = Peers::of_quorums(&addresses, programs, &mut report);
    alone::beside_peers(&mut report, &rt, &locks, &mut peers, if quick { 10 } else { 60 });
    report
}

/// Five connections, and the scripts' digests.
struct Floor {
    nodes: Vec<MultiplexedConnection>,
    digests: [String; 3],
}

impl Floor {
    async fn new(servers: &[Redis]) -> Self {
        let mut nodes = Vec::new();
        let mut digests: [String; 3] = Default::default();
        for server in servers {
            let mut node = connect(&server.url()).await;
            for (script, digest) in [ACQUIRE, RAISE, RELEASE].into_iter().zip(&mut digests) {
                let load = redis::cmd("SCRIPT").arg("LOAD").arg(script).to_owned();
                *digest = good(load.query_async::<String>(&mut node).await);
            }
            nodes.push(node);
        }
        Self { nodes, digests }
    }

    async fn cycle(&self) {
        let [acquire, raise, release] = &self.digests;
        let (lock, record) = ("raw:order:close:42", "{raw:order:close:42}:distlock");
        let mut cmd = Cmd::new();
        cmd.arg("EVALSHA")
            .arg(acquire)
            .arg(3)
            .arg(lock)
            .arg(record)
            .arg("distlock_born");
        cmd.arg(OWNER).arg(TTL_MS).arg(ABOUT).arg(OWNER);
        let mut token = 0;
        for answer in self.all(&cmd).await {
            match answer {
                Value::Array(words) if matches!(words.first(), Some(Value::Int(_))) => {
                    if let Some(Value::Int(minted)) = words.first() {
                        token = token.max(*minted);
                    }
                }
                other => panic!("not obtained: {other:?}"),
            }
        }
        let mut cmd = Cmd::new();
        cmd.arg("EVALSHA").arg(raise).arg(2).arg(lock).arg(record);
        cmd.arg(OWNER).arg(TTL_MS).arg(token);
        self.all(&cmd).await;
        let mut cmd = Cmd::new();
        cmd.arg("EVALSHA").arg(release).arg(1).arg(lock);
        cmd.arg(OWNER).arg("distlock_channel:{raw:order:close:42}").arg(0);
        self.all(&cmd).await;
    }

    async fn all(&self, cmd: &Cmd) -> Vec<Value> {
        let one = async |node: &MultiplexedConnection| good(node.clone().send_packed_command(cmd).await);
        join_all(self.nodes.iter().map(one)).await
    }
}
