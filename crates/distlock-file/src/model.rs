//! A model check of the root word: the real write path on a real table, with the processes that share it as threads
//! of which one at a time takes a step. Many thousand interleavings are tried.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use distlock_core::clock::Clock;
use shuttle::rand::Rng;
use shuttle::{Config, Runner};

use crate::boot::Boot;
use crate::config;
use crate::dir::Dir;
use crate::snapshot::Snapshot;
use crate::table::Table;
use crate::update::{Outcome, update};

const BUCKET: usize = 3;
const PROCESSES: usize = 3;

thread_local! {
    static MODELLED: Cell<bool> = const { Cell::new(false) };
}

/// Lets others go first, in a model check.
pub(crate) fn step() {
    if MODELLED.get() {
        shuttle::thread::yield_now();
    }
}

/// Whether a slot whose lock another has is passed by now, in a model check.
pub(crate) fn passes_by() -> bool {
    MODELLED.get() && shuttle::rand::thread_rng().gen_bool(0.3)
}

/// Counts in the table, as a grant takes the next token.
fn next_token(table: &Table, clock: &Clock) -> u64 {
    let mut f = |s: &mut Snapshot, _| {
        s.last_token += 1;
        (s.last_token, true)
    };
    loop {
        match update(table, BUCKET, clock, &mut f) {
            Ok(Outcome::Done(token)) => return token,
            Ok(Outcome::Stuck) => step(),
            Err(e) => panic!("{e}"),
        }
    }
}

#[test]
fn no_commit_is_lost_and_no_token_is_given_twice() {
    let dir = tempfile::tempdir().unwrap();
    let dir = Dir::open(&config::Config::new(dir.path())).unwrap();
    // Each process opens the table itself: locks of slots belong to an open file.
    let tables: Vec<_> = (0..PROCESSES)
        .map(|_| Arc::new(Table::open(&dir, Boot { hash: 1 << 48 }).unwrap()))
        .collect();
    let (clock, tried) = (Clock::boot(), Arc::new(AtomicUsize::new(0)));
    // An unused bucket has no token yet from which to count.
    next_token(&tables[0], &clock);
    let count = tried.clone();
    let schedule = move || {
        let nth = count.fetch_add(1, Ordering::Relaxed) + 1;
        let begun = tables[0].read(BUCKET).unwrap().1.last_token;
        let takers: Vec<_> = tables
            .iter()
            .map(|table| {
                let (table, clock) = (table.clone(), clock.clone());
                shuttle::thread::spawn(move || [(); 2].map(|()| next_token(&table, &clock)))
            })
            .collect();
        let mut tokens: Vec<u64> = takers.into_iter().flat_map(|t| t.join().unwrap()).collect();
        tokens.sort_unstable();
        let all: Vec<u64> = (1..=tokens.len() as u64).map(|n| begun + n).collect();
        assert_eq!(tokens, all, "tokens of schedule {nth}");
        assert_eq!(
            tables[1].read(BUCKET).unwrap().1.last_token,
            begun + all.len() as u64
        );
    };
    let mut config = Config::new();
    config.stack_size = 1 << 20;
    MODELLED.set(true);
    let scheduler = shuttle::scheduler::RandomScheduler::new(3000);
    Runner::new(scheduler, config).run(schedule);
    MODELLED.set(false);
    assert_eq!(tried.load(Ordering::Relaxed), 3000);
}
