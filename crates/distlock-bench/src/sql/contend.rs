//! Sixteen processes want one key: how long from a release to the next grant, and what waiting costs.

use std::time::{Duration, Instant};

use distlock::Locks;
use distlock_testkit::proxy::{Fault, Proxy};
use tokio::runtime::Runtime;

use super::Dialect;
use super::raw::Raw;
use crate::children::{Helper, now};
use crate::report::{Report, good};
use crate::sample::{Sample, ratio};

const PROCESSES: usize = 16;
const HOLD: Duration = Duration::from_millis(30);

/// What a process does: takes turns until its input ends, and prints when each was granted and released.
pub(crate) async fn take_turns(url: &str, mut turn: impl FnMut(u64, u64)) {
    let locks = good(Locks::connect(url).await);
    loop {
        let guard = good(locks.mutex("turns").acquire().await);
        let granted = now();
        tokio::time::sleep(HOLD).await;
        let releasing = now();
        drop(guard.release().await);
        turn(granted, releasing);
    }
}

pub(super) fn measure(report: &mut Report, rt: &Runtime, dialect: Dialect, address: &str, quick: bool) {
    let length = Duration::from_secs(if quick { 4 } else { 12 });
    match dialect {
        Dialect::Postgres => {
            let by = Duration::from_millis(5);
            let proxy = good(rt.block_on(Proxy::start(address)));
            let jitter = Duration::ZERO;
            proxy.both(Fault::Delay { by, jitter });
            let sample = hand_offs(&dialect.url(&proxy.address()), length);
            let trips = ratio(sample.p50(), 2 * by);
            report.row(
                format!(
                    "hand-off, {PROCESSES} processes over a way of {:?}, p50 of {}",
                    2 * by,
                    sample.len()
                ),
                "2 round trips",
                format!("{:.1?} ({trips:.2} round trips)", sample.p50()),
                "<= 4 round trips",
                trips <= 4.0,
            );
        }
        Dialect::Mysql => {
            let sample = hand_offs(&dialect.url(address), length);
            report.row(
                format!("hand-off, {PROCESSES} processes, p50 of {}", sample.len()),
                "",
                format!("{:.1?}", sample.p50()),
                "<= 30 ms",
                sample.p50() <= Duration::from_millis(30),
            );
        }
    }
    waiting(report, rt, dialect, address, length);
}

/// The times from a release to the next grant.
fn hand_offs(url: &str, length: Duration) -> Sample {
    let mut processes: Vec<Helper> = (0..PROCESSES)
        .map(|_| Helper::start("sql-turns", url.as_ref()))
        .collect();
    // Connections are made in the first turns.
    std::thread::sleep(length + Duration::from_secs(2));
    let mut turns = Vec::new();
    for process in &mut processes {
        good(process.child.kill());
        loop {
            let line = process.line();
            let Some((granted, released)) = line.split_once(' ') else {
                break;
            };
            // A line that the kill has cut is no turn.
            if let (Ok(granted), Ok(released)) = (granted.parse::<u64>(), released.parse::<u64>()) {
                turns.push((granted, released));
            }
        }
    }
    turns.sort_unstable();
    let warm = turns.first().map_or(0, |(granted, _)| granted + 2_000_000_000);
    let mut sample = Sample::default();
    for pair in turns.windows(2).filter(|pair| pair[0].0 > warm) {
        assert!(pair[0].1 <= pair[1].0, "two held at once");
        sample.push(Duration::from_nanos(pair[1].0 - pair[0].1));
    }
    sample
}

/// What fifteen processes cost that wait for a lock which is held all the time.
fn waiting(report: &mut Report, rt: &Runtime, dialect: Dialect, address: &str, length: Duration) {
    let url = dialect.url(address);
    let (rate, waiters) = rt.block_on(async {
        let locks = good(Locks::connect(&url).await);
        let held = good(locks.mutex("turns").wait(Duration::from_secs(60)).acquire().await);
        let waiters: Vec<Helper> = (1..PROCESSES)
            .map(|_| Helper::start("sql-turns", url.as_ref()))
            .collect();
        tokio::time::sleep(Duration::from_secs(3)).await;
        let raw = Raw::new(dialect, address).await;
        let (before, start) = (raw.statements().await, Instant::now());
        tokio::time::sleep(length).await;
        let made = raw.statements().await.saturating_sub(before);
        let rate = made as f64 / start.elapsed().as_secs_f64();
        drop(held.release().await);
        (rate, waiters.len())
    });
    let each = rate / waiters as f64;
    report.row(
        format!("{waiters} processes wait, statements/s of each"),
        "",
        format!("{each:.1}"),
        "<= 20",
        each <= 20.0,
    );
}
