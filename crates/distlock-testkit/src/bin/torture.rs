//! `torture ENGINE [--minutes N] [--kills N] [--stops N] [--seed N]`: see `scripts/torture`.

use std::process::ExitCode;
use std::time::Duration;

use distlock_testkit::check::Minimum;
use distlock_testkit::servers::StartError;
use distlock_testkit::torture::{EngineUnderTest, Plan, run, worker_beside};

struct Args {
    engine: String,
    minutes: f64,
    kills: Option<usize>,
    stops: Option<usize>,
    seed: u64,
}

fn args() -> Option<Args> {
    let mut args = std::env::args().skip(1);
    let mut this = Args {
        engine: args.next().filter(|engine| !engine.starts_with('-'))?,
        minutes: 5.0,
        kills: None,
        stops: None,
        seed: rand::random(),
    };
    while let Some(name) = args.next() {
        let value = args.next()?;
        match name.as_str() {
            "--minutes" => this.minutes = value.parse().ok().filter(|m| *m > 0.0)?,
            "--kills" => this.kills = Some(value.parse().ok()?),
            "--stops" => this.stops = Some(value.parse().ok()?),
            "--seed" => this.seed = value.parse().ok()?,
            _ => return None,
        }
    }
    Some(this)
}

#[tokio::main]
#[allow(clippy::print_stdout, clippy::print_stderr)]
async fn main() -> ExitCode {
    let Some(args) = args() else {
        eprintln!("usage: torture ENGINE [--minutes N] [--kills N] [--stops N] [--seed N]");
        eprintln!("engines: {}", EngineUnderTest::NAMES.join(", "));
        return ExitCode::from(64);
    };
    match torture(args).await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(e) => {
            eprintln!("torture: {e}");
            println!("0 passed, 1 failed");
            ExitCode::FAILURE
        }
    }
}

#[allow(clippy::print_stdout)]
async fn torture(args: Args) -> Result<bool, StartError> {
    let engine = EngineUnderTest::start(&args.engine).await?;
    let time = Duration::from_secs_f64(args.minutes * 60.0);
    let mut plan = Plan::new(args.seed, time, engine.ttl());
    // What a minute is to see at least. On the file engine, whose locks are free at once, the full run of five minutes is
    // to kill 2,000 holders and to stop 200. Three servers agree on each grant, and have no leader now and then; with a
    // new leader of ZooKeeper all sessions begin anew, those of the dead as well.
    let (kills, stops, grants, faults) = match engine.name() {
        _ if engine.bounds(plan.ttl).death_at_once => (400.0, 40.0, 3000.0, 0.0),
        "zookeeper" => (10.0, 15.0, 600.0, 2.0),
        _ if engine.strike_every().is_some() => (40.0, 20.0, 600.0, 3.0),
        _ => (40.0, 20.0, 3000.0, 0.0),
    };
    if !engine.bounds(plan.ttl).death_at_once {
        plan.kill_every = plan.ttl * 3;
    }
    plan.strike_every = engine.strike_every();
    plan.kills = args.kills.unwrap_or((args.minutes * kills) as usize);
    plan.stops = args.stops.unwrap_or((args.minutes * stops) as usize);
    println!("{} ({}), seed {}", engine.name(), engine.url(), plan.seed);
    let minimum = Minimum {
        grants: (args.minutes * grants) as usize,
        contended: (args.minutes * grants / 3.0) as usize,
        kills: plan.kills,
        stops: plan.stops,
        faults: (args.minutes * faults) as usize,
        takeovers: plan.stops / 2,
    };
    let worker = worker_beside()?;
    let mut report = run(&engine, &worker, &plan, minimum).await?;
    println!("{report}");

    // The positive control: a harness that cannot catch a broken client proves nothing.
    let mut control = Plan::new(args.seed, Duration::from_secs(10).min(time), engine.ttl());
    control.reckless = true;
    control.stops = 5;
    let broken = run(&engine, &worker, &control, Minimum::default()).await?;
    let caught = broken.overlaps() > 0;
    println!(
        "{:<44}{} ({} overlaps, {} lost updates in {} stops)",
        "the broken client is caught",
        if caught { "ok" } else { "FAILED" },
        broken.overlaps(),
        broken.lost_updates(),
        broken.signals().1
    );
    if let Some(dir) = report.keep() {
        println!("the histories are kept in {}", dir.display());
    }
    let (mut passed, mut failed) = report.counts();
    *(if caught { &mut passed } else { &mut failed }) += 1;
    println!("{passed} passed, {failed} failed");
    Ok(failed == 0)
}
