//! Processes that contend on PostgreSQL and MariaDB, are killed and stopped, or have clocks that are wrong: the short
//! form of `scripts/torture postgres` and `scripts/torture mysql`.

#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use distlock_core::driver::Mode;
use distlock_testkit::check::Minimum;
use distlock_testkit::history::Recorder;
use distlock_testkit::servers::{FakeClock, or_skip};
use distlock_testkit::torture::{EngineUnderTest, Plan, run};
use distlock_testkit::worker::{Answer, Ask, Do, Fleet, Worker};

const WORKER: &str = env!("CARGO_BIN_EXE_distlock-worker");

async fn tortured(engine: &str) {
    let Some(engine) = or_skip(EngineUnderTest::start(engine).await) else {
        return;
    };
    let mut plan = Plan::new(1, Duration::from_secs(8), engine.ttl());
    (plan.kills, plan.stops) = (4, 6);
    plan.kill_every = plan.ttl;
    let minimum = Minimum {
        grants: 150,
        contended: 40,
        kills: 3,
        stops: 3,
        faults: 0,
        takeovers: 2,
    };
    let report = run(&engine, Path::new(WORKER), &plan, minimum).await.unwrap();
    report.prove();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f10_f85_killed_and_stopped_holders_on_postgres_are_taken_over() {
    tortured("postgres").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f10_f85_killed_and_stopped_holders_on_mariadb_are_taken_over() {
    tortured("mysql").await;
}

async fn asks(worker: &Worker, wait_ms: u64) -> Answer {
    let ask = Ask {
        key: "job".into(),
        mode: Mode::Mutex,
        fifo: false,
        ttl_ms: 2500,
        wait_ms: Some(wait_ms),
        renew: false,
    };
    worker.ask(Do::Acquire(ask)).await.unwrap()
}

/// One process' clock is right, one is three minutes ahead, one behind: each in turn holds a lease that ends by itself,
/// and the others, who try all the time, get it when the server says that it is over.
async fn clocks_disagree(engine: &str) {
    let Some(engine) = or_skip(EngineUnderTest::start(engine).await) else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let recorder = Arc::new(Recorder::open(&dir.path().join("harness.jsonl"), 0).unwrap());
    let mut workers = Vec::new();
    let mut clocks = Vec::new();
    for minutes in [0, 3, -3] {
        let Some(clock) = or_skip(FakeClock::new()) else {
            return;
        };
        clock.set(minutes * 60).unwrap();
        let mut fleet = Fleet::new(
            WORKER.into(),
            engine.url().into(),
            dir.path().join(format!("{minutes}")),
            dir.path().join("no-store"),
            recorder.clone(),
        );
        std::fs::create_dir(&fleet.dir).unwrap();
        let env = clock.env().into_iter();
        fleet.env = env
            .map(|(name, value)| (name.into_string().unwrap(), value.into_string().unwrap()))
            .collect();
        workers.push(fleet.start().unwrap());
        clocks.push(clock);
    }
    for turn in 0..3 {
        let asked = Instant::now();
        let held = asks(&workers[turn], 20_000).await;
        assert!(matches!(held, Answer::Granted { .. }), "{held:?}");
        let granted = Instant::now();
        let next = loop {
            let others = [&workers[(turn + 1) % 3], &workers[(turn + 2) % 3]];
            let (b, c) = tokio::join!(asks(others[0], 0), asks(others[1], 0));
            let got = |answer: &Answer| match answer {
                Answer::Granted { hold, .. } => Some(*hold),
                _ => None,
            };
            if let Some(hold) = got(&b) {
                break (others[0], hold);
            }
            if let Some(hold) = got(&c) {
                break (others[1], hold);
            }
            assert!(granted.elapsed() < Duration::from_secs(10), "never granted");
        };
        assert!(
            asked.elapsed() >= Duration::from_millis(2400),
            "granted within the lease"
        );
        assert!(
            granted.elapsed() < Duration::from_secs(5),
            "{:?}",
            granted.elapsed()
        );
        next.0.ask(Do::Release { hold: next.1 }).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f68_the_clocks_of_clients_do_not_matter_on_postgres() {
    clocks_disagree("postgres").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f68_the_clocks_of_clients_do_not_matter_on_mariadb() {
    clocks_disagree("mysql").await;
}
