//! The Redis engine against its own scripts sent raw by the same client, and against the bare minimum.

use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use distlock::{Guard, Locks};
use redis::aio::MultiplexedConnection;
use redis::{Cmd, IntoConnectionInfo, ProtocolVersion, RedisConnectionInfo, Value};
use tokio::runtime::Runtime;

use crate::children::runtime;
use crate::report::Report;
use crate::sample::{Sample, cpu, ratio};

const TTL_MS: u64 = 30_000;

/// What the engine itself sends for a mutex.
const ACQUIRE: &str = concat!(
    include_str!("../../distlock-redis/src/scripts/mint.lua"),
    include_str!("../../distlock-redis/src/scripts/mutex_acquire.lua")
);
const RELEASE: &str = include_str!("../../distlock-redis/src/scripts/mutex_release.lua");
/// What everybody writes first.
const COMPARE_AND_DELETE: &str =
    "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) else return 0 end";

pub(crate) fn measure(quick: bool) -> Report {
    let mut report = Report::new("redis");
    let Some(server) = Server::start() else {
        report.note("skipped", "no redis-server");
        return report;
    };
    let rt = runtime();
    let bench = rt.block_on(Bench::new(&server));
    one_task(&mut report, &rt, &bench, if quick { 200 } else { 2000 });
    many_tasks(&mut report, &rt, &bench, if quick { 7 } else { 31 });
    held(
        &mut report,
        &server,
        Duration::from_secs(if quick { 30 } else { 180 }),
    );
    report
}

/// A private server; killed when dropped.
struct Server {
    child: Child,
    port: u16,
    _dir: tempfile::TempDir,
}

impl Server {
    fn start() -> Option<Self> {
        let dir = tempfile::tempdir().ok()?;
        let port = TcpListener::bind("127.0.0.1:0")
            .and_then(|l| l.local_addr())
            .ok()?
            .port();
        let program = std::env::var("DISTLOCK_REDIS_SERVER").unwrap_or_else(|_| "redis-server".into());
        let child = Command::new(program)
            .args(["--bind", "127.0.0.1", "--save", "", "--port", &port.to_string()])
            .arg("--dir")
            .arg(dir.path())
            .stdout(Stdio::null())
            .spawn()
            .ok()?;
        let server = Self {
            child,
            port,
            _dir: dir,
        };
        let end = Instant::now() + Duration::from_secs(20);
        while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
            if Instant::now() > end {
                return None;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Some(server)
    }

    fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn good<T, E: std::fmt::Display>(result: Result<T, E>) -> T {
    match result {
        Ok(value) => value,
        Err(e) => panic!("{e}"),
    }
}

/// The three ways to take and give back a lock, each over one connection that is set up alike.
struct Bench {
    locks: Locks,
    raw: MultiplexedConnection,
    acquire: String,
    release: String,
    compare: String,
    /// As long as the engine's description of a holder.
    about: String,
}

async fn connect(url: &str) -> MultiplexedConnection {
    let info = good(url.into_connection_info());
    let settings = RedisConnectionInfo::default().set_protocol(ProtocolVersion::RESP3);
    let client = good(redis::Client::open(info.set_redis_settings(settings)));
    good(client.get_multiplexed_async_connection().await)
}

impl Bench {
    async fn new(server: &Server) -> Self {
        let locks = good(Locks::connect(&server.url()).await);
        let mut raw = connect(&server.url()).await;
        let mut digests = Vec::new();
        for script in [ACQUIRE, RELEASE, COMPARE_AND_DELETE] {
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

    async fn ours(&self, key: &str) {
        let guard = good(self.locks.mutex(key).acquire().await);
        drop(guard.release().await);
    }

    async fn send(&self, cmd: &Cmd) {
        let mut raw = self.raw.clone();
        match good(raw.send_packed_command(cmd).await) {
            Value::Int(n) if n > 0 => {}
            Value::Okay => {}
            other => panic!("not obtained: {other:?}"),
        }
    }

    async fn scripts(&self, key: &str, owner: &str) {
        let mut cmd = Cmd::new();
        cmd.arg("EVALSHA").arg(&self.acquire).arg(3);
        cmd.arg(format!("raw:{key}"))
            .arg(format!("redisson_lock_queue:{{raw:{key}}}"));
        cmd.arg(format!("{{raw:{key}}}:distlock"))
            .arg(owner)
            .arg(TTL_MS)
            .arg(&self.about);
        self.send(&cmd).await;
        let mut cmd = Cmd::new();
        cmd.arg("EVALSHA").arg(&self.release).arg(2);
        cmd.arg(format!("raw:{key}"))
            .arg(format!("redisson_lock_queue:{{raw:{key}}}"));
        cmd.arg(owner)
            .arg(format!("redisson_lock__channel:{{raw:{key}}}"))
            .arg(0);
        self.send(&cmd).await;
    }

    async fn bare(&self, key: &str, owner: &str) {
        let key = format!("bare:{key}");
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
            Way::Ours => self.ours(key).await,
            Way::Scripts => self.scripts(key, owner).await,
            Way::Bare => self.bare(key, owner).await,
        }
    }
}

#[derive(Clone, Copy)]
enum Way {
    Ours,
    Scripts,
    Bare,
}

const WAYS: [Way; 3] = [Way::Ours, Way::Scripts, Way::Bare];
const OWNER: &str = "018f0000-0000-7000-8000-000000000001:1";

fn one_task(report: &mut Report, rt: &Runtime, bench: &Bench, rounds: usize) {
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
fn many_tasks(report: &mut Report, rt: &Runtime, bench: &Bench, rounds: usize) {
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

/// Many holds of one process, with the watchdog.
fn held(report: &mut Report, server: &Server, watch: Duration) {
    const HOLDS: usize = 100_000;
    let rt = runtime();
    let guards: Vec<Guard> = rt.block_on(async {
        let locks = good(Locks::connect(&server.url()).await);
        let mut guards = Vec::with_capacity(HOLDS);
        for from in (0..HOLDS).step_by(500) {
            let batch = (from..from + 500).map(|i| locks.mutex(format!("held:{i}")).acquire());
            guards.extend(futures_util::future::join_all(batch).await.into_iter().map(good));
        }
        guards
    });
    let calls = || rt.block_on(async { evalsha_calls(&mut connect(&server.url()).await).await });
    let (calls0, cpu0, start) = (calls(), cpu(), Instant::now());
    std::thread::sleep(watch);
    let seconds = start.elapsed().as_secs_f64();
    let share = (cpu() - cpu0).as_secs_f64() / seconds * 100.0;
    let rate = calls().saturating_sub(calls0) as f64 / seconds;
    let lost: Vec<_> = guards.iter().filter(|g| !g.is_held()).collect();
    if let Some(guard) = lost.first() {
        report.note("why the first was lost", rt.block_on(guard.lost()));
    }
    let lost = lost.len();
    report.row(
        format!("{HOLDS} held, ttl 30 s, {watch:?}"),
        "",
        format!("{share:.2} % of a core, {rate:.0} evalsha/s, {lost} lost"),
        "<= 5 % of a core, <= 200 evalsha/s, none lost",
        share <= 5.0 && rate <= 200.0 && lost == 0,
    );
}

async fn evalsha_calls(connection: &mut MultiplexedConnection) -> u64 {
    let info: String = good(
        redis::cmd("INFO")
            .arg("commandstats")
            .query_async(connection)
            .await,
    );
    let line = info
        .lines()
        .find_map(|l| l.strip_prefix("cmdstat_evalsha:calls="));
    line.and_then(|l| l.split(',').next()?.parse().ok()).unwrap_or(0)
}
