//! Processes that contend on Redis, are killed and stopped, while the server and the way to it fail: the short form of
//! `scripts/torture redis`.

#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::time::Duration;

use distlock_testkit::check::Minimum;
use distlock_testkit::servers::or_skip;
use distlock_testkit::torture::{EngineUnderTest, Plan, run};

const WORKER: &str = env!("CARGO_BIN_EXE_distlock-worker");

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f10_f60_f85_clients_and_server_fail_and_nobody_is_inside_with_another() {
    let Some(engine) = or_skip(EngineUnderTest::start("redis").await) else {
        return;
    };
    let mut plan = Plan::new(1, Duration::from_secs(12), engine.ttl());
    (plan.kills, plan.stops) = (4, 6);
    plan.strike_every = Some(Duration::from_millis(800));
    plan.kill_every = plan.ttl * 3;
    let minimum = Minimum {
        grants: 200,
        contended: 50,
        kills: 3,
        stops: 4,
        faults: 4,
        takeovers: 3,
    };
    let mut report = run(&engine, Path::new(WORKER), &plan, minimum).await.unwrap();
    println!("{report}");
    if let Some(dir) = report.keep() {
        panic!(
            "{} failed; the histories are kept in {}",
            report.counts().1,
            dir.display()
        );
    }
}
