//! The SQL engines against their own statements, prepared on the raw drivers.

mod contend;
mod peers;
mod raw;

use std::time::{Duration, Instant};

use distlock::{Guard, Locks};
use distlock_testkit::proxy::{Fault, Proxy};
use distlock_testkit::servers::{MariaDb, Postgres, Setup, StartError};
use tokio::runtime::Runtime;

pub(crate) use self::contend::take_turns;
use self::raw::Raw;
use crate::peer::PeerPrograms;
use crate::report::{Report, good};
use crate::sample::{Sample, ratio};

/// A database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dialect {
    Postgres,
    Mysql,
}

impl Dialect {
    fn name(self) -> &'static str {
        match self {
            Self::Postgres => "postgres",
            Self::Mysql => "mysql",
        }
    }

    fn url(self, address: &str) -> String {
        match self {
            Self::Postgres => format!("postgres://postgres@{address}/postgres"),
            Self::Mysql => format!("mysql://root@{address}/distlock"),
        }
    }
}

enum Server {
    Postgres(Postgres),
    Mysql(MariaDb),
}

impl Server {
    async fn start(dialect: Dialect) -> Result<Self, StartError> {
        Ok(match dialect {
            Dialect::Postgres => Self::Postgres(Postgres::start().await?),
            Dialect::Mysql => {
                let setup = Setup::default().settings(["--max-connections=500"]);
                Self::Mysql(MariaDb::start_with(setup).await?)
            }
        })
    }

    fn address(&self) -> String {
        match self {
            Self::Postgres(server) => server.address(),
            Self::Mysql(server) => server.address(),
        }
    }
}

pub(crate) fn measure(dialect: Dialect, quick: bool, programs: &PeerPrograms) -> Report {
    let mut report = Report::new(dialect.name());
    // The proxy needs a thread of its own.
    let rt = good(
        tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build(),
    );
    let server = match rt.block_on(Server::start(dialect)) {
        Ok(server) => server,
        Err(e) => {
            report.note("skipped", e);
            return report;
        }
    };
    let address = server.address();
    let local = crate::children::runtime();
    let bench = local.block_on(Bench::new(dialect, &address));
    one_task(
        &mut report,
        &local,
        dialect,
        &address,
        if quick { 20 } else { 100 },
    );
    many_tasks(&mut report, &local, &bench, if quick { 5 } else { 21 });
    let rounds = if quick { 10 } else { 60 };
    if dialect == Dialect::Postgres {
        peers::sqlx(&mut report, &local, &bench, &address, 10 * rounds);
    }
    peers::programs(&mut report, &local, &bench, &address, programs, rounds);
    round_trips(&mut report, &rt, dialect, &address);
    contend::measure(&mut report, &rt, dialect, &address, quick);
    held(
        &mut report,
        &local,
        &bench,
        Duration::from_secs(if quick { 12 } else { 40 }),
    );
    report
}

/// Our locks, and the same statements on the raw driver.
struct Bench {
    dialect: Dialect,
    locks: Locks,
    raw: Raw,
}

#[derive(Clone, Copy)]
enum Way {
    Ours,
    Raw,
}

const WAYS: [Way; 2] = [Way::Ours, Way::Raw];

impl Bench {
    async fn new(dialect: Dialect, address: &str) -> Self {
        let locks = good(Locks::connect(&dialect.url(address)).await);
        // The first use makes the table, which the raw statements need.
        good(good(locks.mutex("order:close:0").acquire().await).release().await);
        Self {
            dialect,
            raw: Raw::new(dialect, address).await,
            locks,
        }
    }

    async fn cycle(&self, way: Way, i: usize) {
        match way {
            Way::Ours => {
                let guard = good(self.locks.mutex(format!("order:close:{i}")).acquire().await);
                drop(guard.release().await);
            }
            Way::Raw => self.raw.cycle(i).await,
        }
    }

    /// So many tasks at the same time, each with a key of its own.
    async fn many(&self, way: Way, tasks: usize, each: usize) {
        let tasks = (0..tasks).map(async |i| {
            for _ in 0..each {
                self.cycle(way, i).await;
            }
        });
        futures_util::future::join_all(tasks).await;
    }
}

/// Where the scheduler puts a server's process that serves one connection makes twice the difference between waking it
/// and not: each trial has connections of its own, and the trials' ratios are compared.
fn one_task(report: &mut Report, rt: &Runtime, dialect: Dialect, address: &str, rounds: usize) {
    let mut trials: Vec<(f64, Duration, Duration)> = (0..TRIALS)
        .map(|_| rt.block_on(trial(dialect, address, rounds)))
        .collect();
    trials.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (r, ours, raw) = trials[TRIALS / 2];
    let (least, most) = (trials[0].0, trials[TRIALS - 1].0);
    report.row(
        format!(
            "acquire + release, 1 task, p50, median of {TRIALS} trials (floor: our two statements, prepared, raw)"
        ),
        format!("{raw:?}"),
        format!("{ours:?} ({r:.2} x; {least:.2} to {most:.2})"),
        "<= 1.15 x",
        r <= 1.15,
    );
}

const TRIALS: usize = 15;

async fn trial(dialect: Dialect, address: &str, rounds: usize) -> (f64, Duration, Duration) {
    let bench = Bench::new(dialect, address).await;
    let mut samples: [Sample; 2] = Default::default();
    for round in 0..rounds + 20 {
        for (way, sample) in WAYS.into_iter().zip(&mut samples) {
            for _ in 0..3 {
                let start = Instant::now();
                bench.cycle(way, 42).await;
                if round >= 20 {
                    sample.push(start.elapsed());
                }
            }
        }
    }
    bench.locks.shutdown(Duration::from_secs(5)).await;
    let [ours, raw] = samples.map(|s| s.p50());
    (ratio(ours, raw), ours, raw)
}

/// Over a way that takes long, the time is that of round trips alone.
fn round_trips(report: &mut Report, rt: &Runtime, dialect: Dialect, address: &str) {
    let by = Duration::from_millis(20);
    let mut sample = Sample::default();
    rt.block_on(async {
        let proxy = good(Proxy::start(address).await);
        let locks = good(Locks::connect(&dialect.url(&proxy.address())).await);
        good(good(locks.mutex("trip").acquire().await).release().await);
        let jitter = Duration::ZERO;
        proxy.both(Fault::Delay { by, jitter });
        for _ in 0..10 {
            let start = Instant::now();
            good(good(locks.mutex("trip").acquire().await).release().await);
            sample.push(start.elapsed());
        }
    });
    let trips = ratio(sample.p50(), 2 * by);
    report.row(
        format!("acquire + release over a way of {:?}, in round trips", 2 * by),
        "2",
        format!("{trips:.2}"),
        "2",
        trips < 2.5,
    );
}

/// 64 tasks on 64 keys, with as many connections as the engine opens: pairs a second.
fn many_tasks(report: &mut Report, rt: &Runtime, bench: &Bench, rounds: usize) {
    const TASKS: usize = 64;
    const EACH: usize = 10;
    let mut samples: [Sample; 2] = Default::default();
    rt.block_on(async {
        for round in 0..=rounds {
            for (way, sample) in WAYS.into_iter().zip(&mut samples) {
                let start = Instant::now();
                bench.many(way, TASKS, EACH).await;
                // The first round warms up.
                if round > 0 {
                    sample.push(start.elapsed() / (TASKS * EACH) as u32);
                }
            }
        }
    });
    let [ours, raw] = samples.map(|s| s.p50());
    let r = ratio(raw, ours);
    let rate = |each: Duration| format!("{:.0} pairs/s", 1.0 / each.as_secs_f64());
    let how = match bench.dialect {
        Dialect::Postgres => "pipelined on 2 connections",
        Dialect::Mysql => "16 connections",
    };
    report.row(
        format!("64 tasks on 64 keys, {how}, median of {rounds} (floor: raw, as many connections)"),
        rate(raw),
        format!("{} ({r:.2} x)", rate(ours)),
        ">= 0.85 x",
        r >= 0.85,
    );
}

/// Many holds of one process, with the watchdog.
fn held(report: &mut Report, rt: &Runtime, bench: &Bench, watch: Duration) {
    const HOLDS: usize = 10_000;
    let guards: Vec<Guard> = rt.block_on(async {
        let mut guards = Vec::with_capacity(HOLDS);
        for from in (0..HOLDS).step_by(100) {
            let batch = (from..from + 100).map(|i| bench.locks.mutex(format!("held:{i}")).acquire());
            guards.extend(futures_util::future::join_all(batch).await.into_iter().map(good));
        }
        guards
    });
    // A session of PostgreSQL that has become idle says only after ten seconds how much it did.
    std::thread::sleep(Duration::from_secs(11));
    let before = rt.block_on(bench.raw.statements());
    let start = Instant::now();
    std::thread::sleep(watch);
    let after = rt.block_on(bench.raw.statements());
    let rate = after.saturating_sub(before) as f64 / start.elapsed().as_secs_f64();
    let lost = guards.iter().filter(|guard| !guard.is_held()).count();
    report.row(
        format!("{HOLDS} held, ttl 30 s, {watch:?}"),
        "",
        format!("{rate:.1} statements/s, {lost} lost"),
        "<= 50 statements/s, none lost",
        rate <= 50.0 && lost == 0,
    );
}
