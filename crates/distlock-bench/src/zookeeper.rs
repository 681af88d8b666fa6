//! The ZooKeeper engine against its own requests sent raw by the same client, and beside Curator.

use std::process::Command;
use std::time::{Duration, Instant};

use distlock::Locks;
use distlock_testkit::servers::ZooKeeper;
use futures_util::future::join;
use zookeeper_client::{Acls, Client, CreateMode};

use crate::children::runtime;
use crate::line::{against, flat, hand_offs, held, numbers, peer};
use crate::report::Report;
use crate::sample::Sample;

const DIR: &str = "/raw/order:close:42";
const PREFIX: &str = "/raw/order:close:42/_c_018f0000-0000-4000-8000-000000000001-lock-";

pub(crate) fn measure(quick: bool) -> Report {
    let mut report = Report::new("zookeeper, one server");
    let rt = runtime();
    let server = match rt.block_on(ZooKeeper::start(1)) {
        Ok(server) => server,
        Err(e) => {
            report.note("skipped", e);
            return report;
        }
    };
    let clients = rt.block_on(async {
        let connector = || Client::connector().with_session_timeout(Duration::from_secs(30));
        let raw = connector().connect(&server.addresses()[0]).await.ok()?;
        let other = connector().connect(&server.addresses()[0]).await.ok()?;
        let containers = CreateMode::Container.with_acls(Acls::anyone_all());
        raw.mkdir(DIR, &containers).await.ok()?;
        Some((Locks::connect(&server.url()).await.ok()?, raw, other))
    });
    let Some((locks, raw, other)) = clients else {
        report.note("skipped", "no connection");
        return report;
    };
    let rounds = if quick { 4 } else { 16 };
    let (mut ours, mut floor) = (Sample::default(), Sample::default());
    for round in 0..=rounds {
        let (a, b) = rt.block_on(uncontended(&locks, &raw, 150));
        // The first rounds warm the server up.
        if round > rounds / 4 {
            ours.extend(a);
            floor.extend(b);
        }
    }
    let what =
        "acquire + release, 1 task, p50 (floor: create + list pipelined, delete, raw by the same client)";
    against(&mut report, what, floor.p50(), ours.p50(), 1.15);
    match peer("curator-classpath").and_then(|file| std::fs::read_to_string(file).ok()) {
        Some(classpath) => {
            let number = if quick { 2000 } else { 6000 };
            let mut command = Command::new("java");
            command.args([
                "-cp",
                classpath.trim(),
                "Curator",
                &server.addresses()[0],
                "30000",
            ]);
            command.args(["/curator", &number.to_string()]);
            // Its first half warms it up.
            let theirs = numbers(command).second_half().p50();
            let (a, _) = rt.block_on(uncontended(&locks, &raw, 600));
            let what = "the same (floor: Curator's InterProcessMutex, warmed up)";
            against(&mut report, what, theirs, a.p50(), 1.0);
        }
        None => report.note("Curator's InterProcessMutex", "skipped: no Java or no Maven"),
    }
    let raw_hand_off = rt.block_on(raw_hand_offs(&raw, &other, if quick { 200 } else { 1000 }));
    let hand_off = hand_offs(&server.url(), Duration::from_secs(if quick { 3 } else { 8 }));
    let what = "hand-off p50, 16 processes, one key (floor: delete, notification, list, raw)";
    against(&mut report, what, raw_hand_off.p50(), hand_off.p50(), 1.5);
    let packets = async || mntr(&server, "zk_packets_received").await;
    let sessions = async || mntr(&server, "zk_num_alive_connections").await;
    rt.block_on(flat(&mut report, &locks, &packets));
    let watch = Duration::from_secs(if quick { 11 } else { 30 });
    rt.block_on(held(&mut report, &locks, watch, &packets, &sessions));
    report
}

async fn uncontended(locks: &Locks, raw: &Client, times: usize) -> (Sample, Sample) {
    let options = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());
    let (mut ours, mut floor) = (Sample::default(), Sample::default());
    for _ in 0..times {
        let start = Instant::now();
        if let Ok(guard) = locks.mutex("order:close:42").acquire().await {
            drop(guard.release().await);
            ours.push(start.elapsed());
        }
        let start = Instant::now();
        // As long as the engine's own data.
        let create = raw.create(PREFIX, &[b'x'; 150], &options);
        let list = raw.list_children(DIR);
        if let (Ok((_, sequence)), Ok(_)) = join(create, list).await
            && raw.delete(&format!("{PREFIX}{sequence}"), None).await.is_ok()
        {
            floor.push(start.elapsed());
        }
    }
    (ours, floor)
}

/// One client deletes a node, the other is told, and lists.
async fn raw_hand_offs(one: &Client, other: &Client, times: usize) -> Sample {
    let options = CreateMode::Ephemeral.with_acls(Acls::anyone_all());
    let path = format!("{DIR}/held");
    let mut sample = Sample::default();
    for _ in 0..times {
        if one.create(&path, b"", &options).await.is_err() || other.sync("/").await.is_err() {
            continue;
        }
        let Ok((_, _, watcher)) = other.get_and_watch_data(&path).await else {
            continue;
        };
        let start = Instant::now();
        let delete = one.delete(&path, None);
        let told = async {
            watcher.changed().await;
            drop(other.list_children(DIR).await);
            start.elapsed()
        };
        sample.push(join(delete, told).await.1);
    }
    sample
}

/// A figure of the server's `mntr`.
async fn mntr(server: &ZooKeeper, name: &str) -> u64 {
    let answer = server.four_letters(0, "mntr").await.unwrap_or_default();
    let line = answer.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|value| value.trim().parse().ok()).unwrap_or(0)
}
