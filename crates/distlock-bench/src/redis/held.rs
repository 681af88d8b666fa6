//! Very many locks that one process holds at once.

use std::time::{Duration, Instant};

use distlock::{Guard, Locks};
use distlock_testkit::servers::Redis;
use tokio::runtime::Runtime;

use super::scripts_run;
use crate::report::{Report, good};
use crate::sample::cpu;

/// Many holds of one process, with the watchdog.
pub(super) fn measure(report: &mut Report, rt: &Runtime, url: &str, servers: &[Redis], watch: Duration) {
    const HOLDS: usize = 100_000;
    let guards: Vec<Guard> = rt.block_on(async {
        let locks = good(Locks::connect(url).await);
        let mut guards = Vec::with_capacity(HOLDS);
        for from in (0..HOLDS).step_by(500) {
            let batch = (from..from + 500).map(|i| locks.mutex(format!("held:{i}")).acquire());
            guards.extend(futures_util::future::join_all(batch).await.into_iter().map(good));
        }
        guards
    });
    let calls = || servers.iter().map(|server| scripts_run(rt, server)).sum::<u64>();
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
