//! One client and a lock that nobody else wants.

use std::time::{Duration, Instant};

use distlock::Locks;
use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::{Cmd, Value};
use tokio::runtime::Runtime;

use super::peer::Peers;
use crate::report::{Report, good};
use crate::sample::{Sample, ratio};

pub(super) const TTL_MS: u64 = 30_000;

/// What the engine itself sends for a mutex.
const ACQUIRE: &str = concat!(
    include_str!("../../../distlock-redis/src/scripts/mint.lua"),
    include_str!("../../../distlock-redis/src/scripts/mutex_acquire.lua")
);
const RELEASE: &str = include_str!("../../../distlock-redis/src/scripts/mutex_release.lua");
/// What everybody writes first.
const COMPARE_AND_DELETE: &str =
    "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) else return 0 end";

/// The three ways to take and give back a lock, each over one connection that is set up alike.
pub(super) struct Bench<C = MultiplexedConnection> {
    pub(super) locks: Locks,
    raw: C,
    acquire: String,
    release: String,
    compare: String,
    /// As long as the engine's description of a holder.
    about: String,
}

impl<C: ConnectionLike + Clone> Bench<C> {
    /// `publish`: the command by which a release tells the waiters.
    pub(super) async fn new(url: &str, mut raw: C, publish: &str) -> Self {
        let locks = good(Locks::connect(url).await);
        let mut digests = Vec::new();
        let release = RELEASE.replace("PUBLISH", publish);
        for script in [ACQUIRE, &release, COMPARE_AND_DELETE] {
            let load = redis::cmd("SCRIPT").arg("LOAD").arg(script).to_owned();
            digests.push(good(load.query_async::<String>(&mut raw).await));
        }
        let guard = good(locks.mutex("about").acquire().await);
        let get = redis::cmd("GET").arg("{distlock:about}:distlock").to_owned();
        let record: String = good(get.query_async(&mut raw).await);
        drop(guard.release().await);
        let about = record.trim_start_matches(|c: char| c.is_ascii_digit()).to_owned();
        let [acquire, release, compare] = <[String; 3]>::try_from(digests).unwrap_or_default();
        Self {
            locks,
            raw,
            acquire,
            release,
            compare,
            about,
        }
    }

    async fn send(&self, cmd: &Cmd) {
        let mut raw = self.raw.clone();
        match good(raw.req_packed_command(cmd).await) {
            Value::Int(n) if n > 0 => {}
            Value::Okay => {}
            other => panic!("not obtained: {other:?}"),
        }
    }

    async fn scripts(&self, key: &str, owner: &str) {
        let mut cmd = Cmd::new();
        cmd.arg("EVALSHA").arg(&self.acquire).arg(3);
        // In the slot of our own, so that the same node of a cluster is asked.
        let lock = format!("{{distlock:{key}}}:raw");
        let queue = format!("redisson_lock_queue:raw:{{distlock:{key}}}");
        cmd.arg(&lock)
            .arg(&queue)
            .arg(format!("{lock}:distlock"))
            .arg(owner)
            .arg(TTL_MS)
            .arg(&self.about);
        self.send(&cmd).await;
        let mut cmd = Cmd::new();
        cmd.arg("EVALSHA").arg(&self.release).arg(2);
        cmd.arg(&lock)
            .arg(&queue)
            .arg(owner)
            .arg(format!("redisson_lock__channel:raw:{{distlock:{key}}}"))
            .arg(0);
        self.send(&cmd).await;
    }

    async fn bare(&self, key: &str, owner: &str) {
        let key = format!("{{distlock:{key}}}:bare");
        let mut cmd = Cmd::new();
        cmd.arg("SET")
            .arg(&key)
            .arg(owner)
            .arg("NX")
            .arg("PX")
            .arg(TTL_MS);
        self.send(&cmd).await;
        let mut cmd = Cmd::new();
        cmd.arg("EVALSHA").arg(&self.compare).arg(1).arg(&key).arg(owner);
        self.send(&cmd).await;
    }

    async fn cycle(&self, way: Way, key: &str, owner: &str) {
        match way {
            Way::Ours => ours(&self.locks, key).await,
            Way::Scripts => self.scripts(key, owner).await,
            Way::Bare => self.bare(key, owner).await,
        }
    }
}

async fn ours(locks: &Locks, key: &str) {
    let guard = good(locks.mutex(key).acquire().await);
    drop(guard.release().await);
}

#[derive(Clone, Copy)]
enum Way {
    Ours,
    Scripts,
    Bare,
}

const WAYS: [Way; 3] = [Way::Ours, Way::Scripts, Way::Bare];
pub(super) const OWNER: &str = "018f0000-0000-7000-8000-000000000001:1";

pub(super) fn one_task(
    report: &mut Report,
    rt: &Runtime,
    bench: &Bench<impl ConnectionLike + Clone>,
    rounds: usize,
) {
    let mut samples: [Sample; 3] = Default::default();
    rt.block_on(async {
        for _ in 0..100 {
            for way in WAYS {
                bench.cycle(way, "order:close:42", OWNER).await;
            }
        }
        for _ in 0..rounds {
            for (way, sample) in WAYS.into_iter().zip(&mut samples) {
                for _ in 0..5 {
                    let start = Instant::now();
                    bench.cycle(way, "order:close:42", OWNER).await;
                    sample.push(start.elapsed());
                }
            }
        }
    });
    let [ours, scripts, bare] = samples.map(|s| s.p50());
    let r = ratio(ours, scripts);
    report.row(
        "acquire + release, 1 task, p50 (floor: our two scripts sent raw)",
        format!("{scripts:?}"),
        format!("{ours:?} ({r:.2} x)"),
        "<= 1.10 x",
        r <= 1.10,
    );
    report.note(
        "the same against bare SET NX PX + compare-and-delete",
        format!("{:.2} x of {bare:?}", ratio(ours, bare)),
    );
}

/// 64 tasks on 64 keys over one connection: pairs a second, each round in all ways.
pub(super) fn many_tasks(
    report: &mut Report,
    rt: &Runtime,
    bench: &Bench<impl ConnectionLike + Clone>,
    rounds: usize,
) {
    const TASKS: usize = 64;
    const EACH: u32 = 30;
    let mut samples: [Sample; 3] = Default::default();
    rt.block_on(async {
        let names: Vec<String> = (0..TASKS).map(|i| format!("order:close:{i}")).collect();
        for round in 0..=rounds {
            for (way, sample) in WAYS.into_iter().zip(&mut samples) {
                let start = Instant::now();
                let tasks = names.iter().map(async |key| {
                    for _ in 0..EACH {
                        bench.cycle(way, key, OWNER).await;
                    }
                });
                futures_util::future::join_all(tasks).await;
                // The first round warms up.
                if round > 0 {
                    sample.push(start.elapsed() / (EACH * 64));
                }
            }
        }
    });
    let [ours, scripts, bare] = samples.map(|s| s.p50());
    let rate = |each: Duration| format!("{:.0} pairs/s", 1.0 / each.as_secs_f64());
    for (floor, what, least) in [
        (scripts, "our two scripts sent raw", 0.95),
        (bare, "bare SET NX PX + compare-and-delete", 0.6),
    ] {
        let r = ratio(floor, ours);
        report.row(
            format!("64 tasks on 64 keys, one connection, median of {rounds} (floor: {what})"),
            rate(floor),
            format!("{} ({r:.2} x)", rate(ours)),
            format!(">= {least} x"),
            r >= least,
        );
    }
}

/// The same beside other products, each in a process of its own.
pub(super) fn beside_peers(
    report: &mut Report,
    rt: &Runtime,
    locks: &Locks,
    peers: &mut Peers,
    rounds: usize,
) {
    for (tasks, each) in [(1, 50), (64, 30)] {
        let names: Vec<String> = (0..tasks).map(|i| format!("order:close:{i}")).collect();
        let mut mine = Sample::default();
        let mut theirs: Vec<Sample> = vec![Sample::default(); peers.0.len()];
        // The first rounds warm up, a compiler among others.
        for round in 0..rounds + 20 {
            let start = Instant::now();
            rt.block_on(futures_util::future::join_all(names.iter().map(async |key| {
                for _ in 0..each {
                    ours(locks, key).await;
                }
            })));
            let took = start.elapsed();
            let times: Vec<Duration> = peers.0.iter_mut().map(|peer| peer.pairs(tasks, each)).collect();
            if round < 20 {
                continue;
            }
            let pairs = u32::try_from(tasks * each).unwrap_or(u32::MAX);
            mine.push(took / pairs);
            for (sample, time) in theirs.iter_mut().zip(times) {
                sample.push(time / pairs);
            }
        }
        for (peer, sample) in peers.0.iter().zip(theirs) {
            let r = ratio(mine.p50(), sample.p50());
            let figure = format!("{:?} ({r:.2} x)", mine.p50());
            let [what, floor] = [
                format!(
                    "acquire + release, {tasks} tasks, time for a pair (floor: {})",
                    peer.name
                ),
                format!("{:?}", sample.p50()),
            ];
            match peer.slack {
                slack if tasks == 1 => {
                    report.row(what, floor, figure, format!("<= {slack:.2} x"), r <= slack);
                }
                // One that does less: many tasks show the server's time for its scripts, as the rows above do.
                slack if slack > 1.0 => report.note(what, format!("{figure} of {floor}")),
                _ => report.row(what, floor, figure, "<= 1.00 x", r <= 1.0),
            }
        }
    }
}
