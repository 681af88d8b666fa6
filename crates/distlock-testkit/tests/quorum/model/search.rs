//! Breadth first, to the end.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use super::rules::{Faults, Rules, State};

/// What a search found.
pub(super) struct Found {
    pub(super) states: usize,
    pub(super) depth: usize,
    /// A shortest way to it.
    pub(super) two_holders: Option<Vec<String>>,
    pub(super) stale_write: Option<Vec<String>>,
}

/// When a search ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Until {
    /// When every state was seen.
    TheEnd,
    TwoHolders,
    AStaleWrite,
}

pub(super) fn search(rules: Rules, faults: Faults, until: Until) -> Found {
    let start = State::start();
    let mut known = HashMap::from([(start.clone(), 0)]);
    // Each state with the one before it, and its depth.
    let mut reached: Vec<(State, usize, usize)> = vec![(start, 0, 0)];
    let mut found = Found {
        states: 0,
        depth: 0,
        two_holders: None,
        stale_write: None,
    };
    let mut at = 0;
    while at < reached.len() {
        let (state, _, depth) = reached[at].clone();
        for step in state.steps(rules, faults) {
            let to = match known.entry(step.state.clone()) {
                Entry::Occupied(old) => *old.get(),
                Entry::Vacant(new) => {
                    new.insert(reached.len());
                    reached.push((step.state, at, depth + 1));
                    reached.len() - 1
                }
            };
            if step.stale && found.stale_write.is_none() {
                let mut path = path(&reached, at, rules, faults);
                path.push(step.label.to_string());
                found.stale_write = Some(path);
            }
            if found.two_holders.is_none() && reached[to].0.two_holders() {
                found.two_holders = Some(path(&reached, to, rules, faults));
            }
        }
        found.depth = depth;
        at += 1;
        let enough = match until {
            Until::TheEnd => false,
            Until::TwoHolders => found.two_holders.is_some(),
            Until::AStaleWrite => found.stale_write.is_some(),
        };
        if enough {
            break;
        }
    }
    found.states = reached.len();
    found
}

/// The steps to a state: those between it and the one before it, and so on.
fn path(reached: &[(State, usize, usize)], mut at: usize, rules: Rules, faults: Faults) -> Vec<String> {
    let mut path = Vec::new();
    while at != 0 {
        let (state, before, _) = &reached[at];
        let steps = reached[*before].0.steps(rules, faults);
        path.extend(
            steps
                .iter()
                .find(|step| step.state == *state)
                .map(|step| step.label.to_string()),
        );
        at = *before;
    }
    path.reverse();
    path
}
