//! Seeds of the simulation. `DISTLOCK_SEEDS=20000` runs more; `DISTLOCK_SEED=17` runs one and shows its history.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test fails by it; a run says what it did"
)]

use std::time::{SystemTime, UNIX_EPOCH};

use distlock_testkit::simulation::{Plan, run};

#[test]
fn no_seed_breaks_an_invariant() {
    try_seeds(Plan::default(), 2000);
}

#[test]
fn no_seed_breaks_an_invariant_of_a_quorum() {
    let plan = Plan {
        nodes: 5,
        faults: 30,
        ..Plan::default()
    };
    try_seeds(plan, 500);
}

fn try_seeds(plan: Plan, usual: u64) {
    let number = |name: &str| std::env::var(name).ok().and_then(|n| n.parse::<u64>().ok());
    if let Some(seed) = number("DISTLOCK_SEED") {
        let run = run(seed, plan).unwrap();
        for event in run.history.events() {
            println!("{event:?}");
        }
        assert!(run.violations.is_empty(), "seed {seed}: {:#?}", run.violations);
        return;
    }
    // The first seeds are always the same; the others are new in each run.
    let fresh = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() << 20;
    let seeds = number("DISTLOCK_SEEDS").unwrap_or(usual);
    let mut grants = 0;
    for n in 0..seeds {
        let seed = if n < seeds / 2 { n } else { fresh + n };
        let run = run(seed, plan).unwrap();
        assert!(
            run.violations.is_empty(),
            "DISTLOCK_SEED={seed} (seed {} of this run): {:#?}",
            n + 1,
            run.violations
        );
        grants += run.grants;
    }
    println!("{seeds} seeds, {grants} grants, no violation");
    assert!(
        grants as u64 > seeds * 10,
        "vacuous: {grants} grants in {seeds} seeds"
    );
}

#[test]
fn a_seed_replays_exactly() {
    for seed in [1, 77, 4242] {
        let (a, b) = (
            run(seed, Plan::default()).unwrap(),
            run(seed, Plan::default()).unwrap(),
        );
        assert_eq!(a.history.events(), b.history.events(), "seed {seed}");
    }
}
