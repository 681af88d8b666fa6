//! What is measured alike on etcd and ZooKeeper: a line of processes, requests counted at the server, many holds.

use std::io::{BufRead, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use distlock::{Guard, Locks, Order};
use futures_util::future::join_all;

use crate::children::{Helper, now, say};
use crate::report::Report;
use crate::sample::{Sample, ratio};

/// The processes of a line, and how long they stand in it.
const PROCESSES: usize = 16;
const KEY: &str = "line";

/// A program of a peer that `scripts/bench` has built.
pub(crate) fn peer(name: &str) -> Option<PathBuf> {
    let home = std::env::var_os("DISTLOCK_BENCH_PEERS")?;
    Some(Path::new(&home).join(name)).filter(|path| path.exists())
}

/// The numbers that a program prints as its last line.
pub(crate) fn numbers(command: Command) -> Sample {
    let mut helper = Helper::run(command);
    sample(&helper.line())
}

fn sample(line: &str) -> Sample {
    let mut sample = Sample::default();
    for word in line.split_whitespace() {
        sample.push(Duration::from_nanos(word.parse().unwrap_or(0)));
    }
    sample
}

/// One process of the line: grants and releases in turn, for as long as the line says that starts it.
pub(crate) async fn stand(url: &str) {
    let locks = match Locks::connect(url).await {
        Ok(locks) => locks,
        Err(e) => panic!("{e}"),
    };
    say("ready");
    let mut start = String::new();
    let _ = std::io::stdin().lock().read_line(&mut start);
    let end = now() + start.trim().parse::<u64>().unwrap_or(0) * 1_000_000;
    let mut moments = Vec::new();
    while now() < end {
        let Ok(guard) = locks.mutex(KEY).acquire().await else {
            continue;
        };
        let granted = now();
        tokio::time::sleep(Duration::from_millis(1)).await;
        let released = now();
        drop(guard.release().await);
        moments.extend([granted, released]);
    }
    say(moments.iter().map(u64::to_string).collect::<Vec<_>>().join(" "));
    locks.shutdown(Duration::from_secs(2)).await;
}

/// Hand-offs between the processes of a line: from the release of one to the grant of the next.
pub(crate) fn hand_offs(url: &str, time: Duration) -> Sample {
    hand_offs_of(|| Helper::start("line", Path::new(url)), time)
}

pub(crate) fn hand_offs_of(start: impl Fn() -> Helper, time: Duration) -> Sample {
    let mut line: Vec<Helper> = (0..PROCESSES).map(|_| start()).collect();
    for process in &mut line {
        process.line();
    }
    for process in &mut line {
        if let Some(stdin) = &mut process.child.stdin {
            let _ = writeln!(stdin, "{}", time.as_millis());
        }
    }
    let mut holds: Vec<(u64, u64)> = Vec::new();
    for process in &mut line {
        let line = process.line();
        let moments: Vec<u64> = line.split_whitespace().map(|m| m.parse().unwrap_or(0)).collect();
        holds.extend(moments.chunks_exact(2).map(|pair| (pair[0], pair[1])));
    }
    holds.sort_unstable();
    let mut sample = Sample::default();
    for pair in holds.windows(2) {
        sample.push(Duration::from_nanos(pair[1].0.saturating_sub(pair[0].1)));
    }
    sample
}

/// Requests that reach the server for each hand-off of a line of so many waiters that line up again.
async fn requests(locks: &Locks, waiters: usize, turns: u64, count: impl AsyncFn() -> u64) -> f64 {
    let key = format!("queue:{waiters}");
    let taken = Arc::new(AtomicU64::new(0));
    let Ok(first) = locks.mutex(&key).acquire().await else {
        return f64::NAN;
    };
    let tasks: Vec<_> = (0..waiters)
        .map(|_| {
            let (locks, key, taken) = (locks.clone(), key.clone(), taken.clone());
            tokio::spawn(async move {
                loop {
                    let Ok(guard) = locks.mutex(&key).order(Order::Fifo).acquire().await else {
                        continue;
                    };
                    taken.fetch_add(1, Ordering::Relaxed);
                    drop(guard.release().await);
                }
            })
        })
        .collect();
    // A look reads the whole line.
    let pause = || tokio::time::sleep(Duration::from_millis(50));
    while locks.inspect(&key).await.map_or(0, |info| info.waiters.len()) < waiters {
        pause().await;
    }
    let before = count().await;
    drop(first.release().await);
    while taken.load(Ordering::Relaxed) < turns {
        pause().await;
    }
    let requests = count().await - before;
    let turns = taken.load(Ordering::Relaxed);
    for task in tasks {
        task.abort();
    }
    requests as f64 / turns as f64
}

/// The row that says whether requests grow with the line.
pub(crate) async fn flat(report: &mut Report, locks: &Locks, count: impl AsyncFn() -> u64) {
    let (few, many) = (
        requests(locks, 10, 1000, &count).await,
        requests(locks, 1000, 1000, &count).await,
    );
    report.row(
        "requests at the server per hand-off and lining up again, 1,000 waiters (floor: 10 waiters)",
        format!("{few:.1}"),
        format!("{many:.1} ({:.2} x)", many / few),
        "<= 1.15 x",
        many <= few * 1.15,
    );
}

/// The row of many holds in one process: requests while they are only held.
pub(crate) async fn held(
    report: &mut Report,
    locks: &Locks,
    watch: Duration,
    count: impl AsyncFn() -> u64,
    leases: impl AsyncFn() -> u64,
) {
    const HOLDS: usize = 10_000;
    let take = async |from: usize, to: usize| {
        let mut guards: Vec<Guard> = Vec::new();
        for start in (from..to).step_by(200) {
            let batch = (start..to.min(start + 200)).map(|i| locks.mutex(format!("held:{i}")).acquire());
            guards.extend(join_all(batch).await.into_iter().flatten());
        }
        // What follows a grant, such as its watch, is not renewal.
        tokio::time::sleep(Duration::from_secs(2)).await;
        guards
    };
    let rate = async || {
        let before = count().await;
        tokio::time::sleep(watch).await;
        (count().await - before) as f64 / watch.as_secs_f64()
    };
    let before = leases().await;
    let mut guards = take(0, 10).await;
    let few = rate().await;
    guards.extend(take(10, HOLDS).await);
    let many = rate().await;
    let lost = HOLDS - guards.iter().filter(|guard| guard.is_held()).count();
    let leases = leases().await.saturating_sub(before);
    report.row(
        format!("{HOLDS} held in one process, ttl 30 s, {watch:?}: requests a second (floor: 10 held)"),
        format!("{few:.2}"),
        format!("{many:.2}, {leases} new leases or sessions, {lost} lost"),
        "<= floor + 1, at most one lease, none lost",
        many <= few + 1.0 && leases <= 1 && lost == 0,
    );
}

/// A row of a ratio to a floor.
pub(crate) fn against(report: &mut Report, what: &str, floor: Duration, ours: Duration, most: f64) {
    let r = ratio(ours, floor);
    report.row(
        what,
        format!("{floor:?}"),
        format!("{ours:?} ({r:.2} x)"),
        format!("<= {most} x"),
        r <= most,
    );
}
