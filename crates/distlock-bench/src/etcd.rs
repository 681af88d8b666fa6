//! The etcd engine against two transactions sent raw by the same client, and beside Go's package `concurrency`.

use std::process::Command;
use std::time::{Duration, Instant};

use distlock::Locks;
use distlock_etcd::GuardTxn;
use distlock_testkit::servers::Etcd;

use crate::children::{Helper, runtime};
use crate::line::{against, flat, hand_offs, hand_offs_of, held, numbers, peer};
use crate::report::Report;
use crate::sample::Sample;

pub(crate) fn measure(quick: bool) -> Report {
    let mut report = Report::new("etcd, one member");
    let rt = runtime();
    let etcd = match rt.block_on(Etcd::start(1)) {
        Ok(etcd) => etcd,
        Err(e) => {
            report.note("skipped", e);
            return report;
        }
    };
    let locks = match rt.block_on(Locks::connect(&etcd.url())) {
        Ok(locks) => locks,
        Err(e) => {
            report.note("skipped", e);
            return report;
        }
    };
    let go = |what: &str, number: u64| {
        let mut command = Command::new(peer("go-concurrency")?);
        command
            .arg(&etcd.addresses()[0])
            .args(["30", what, &format!("go-{what}"), &number.to_string()]);
        Some(command)
    };
    let rounds = if quick { 3 } else { 12 };
    let (mut ours, mut raw, mut theirs) = (Sample::default(), Sample::default(), Sample::default());
    for round in 0..=rounds {
        let (a, b) = rt.block_on(uncontended(&locks, 150));
        let go = go("lock", 150).map(numbers);
        // The first round warms up.
        if round > 0 {
            ours.extend(a);
            raw.extend(b);
            theirs.extend(go.unwrap_or_default());
        }
    }
    let what = "acquire + release, 1 task, p50 (floor: two transactions sent raw by the same client)";
    against(&mut report, what, raw.p50(), ours.p50(), 1.15);
    if theirs.len() > 0 {
        let what = "the same (floor: Go's concurrency.Mutex)";
        against(&mut report, what, theirs.p50(), ours.p50(), 1.05);
        contended(&mut report, &etcd, &go, quick);
    } else {
        report.note("Go's concurrency.Mutex, and the raw hand-off", "skipped: no Go");
    }
    let received = async || sum(&etcd, "grpc_server_msg_received_total").await;
    let leases = async || sum(&etcd, "etcd_debugging_lease_granted_total").await;
    rt.block_on(flat(&mut report, &locks, &received));
    let watch = Duration::from_secs(if quick { 11 } else { 30 });
    rt.block_on(held(&mut report, &locks, watch, &received, &leases));
    report
}

async fn uncontended(locks: &Locks, times: usize) -> (Sample, Sample) {
    let (mut ours, mut raw) = (Sample::default(), Sample::default());
    let Ok(anchor) = locks.mutex("anchor").acquire().await else {
        return (ours, raw);
    };
    for _ in 0..times {
        let start = Instant::now();
        if let Ok(guard) = locks.mutex("order:close:42").acquire().await {
            drop(guard.release().await);
            ours.push(start.elapsed());
        }
        let start = Instant::now();
        // As long as the engine's own values.
        let write = anchor
            .txn()
            .map(|txn| txn.put("raw:order:close:42/7587.0", [b'x'; 150]).commit());
        let delete = anchor
            .txn()
            .map(|txn| txn.delete("raw:order:close:42/7587.0").commit());
        if let (Ok(write), Ok(delete)) = (write, delete)
            && write.await.is_ok()
            && delete.await.is_ok()
        {
            raw.push(start.elapsed());
        }
    }
    drop(anchor.release().await);
    (ours, raw)
}

fn contended(report: &mut Report, etcd: &Etcd, go: &dyn Fn(&str, u64) -> Option<Command>, quick: bool) {
    let time = Duration::from_secs(if quick { 3 } else { 8 });
    let raw = go("hand-off", if quick { 200 } else { 1000 })
        .map(numbers)
        .unwrap_or_default();
    let ours = hand_offs(&etcd.url(), time);
    let start = || match go("line", u64::try_from(time.as_millis()).unwrap_or(0)) {
        Some(command) => Helper::run(command),
        None => panic!("the program was there before"),
    };
    let theirs = hand_offs_of(start, time);
    let what = "hand-off p50, 16 processes, one key (floor: delete, notification, read, raw)";
    against(report, what, raw.p50(), ours.p50(), 1.5);
    let what = "the same (floor: 16 processes of Go's concurrency.Mutex)";
    against(report, what, theirs.p50(), ours.p50(), 1.0);
}

/// All series of a counter, added up.
async fn sum(etcd: &Etcd, name: &str) -> u64 {
    let metrics = etcd.metrics(0).await.unwrap_or_default();
    let values = metrics
        .lines()
        .filter(|line| line.starts_with(name))
        .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
    values.sum::<f64>() as u64
}
