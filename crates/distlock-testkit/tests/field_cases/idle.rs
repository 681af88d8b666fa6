//! What waiters cost while nothing happens, on every engine.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use distlock::Locks;
use distlock_testkit::history::Recorder;
use distlock_testkit::servers::{eventually, or_skip};
use distlock_testkit::torture::EngineUnderTest;
use distlock_testkit::worker::{Ask, Do, Fleet};
use futures_util::future::join_all;
use tokio::time::{Instant, sleep_until};

use crate::ask;

const WAITERS: usize = 1000;
const KEYS: usize = 100;
/// How long is measured.
const IDLE: Duration = Duration::from_secs(2);

/// The processor time of a process so far.
fn used(pid: u32) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    // After the name, which may hold anything: user and system time are fields 14 and 15.
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    let ticks: u64 = fields[11..=12].iter().map(|f| f.parse::<u64>().unwrap()).sum();
    Duration::from_millis(ticks * 1000 / rustix::param::clock_ticks_per_second())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f107_a_thousand_waiters_leave_the_processor_alone() {
    // Those of the engine in files, which has no server, are measured by its own test.
    let served = EngineUnderTest::NAMES.into_iter().filter(|name| *name != "file");
    join_all(served.map(waiters_on)).await;
}

async fn waiters_on(name: &str) {
    let Some(engine) = or_skip(EngineUnderTest::start(name).await) else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let fleet = Fleet::new(
        Path::new(env!("CARGO_BIN_EXE_distlock-worker")).to_owned(),
        engine.url().to_owned(),
        dir.path().to_owned(),
        dir.path().join("no-store"),
        Arc::new(Recorder::open(&dir.path().join("harness.jsonl"), 0).unwrap()),
    );
    let holder = Locks::connect(engine.url()).await.unwrap();
    // MySQL cannot notify: there each key that is waited for is asked for at a pace.
    let keys = if name == "mysql" { 1 } else { KEYS };
    let keys: Vec<String> = (0..keys).map(|n| format!("idle:{n}")).collect();
    let held = join_all(keys.iter().map(|key| holder.mutex(key.as_str()).acquire())).await;
    assert!(held.iter().all(Result::is_ok), "{name}");
    let worker = fleet.start().unwrap();
    let events = dir.path().join(format!("worker-{}.jsonl", worker.process()));
    let waits = join_all((0..WAITERS).map(|n| {
        let key = keys[n % keys.len()].clone();
        worker.ask(Do::Acquire(Ask { key, ..ask(30_000) }))
    }));
    let idle = async {
        let all_asked = eventually(Duration::from_secs(60), async || {
            let asked = std::fs::read_to_string(&events).unwrap_or_default();
            (asked.lines().count() >= WAITERS).then_some(())
        });
        all_asked.await.unwrap_or_else(|| panic!("{name}: not all wait"));
        let mut least = IDLE;
        for _ in 0..8 {
            let (before, start) = (used(worker.pid()), Instant::now());
            sleep_until(start + IDLE).await;
            least = least.min(used(worker.pid()) - before);
            if least < IDLE / 20 {
                break;
            }
        }
        least
    };
    tokio::select! {
        _ = waits => panic!("{name}: a waiter was answered"),
        used = idle => assert!(used < IDLE / 20, "{name}: {used:?} of {IDLE:?}"),
    }
}
