//! Processes that contend on Redis, are killed and stopped, while the server and the way to it fail, or the two gateways
//! between them: the short forms of `scripts/torture redis` and `scripts/torture service`.

#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::time::Duration;

use distlock_testkit::check::Minimum;
use distlock_testkit::servers::or_skip;
use distlock_testkit::torture::{EngineUnderTest, Plan, run};

const WORKER: &str = env!("CARGO_BIN_EXE_distlock-worker");

async fn tortured(engine: &str, minimum: Minimum, set: impl FnOnce(&mut Plan)) {
    let Some(engine) = or_skip(EngineUnderTest::start(engine).await) else {
        return;
    };
    let mut plan = Plan::new(1, Duration::from_secs(12), engine.ttl());
    (plan.kills, plan.stops) = (4, 6);
    plan.kill_every = plan.ttl * 3;
    set(&mut plan);
    let report = run(&engine, Path::new(WORKER), &plan, minimum).await.unwrap();
    report.prove();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f10_f60_f85_clients_and_server_fail_and_nobody_is_inside_with_another() {
    let minimum = Minimum {
        grants: 200,
        contended: 50,
        kills: 3,
        stops: 4,
        faults: 4,
        takeovers: 3,
    };
    tortured("redis", minimum, |plan| {
        plan.strike_every = Some(Duration::from_millis(800));
    })
    .await;
}

/// Half of the clients begin at either gateway; each is killed, and stopped, in the middle of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f10_gateways_are_killed_and_nobody_is_inside_with_another() {
    let minimum = Minimum {
        grants: 100,
        contended: 25,
        kills: 2,
        stops: 2,
        faults: 3,
        takeovers: 2,
    };
    tortured("service", minimum, |plan| {
        plan.time = Duration::from_secs(7);
        (plan.kills, plan.stops) = (2, 2);
        plan.kill_every = plan.ttl;
        plan.strike_every = Some(Duration::from_millis(1200));
    })
    .await;
}
