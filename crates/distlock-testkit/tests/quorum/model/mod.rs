//! A model of Redlock, searched to the end: every order of requests, pauses and faults of two clients on three nodes.
//!
//! Time is counted in ticks; whoever does nothing while ticks pass is paused. A client asks the nodes in any order,
//! has the token raised, holds until `started + TTL`, looks at its clock, and writes to the store at any time after
//! that look. One node may restart empty, and one may have its clock jump. Two things must not happen:
//!
//! - **two holders**: both clients hold, and neither's validity is over;
//! - **a stale write**: the store takes the write of a client after that of its successor, one that began to ask when
//!   this one had been granted.

mod rules;
mod search;

use rules::{Faults, Rules};
use search::{Found, Until, search};

const BARE: Rules = Rules {
    token: false,
    newborns: false,
};
const FULL: Rules = Rules {
    token: true,
    newborns: true,
};
const NONE: Faults = Faults {
    restarts: 0,
    jumps: 0,
};
const AMNESIA: Faults = Faults { restarts: 1, ..NONE };
const JUMP: Faults = Faults { jumps: 1, ..NONE };
fn told(name: &str, rules: Rules, faults: Faults, until: Until) -> Found {
    let found = search(rules, faults, until);
    let how_far = if until == Until::TheEnd {
        "all"
    } else {
        "until found"
    };
    println!(
        "{name}: {} states ({how_far}), {} steps deep",
        found.states, found.depth
    );
    for (what, path) in [
        ("two holders", &found.two_holders),
        ("a stale write", &found.stale_write),
    ] {
        match path {
            Some(path) => println!("  {what}: {}", path.join(" · ")),
            None if until == Until::TheEnd => println!("  {what}: never"),
            None => {}
        }
    }
    found
}

#[test]
fn without_token_and_restart_rule_the_known_counter_examples_are_found() {
    let pause = told("no faults, bare", BARE, NONE, Until::AStaleWrite);
    assert!(pause.stale_write.is_some(), "a pause past the validity");
    let amnesia = told("a node restarts empty, bare", BARE, AMNESIA, Until::TwoHolders);
    assert!(
        amnesia.two_holders.is_some(),
        "an amnesiac node gives a second majority"
    );
    let jump = told("a node's clock jumps, bare", BARE, JUMP, Until::TwoHolders);
    assert!(
        jump.two_holders.is_some(),
        "a node that forgets early gives a second majority"
    );
}

#[test]
fn with_them_none_is_left_at_a_store_that_checks_tokens() {
    for (name, faults) in [
        ("no faults", NONE),
        ("a node restarts empty", AMNESIA),
        ("a node's clock jumps", JUMP),
    ] {
        let found = told(name, FULL, faults, Until::TheEnd);
        assert!(found.states > 100_000, "vacuous: {} states", found.states);
        assert!(found.stale_write.is_none(), "{name}");
        // A clock that jumps breaks exclusion itself; there the token is what protects the data.
        assert_eq!(found.two_holders.is_some(), faults == JUMP, "{name}");
    }
}

#[test]
fn each_rule_is_needed() {
    let no_rule = Rules {
        newborns: false,
        ..FULL
    };
    let found = told(
        "a node restarts empty, token only",
        no_rule,
        AMNESIA,
        Until::TwoHolders,
    );
    assert!(found.two_holders.is_some());
    let no_token = Rules { token: false, ..FULL };
    let found = told("no faults, restart rule only", no_token, NONE, Until::AStaleWrite);
    assert!(found.stale_write.is_some());
}
