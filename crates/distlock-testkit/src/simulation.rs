//! Simulation: many clients over the memory engine, or a quorum of them, in virtual time, with faults, from one seed.
//!
//! Everything that is random comes from the seed and everything runs on one thread, so a seed that fails replays
//! exactly. What the clients saw is a [`History`], judged by the same checkers as runs against real servers; what the
//! engine saw is judged beside it.
//!
//! A simulation over the memory engine cannot see what only the file engine has, its root word: that one is
//! model-checked (`crates/distlock-file/src/model.rs`).

mod ledger;

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use distlock_core::clock::{Clock, ManualClock};
use distlock_core::driver::{Driver, DriverError, Mode, Order};
use distlock_core::engine::Engine;
use distlock_core::memory::{self, Call, Fault, Faults, Memory, Rule};
use distlock_core::quorum::{self, Node, Rules};
use distlock_core::{Builder, Client, Guard, Lock, Release, Renew};

use crate::check::{self, Bounds, Violation};
use crate::history::{Event, History, HowReleased, What};

const MS: fn(u64) -> Duration = Duration::from_millis;
/// The lease of every lock in a simulation.
const TTL: Duration = Duration::from_millis(400);
const KEYS: u64 = 3;

/// What a simulation does.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// The number of clients, each with its own engine client and task.
    pub clients: u32,
    /// How many locks each client takes, one after the other.
    pub rounds: u32,
    /// How many faults are ordered, at random times.
    pub faults: u32,
    /// The number of memory engines: 1, or those of a quorum.
    pub nodes: usize,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            clients: 5,
            rounds: 5,
            faults: 10,
            nodes: 1,
        }
    }
}

/// What one seed gave.
#[derive(Debug)]
pub struct Run {
    /// What happened.
    pub history: History,
    /// What must not have happened.
    pub violations: Vec<Violation>,
    /// How many locks were granted.
    pub grants: usize,
}

/// A sequence of numbers that a seed determines.
#[derive(Debug, Clone)]
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: u64) -> u64 {
        // xorshift64* (Vigna, 2016).
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) % n.max(1)
    }

    fn time(&mut self, most: Duration) -> Duration {
        Duration::from_micros(self.below(most.as_micros() as u64))
    }
}

/// Runs one seed.
///
/// # Errors
/// When the runtime cannot be built.
pub fn run(seed: u64, plan: Plan) -> std::io::Result<Run> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let local = tokio::task::LocalSet::new();
    let (history, seen) = local.block_on(&runtime, simulate(seed, plan));
    // A contender that is struck several times in a row waits out several unanswered looks of a lease each.
    let bounds = Bounds {
        takeover: TTL * 32,
        death_at_once: false,
        handoff: TTL * 32,
        told: MS(1),
        dead_waiter: TTL * 32,
    };
    let mut violations = check::all(&history, &bounds);
    violations.extend(seen.iter().flat_map(|node| ledger::renewals(node)));
    let grants = history
        .events()
        .iter()
        .filter(|e| matches!(e.what, What::Granted { .. }))
        .count();
    Ok(Run {
        history,
        violations,
        grants,
    })
}

/// What the tasks of one simulation share.
struct World {
    time: ManualClock,
    nodes: Vec<Memory>,
    events: RefCell<Vec<Event>>,
    running: Cell<u32>,
    /// Clients that died.
    dead: RefCell<Vec<Client>>,
    /// What they held. Kept to the end of the run: a guard that is forgotten would keep its runtime's files open.
    left: RefCell<Vec<Guard>>,
}

impl World {
    fn record(&self, process: u32, what: What) {
        self.events.borrow_mut().push(Event {
            at: self.time.now().as_nanos(),
            process,
            what,
        });
    }

    fn builder(&self) -> Builder {
        Client::builder().clock(Clock::Manual(self.time.clone())).ttl(TTL)
    }

    fn client(&self) -> Option<Client> {
        let [memory] = &self.nodes[..] else {
            return self.builder().build_now(|engine| self.quorum(engine)).ok();
        };
        self.builder().memory(memory).ok()
    }

    fn quorum(&self, engine: Engine) -> Result<Arc<dyn Driver>, DriverError> {
        let node = |(n, memory): (usize, &Memory)| Node {
            name: format!("node {n}"),
            driver: memory.driver(engine.clone()),
        };
        let rules = Rules {
            max_ttl: TTL,
            ..Rules::default()
        };
        quorum::over(
            engine.clone(),
            "quorum",
            self.nodes.iter().enumerate().map(node).collect(),
            rules,
        )
    }

    fn each_node(&self, order: impl Fn(Faults)) {
        self.nodes.iter().for_each(|memory| order(memory.faults()));
    }
}

/// What the clients saw, and what each engine did.
async fn simulate(seed: u64, plan: Plan) -> (History, Vec<Vec<memory::Event>>) {
    let world = Rc::new(World {
        time: ManualClock::seeded(seed),
        nodes: (0..plan.nodes.max(1)).map(|_| Memory::new()).collect(),
        events: RefCell::default(),
        running: Cell::new(plan.clients),
        dead: RefCell::default(),
        left: RefCell::default(),
    });
    world.each_node(|faults| faults.record());
    let mut dice = Dice(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
    for process in 1..=plan.clients {
        let dice = Dice(dice.below(1 << 30) << 8 | u64::from(process));
        tokio::task::spawn_local(live(world.clone(), process, plan.rounds, dice));
    }
    for _ in 0..plan.faults {
        world.time.advance(dice.time(MS(300))).await;
        strike(&world, &mut dice);
    }
    // Virtual time: a queue that is stuck would make this an endless loop, so the number of steps is bounded.
    for _ in 0..4000 {
        if world.running.get() == 0 {
            break;
        }
        world.time.advance(MS(100)).await;
    }
    world.each_node(|faults| faults.clear());
    // That healed the dead, too.
    for dead in world.dead.borrow().iter() {
        world.each_node(|faults| faults.partition(dead.id()));
    }
    world.time.advance(TTL * 10).await;
    if world.running.get() > 0 {
        world.record(
            0,
            What::Left {
                thing: format!("{} clients that never end", world.running.get()),
            },
        );
    }
    for memory in &world.nodes {
        let Ok(client) = world.builder().memory(memory) else {
            break;
        };
        for key in 0..KEYS {
            match client.inspect(format!("k{key}")).await {
                Ok(info) if info.holders.is_empty() && info.waiters.is_empty() => {}
                Ok(info) => world.record(
                    0,
                    What::Left {
                        thing: format!("{info:?}"),
                    },
                ),
                Err(e) => world.record(0, What::Left { thing: e.to_string() }),
            }
        }
    }
    let seen = world
        .nodes
        .iter()
        .map(|memory| memory.faults().history())
        .collect();
    (History::new(world.events.take()), seen)
}

/// Orders one fault.
fn strike(world: &World, dice: &mut Dice) {
    let node = dice.below(world.nodes.len() as u64) as usize;
    let faults = world.nodes[node].faults();
    // A minority of a quorum may forget everything.
    if node < world.nodes.len() / 2 && dice.below(6) == 0 {
        return faults.restart_empty();
    }
    let call = [Call::Try, Call::Renew, Call::Release][dice.below(3) as usize];
    let delay = dice.time(TTL * 2);
    let fault = match dice.below(8) {
        0 => Fault::NotSent,
        1 => Fault::LostReply,
        2 => Fault::Slow(delay),
        3 => Fault::Late(delay),
        4 => Fault::LateLost(delay),
        5 => Fault::Silent,
        6 => Fault::SlowReply(delay),
        _ => Fault::SilentApplied,
    };
    faults.add(Rule::new(call, fault).times(1 + dice.below(3) as u32));
}

/// One client's life.
async fn live(world: Rc<World>, process: u32, rounds: u32, mut dice: Dice) {
    let mut client = world.client();
    for hold in 0..u64::from(rounds) {
        let Some(locks) = &client else { break };
        world.time_passes(dice.time(MS(50))).await;
        let key = dice.below(KEYS);
        let (lock, mode) = match key {
            // One kind per key: a mutex, a read/write lock, a semaphore.
            0 => (locks.mutex("k0"), Mode::Mutex),
            1 if dice.below(3) == 0 => (locks.rw("k1").write(), Mode::Write),
            1 => (locks.rw("k1").read(), Mode::Read),
            _ if world.nodes.len() > 1 => (locks.mutex("k2"), Mode::Mutex),
            _ => (locks.semaphore("k2", 2), Mode::Slot { of: 2 }),
        };
        let fifo = dice.below(3) == 0 && world.nodes.len() == 1;
        let lock = if fifo { lock.order(Order::Fifo) } else { lock };
        let ttl = TTL.as_nanos() as u64;
        world.record(
            process,
            What::Asked {
                hold,
                task: 0,
                key: format!("k{key}"),
                mode,
                fifo,
                ttl,
            },
        );
        if !take(&world, process, hold, lock, &mut dice).await {
            // The process dies: its client is cut off for ever, and so are its holds.
            if let Some(dead) = client.take() {
                world.each_node(|faults| faults.partition(dead.id()));
                world.dead.borrow_mut().push(dead);
            }
        }
    }
    world.running.set(world.running.get() - 1);
}

impl World {
    async fn time_passes(&self, d: Duration) {
        Clock::Manual(self.time.clone()).sleep(d).await;
    }
}

/// Takes a lock, holds it for a while and ends it somehow; `false` if the process died.
async fn take(world: &World, process: u32, hold: u64, lock: Lock, dice: &mut Dice) -> bool {
    let refused = |why: &str, maybe| {
        world.record(
            process,
            What::Refused {
                hold,
                maybe,
                why: why.into(),
            },
        )
    };
    // Most waits outlast the bounds of the checkers: whoever is forgotten in line shows.
    let lock = lock.wait(if dice.below(4) == 0 { TTL } else { TTL * 64 });
    // Without renewal the guard's own deadline is all that keeps it from outstaying its lease.
    let lock = if dice.below(3) == 0 {
        lock.renew(Renew::Never)
    } else {
        lock
    };
    // Some callers go away in the middle.
    let patience = if dice.below(4) == 0 {
        dice.time(TTL * 2)
    } else {
        TTL * 200
    };
    let clock = Clock::Manual(world.time.clone());
    let guard = match clock.timeout(patience, lock.acquire()).await {
        None => {
            refused("dropped", true);
            return true;
        }
        Some(Err(e)) => {
            refused(e.kind().word(), true);
            return true;
        }
        Some(Ok(guard)) => guard,
    };
    let until = guard.deadlines().borrow().as_nanos();
    world.record(
        process,
        What::Granted {
            hold,
            token: guard.token().map(|t| t.get()),
            until,
        },
    );
    let work = dice.time(TTL * 2);
    let end = clock.now() + work;
    loop {
        let lost = guard.lost();
        let step = (clock.now() + MS(20)).min(end);
        if clock.deadline(step, lost).await.is_some() {
            world.record(
                process,
                What::Lost {
                    hold,
                    why: "lost".into(),
                },
            );
            break;
        }
        world.record(process, What::Looks { hold });
        world.record(
            process,
            What::Held {
                hold,
                held: guard.is_held(),
            },
        );
        if guard.is_held() {
            world.record(
                process,
                What::Valid {
                    hold,
                    until: guard.deadlines().borrow().as_nanos(),
                },
            );
        }
        if clock.now() >= end {
            break;
        }
    }
    finish(world, process, hold, guard, dice.below(8)).await
}

async fn finish(world: &World, process: u32, hold: u64, guard: Guard, how: u64) -> bool {
    match how {
        0 => {
            world.record(process, What::Killed { victim: process });
            world.left.borrow_mut().push(guard);
            false
        }
        1 | 2 => {
            world.record(process, What::Releases { hold });
            drop(guard);
            true
        }
        _ => {
            world.record(process, What::Releases { hold });
            let how = match guard.release().await {
                Ok(Release::Clean) => HowReleased::Freed,
                Ok(Release::Lost(_)) => HowReleased::NotHeld,
                Ok(Release::Unsure) | Err(_) => HowReleased::Unsure,
            };
            world.record(process, What::Released { hold, how });
            true
        }
    }
}
