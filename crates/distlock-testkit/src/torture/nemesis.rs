//! What kills and stops workers, by a seeded schedule.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::{Plan, Seat, seat};
use crate::worker::{Fleet, Worker};

/// How long the engine may be away when a killed worker is replaced.
const PATIENCE: Duration = Duration::from_secs(20);

#[derive(Debug, Default)]
struct Progress {
    over: AtomicBool,
    kills: AtomicUsize,
    stops: AtomicUsize,
}

/// The running nemesis: one task that kills, one that stops.
#[derive(Debug)]
pub(super) struct Nemesis {
    progress: Arc<Progress>,
    plan: Plan,
    tasks: Vec<JoinHandle<io::Result<()>>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    Kill,
    Stop,
}

impl Nemesis {
    pub(super) fn start(seats: Vec<Seat>, fleet: Arc<Fleet>, plan: Plan) -> Self {
        let progress = Arc::new(Progress::default());
        let mut faults = vec![Fault::Stop];
        // The broken client is only stopped: pauses are what it cannot bear.
        if !plan.reckless {
            faults.push(Fault::Kill);
        }
        let tasks = faults
            .into_iter()
            .map(|fault| {
                let (seats, fleet, plan) = (seats.clone(), fleet.clone(), plan.clone());
                tokio::spawn(torment(fault, seats, fleet, plan, progress.clone()))
            })
            .collect();
        Self {
            progress,
            plan,
            tasks,
        }
    }

    /// Whether the wanted numbers are reached. More are asked for than wanted, since some miss the holder.
    pub(super) fn satisfied(&self) -> bool {
        let done = |n: &AtomicUsize, want: usize| n.load(Ordering::Relaxed) >= want + want / 5;
        done(&self.progress.kills, self.plan.kills) && done(&self.progress.stops, self.plan.stops)
    }

    /// Fails if one of the tasks has.
    pub(super) fn check(&self) -> io::Result<()> {
        match self.tasks.iter().any(JoinHandle::is_finished) {
            true => Err(io::Error::other("the nemesis ended early")),
            false => Ok(()),
        }
    }

    /// Ends the faults; every stopped worker goes on.
    pub(super) async fn end(self) -> io::Result<()> {
        self.progress.over.store(true, Ordering::Relaxed);
        for task in self.tasks {
            task.await??;
        }
        Ok(())
    }
}

async fn torment(
    fault: Fault,
    seats: Vec<Seat>,
    fleet: Arc<Fleet>,
    plan: Plan,
    progress: Arc<Progress>,
) -> io::Result<()> {
    let mut random = StdRng::seed_from_u64(plan.seed ^ fault as u64);
    while !progress.over.load(Ordering::Relaxed) {
        let pause = match fault {
            Fault::Kill => plan.kill_every,
            Fault::Stop => Duration::from_millis(20),
        };
        sleep(pause.mul_f64(random.random_range(0.1..1.0))).await;
        let Some(mut victim) = holder(&seats, &mut random) else {
            continue;
        };
        let Some(worker) = victim.take() else { continue };
        match fault {
            Fault::Kill => {
                worker.kill9()?;
                *victim = Some(replacement(&fleet, &plan).await?);
                progress.kills.fetch_add(1, Ordering::Relaxed);
            }
            Fault::Stop => {
                worker.stop()?;
                let length = plan.ttl.mul_f64(random.random_range(1.1..2.5));
                let until = Instant::now() + length;
                sleep(until.saturating_duration_since(Instant::now())).await;
                worker.resume()?;
                *victim = Some(worker);
                progress.stops.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
    Ok(())
}

/// The next worker; the engine may be struck at this moment, and then it cannot connect.
async fn replacement(fleet: &Fleet, plan: &Plan) -> io::Result<Worker> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match seat(fleet, plan).await {
            Err(_) if Instant::now() < deadline => sleep(Duration::from_millis(50)).await,
            done => return done,
        }
    }
}

/// A random worker that seems to hold and that nobody else torments.
fn holder<'a>(seats: &'a [Seat], random: &mut StdRng) -> Option<tokio::sync::MutexGuard<'a, Option<Worker>>> {
    let first = random.random_range(0..seats.len());
    (0..seats.len())
        .map(|n| &seats[(first + n) % seats.len()])
        .filter_map(|seat| seat.try_lock().ok())
        .find(|seat| seat.as_ref().is_some_and(|worker| worker.seems_to_hold()))
}
