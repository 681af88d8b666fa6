//! The load: tasks that contend without end.

use std::io;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use distlock::Guard;
use distlock::driver::Mode;
use distlock_testkit::history::{HoldId, What};
use distlock_testkit::store::StoreClient;
use distlock_testkit::worker::{Ask, Load};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::Shared;
use super::serve::{acquire, release, value};

/// The load that runs, if any.
#[derive(Debug)]
pub(super) struct Tasks {
    stop: watch::Sender<bool>,
    running: Mutex<Vec<JoinHandle<io::Result<()>>>>,
}

impl Default for Tasks {
    fn default() -> Self {
        Self {
            stop: watch::Sender::new(false),
            running: Mutex::default(),
        }
    }
}

impl Tasks {
    pub(super) fn start(&self, shared: &Arc<Shared>, load: Load) {
        self.stop.send_replace(false);
        let load = Arc::new(load);
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        for task in 0..load.tasks {
            running.push(tokio::spawn(contend(
                shared.clone(),
                load.clone(),
                task,
                self.stop.subscribe(),
            )));
        }
    }

    /// Ends the tasks; a task that could not go on ends the process loudly.
    pub(super) async fn rest(&self) {
        self.stop.send_replace(true);
        let running = std::mem::take(&mut *self.running.lock().unwrap_or_else(PoisonError::into_inner));
        for task in running {
            if let Ok(Err(e)) = task.await {
                panic!("a task of the load failed: {e}");
            }
        }
    }
}

async fn contend(
    shared: Arc<Shared>,
    load: Arc<Load>,
    task: u32,
    mut stop: watch::Receiver<bool>,
) -> io::Result<()> {
    let seed = load.seed ^ u64::from(shared.process) << 32 ^ u64::from(task) << 16;
    let mut random = StdRng::seed_from_u64(seed);
    let mut store = StoreClient::connect(&shared.store).await?;
    while !*stop.borrow() {
        let key = &load.keys[random.random_range(0..load.keys.len())];
        let ask = Ask {
            key: key.key.clone(),
            mode: match key.mode {
                Mode::Read if random.random_bool(0.3) => Mode::Write,
                mode => mode,
            },
            fifo: random.random_range(0..100) < key.fifo_percent,
            ttl_ms: load.ttl_ms,
            wait_ms: Some(load.ttl_ms * 20),
            renew: true,
        };
        let long = random.random_range(0..100) < load.long_percent;
        let hold = match long {
            true => Duration::from_millis(load.ttl_ms * 3 / 2),
            false => Duration::from_micros(random.random_range(load.hold_us.0..=load.hold_us.1)),
        };
        if load.reckless {
            reckless(&shared, &ask, task, hold, &mut store).await?;
        } else if let Ok((number, guard)) = acquire(&shared, &ask, task).await? {
            section(&shared, number, guard, hold, &mut store).await?;
        }
        let pause = random.random_range(load.pause_us.0..=load.pause_us.1);
        tokio::select! {
            () = sleep(Duration::from_micros(pause)) => {}
            _ = stop.changed() => {}
        }
    }
    Ok(())
}

/// A section as it should be: works in steps, asks its guard, stops when it is lost. It also writes once after it
/// knows of the loss, as a client that was paused at a bad moment would: the store must refuse that if somebody else
/// has written meanwhile.
async fn section(
    shared: &Shared,
    hold: u64,
    guard: Guard,
    length: Duration,
    store: &mut StoreClient,
) -> io::Result<()> {
    let by = HoldId {
        process: shared.process,
        hold,
    };
    let token = guard.token().map(|t| t.get());
    let mut lost = pin!(guard.lost());
    let mut deadlines = guard.deadlines();
    'work: for _ in 0..2 {
        let mut step = pin!(sleep(length / 2));
        loop {
            tokio::select! {
                () = &mut step => break,
                why = &mut lost => {
                    shared.recorder.record(What::Lost { hold, why: why.word().into() })?;
                    break 'work;
                }
                Ok(()) = deadlines.changed() => {
                    let until = deadlines.borrow_and_update().as_nanos();
                    shared.recorder.record(What::Valid { hold, until })?;
                }
            }
        }
        if token.is_some() {
            store
                .append(by, guard.key().as_str(), token, value(shared))
                .await?;
        }
        let held = look(shared, hold, &guard)?;
        // A renewal that came while the store wrote is what that answer was about.
        if deadlines.has_changed().is_ok_and(|changed| changed) {
            let until = deadlines.borrow_and_update().as_nanos();
            shared.recorder.record(What::Valid { hold, until })?;
        }
        if !held {
            break;
        }
    }
    if !guard.is_held() && token.is_some() {
        store
            .append(by, guard.key().as_str(), token, value(shared))
            .await?;
    }
    release(shared, hold, guard).await?;
    Ok(())
}

fn look(shared: &Shared, hold: u64, guard: &Guard) -> io::Result<bool> {
    shared.recorder.record(What::Looks { hold })?;
    let held = guard.is_held();
    shared.recorder.record(What::Held { hold, held })?;
    Ok(held)
}

/// The broken client of the positive control: it believes to hold until it has released, and writes without a token.
async fn reckless(
    shared: &Shared,
    ask: &Ask,
    task: u32,
    length: Duration,
    store: &mut StoreClient,
) -> io::Result<()> {
    let Ok((hold, guard)) = acquire(shared, ask, task).await? else {
        return Ok(());
    };
    shared.recorder.record(What::Valid {
        hold,
        until: u64::MAX,
    })?;
    let by = HoldId {
        process: shared.process,
        hold,
    };
    // Shared holders may well overwrite each other.
    if ask.mode.is_exclusive() {
        let there = store.length(&ask.key).await?;
        sleep(length).await;
        store.overwrite(by, &ask.key, there, value(shared)).await?;
    } else {
        sleep(length).await;
    }
    release(shared, hold, guard).await?;
    Ok(())
}
