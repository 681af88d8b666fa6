//! Processes that contend on the file engine, are killed and stopped: the short form of `scripts/torture file`.

#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::time::Duration;

use distlock_testkit::check::Minimum;
use distlock_testkit::torture::{EngineUnderTest, Plan, run};

const WORKER: &str = env!("CARGO_BIN_EXE_distlock-worker");

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f89_f10_f60_killed_and_stopped_holders_are_taken_over() {
    let engine = EngineUnderTest::start("file").await.unwrap();
    let mut plan = Plan::new(1, Duration::from_secs(15), engine.ttl());
    (plan.kills, plan.stops) = (60, 10);
    let minimum = Minimum {
        grants: 500,
        contended: 100,
        kills: 50,
        stops: 8,
        faults: 0,
        takeovers: 20,
    };
    let report = run(&engine, Path::new(WORKER), &plan, minimum).await.unwrap();
    report.prove();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_ignores_its_deadline_is_caught() {
    let engine = EngineUnderTest::start("file").await.unwrap();
    let mut plan = Plan::new(2, Duration::from_secs(5), engine.ttl());
    plan.reckless = true;
    plan.stops = 8;
    let report = run(&engine, Path::new(WORKER), &plan, Minimum::default())
        .await
        .unwrap();
    println!("{report}");
    assert!(
        report.overlaps() > 0,
        "the harness did not see what must have happened"
    );
}
