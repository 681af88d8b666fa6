//! Torture: many processes contend while some of them are killed and stopped; the history is checked afterwards.

mod engine;
mod nemesis;
mod report;
mod service;
mod trouble;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use distlock_core::driver::Mode;
use rand::SeedableRng;
use rand::rngs::StdRng;
use tokio::sync::Mutex;

pub use self::engine::EngineUnderTest;
use self::nemesis::Nemesis;
pub use self::report::Report;
use crate::check::{self, Bounds, Minimum};
use crate::history::{History, Recorder};
use crate::store::Store;
use crate::worker::{Do, Fleet, Load, LoadKey, Worker};

/// What a run does.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The seed of all choices; the interleaving is not reproducible, the schedule is.
    pub seed: u64,
    /// How long at least.
    pub time: Duration,
    /// How many holders are killed at least: the run goes on until then, up to ten times its time.
    pub kills: usize,
    /// The longest pause between two kills. Where a dead holder keeps its lock for its lease, many kills leave
    /// nothing to be seen but expiries.
    pub kill_every: Duration,
    /// How many holders are stopped past their lease at least.
    pub stops: usize,
    /// The pause between two strikes at the servers; none are made if not given.
    pub strike_every: Option<Duration>,
    /// The number of worker processes.
    pub workers: usize,
    /// Tasks in each.
    pub tasks: u32,
    /// The lease.
    pub ttl: Duration,
    /// The locks.
    pub keys: Vec<LoadKey>,
    /// The deliberately broken client of the positive control.
    pub reckless: bool,
}

impl Plan {
    /// Eight workers of two tasks each on two mutexes, a fair one, a read/write lock and a
    /// semaphore.
    pub fn new(seed: u64, time: Duration, ttl: Duration) -> Self {
        let key = |key: &str, mode, fifo_percent| LoadKey {
            key: key.into(),
            mode,
            fifo_percent,
        };
        Self {
            seed,
            time,
            kills: 0,
            kill_every: Duration::from_millis(20),
            stops: 0,
            strike_every: None,
            workers: 8,
            tasks: 2,
            ttl,
            keys: vec![
                key("mutex:1", Mode::Mutex, 0),
                key("mutex:2", Mode::Mutex, 0),
                key("fair", Mode::Mutex, 50),
                key("readers-writer", Mode::Read, 0),
                key("slots", Mode::Slot { of: 2 }, 0),
            ],
            reckless: false,
        }
    }

    fn load(&self) -> Load {
        Load {
            seed: self.seed,
            tasks: self.tasks,
            keys: self.keys.clone(),
            ttl_ms: u64::try_from(self.ttl.as_millis()).unwrap_or(u64::MAX),
            hold_us: (1_000, 20_000),
            // Keeps the rate of acquisitions low enough that the machine is not the fault.
            pause_us: (1_000, 60_000),
            long_percent: if self.reckless { 0 } else { 2 },
            reckless: self.reckless,
        }
    }
}

/// A worker that may be replaced.
type Seat = Arc<Mutex<Option<Worker>>>;

/// Runs a plan and checks what happened.
///
/// # Errors
/// When the harness itself fails: a worker or the engine cannot be started, or ends on its own.
pub async fn run(
    engine: &EngineUnderTest,
    worker: &Path,
    plan: &Plan,
    minimum: Minimum,
) -> io::Result<Report> {
    let dir = tempfile::TempDir::with_prefix("distlock-torture-")?;
    let recorder = Arc::new(Recorder::open(&dir.path().join("harness.jsonl"), 0)?);
    let store = Store::start(&dir.path().join("store.sock"), recorder.clone())?;
    let fleet = Arc::new(Fleet::new(
        worker.to_owned(),
        engine.mortal_url(),
        dir.path().to_owned(),
        store.path().to_owned(),
        recorder.clone(),
    ));
    let mut seats: Vec<Seat> = Vec::new();
    for _ in 0..plan.workers {
        seats.push(Arc::new(Mutex::new(Some(seat(&fleet, plan).await?))));
    }
    let started = Instant::now();
    let nemesis = Nemesis::start(seats.clone(), fleet.clone(), plan.clone());
    let limit = started + plan.time * 10;
    let (mut random, mut struck) = (StdRng::seed_from_u64(plan.seed), Instant::now());
    while started.elapsed() < plan.time || (!nemesis.satisfied() && Instant::now() < limit) {
        nemesis.check()?;
        if plan.strike_every.is_some_and(|every| struck.elapsed() >= every) {
            engine.strike(&mut random, &recorder).await?;
            struck = Instant::now();
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    nemesis.end().await?;
    for seat in seats {
        if let Some(worker) = seat.lock().await.take() {
            worker.ask(Do::Rest).await?;
            worker.quit().await?;
        }
    }
    store.record()?;
    engine.scan(&recorder, &plan.keys).await?;
    let history = History::read(dir.path())?;
    let bounds = engine.bounds(plan.ttl);
    Ok(Report::new(dir, history, bounds, minimum, started.elapsed()))
}

async fn seat(fleet: &Fleet, plan: &Plan) -> io::Result<Worker> {
    let worker = fleet.start()?;
    worker.ask(Do::Load(plan.load())).await?;
    Ok(worker)
}

/// Checks a history that was kept from an earlier run.
///
/// # Errors
/// When it cannot be read.
pub fn replay(dir: &Path, bounds: &Bounds) -> io::Result<Vec<check::Violation>> {
    Ok(check::all(&History::read(dir)?, bounds))
}

/// The worker program beside the present one.
///
/// # Errors
/// When it is not there.
pub fn worker_beside() -> io::Result<PathBuf> {
    let me = std::env::current_exe()?;
    let worker = me.with_file_name("distlock-worker");
    match worker.is_file() {
        true => Ok(worker),
        false => Err(io::Error::other(format!("{} is not built", worker.display()))),
    }
}
