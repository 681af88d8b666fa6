//! One session on the engine thread that hears for all keys that somebody may have become free.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError};
use std::time::Duration;

use distlock_core::bell::Bell;
use distlock_core::engine::Engine;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;
use tokio_postgres::AsyncMessage;
use tracing::debug;

use super::Connector;

/// How often the session is asked whether it is still there: a dead peer is silent.
const HEARTBEAT: Duration = Duration::from_secs(5);

/// What the session says to itself; no row has such a notice, which has a space.
const ECHO: &str = "echo";

/// Waiters by the name of their row.
type Seats = HashMap<String, Vec<Waiter>>;

#[derive(Debug)]
struct Waiter {
    owner: String,
    bell: Bell,
    rung: Arc<AtomicBool>,
}

/// Rings the bells of waiters when the database says so.
#[derive(Debug)]
pub(crate) struct Listener {
    engine: Engine,
    connector: Connector,
    channel: String,
    seats: Arc<Mutex<Seats>>,
    /// Whether notices arrive; `None` until that is known for the first time.
    live: watch::Sender<Option<bool>>,
    started: Once,
    task: Mutex<Option<JoinHandle<()>>>,
}

/// A waiter's entry; dropped, nobody rings any more.
#[derive(Debug)]
pub(crate) struct Seat {
    seats: Arc<Mutex<Seats>>,
    name: String,
    owner: String,
    rung: Arc<AtomicBool>,
}

impl Seat {
    /// Whether the bell was rung from here since the last time.
    pub(crate) fn rung(&self) -> bool {
        self.rung.swap(false, Ordering::AcqRel)
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut seats = lock(&self.seats);
        if let Some(waiters) = seats.get_mut(&self.name) {
            waiters.retain(|w| w.owner != self.owner);
            if waiters.is_empty() {
                seats.remove(&self.name);
            }
        }
    }
}

fn lock(seats: &Mutex<Seats>) -> MutexGuard<'_, Seats> {
    seats.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Listener {
    pub(crate) fn new(engine: Engine, connector: Connector, channel: String) -> Self {
        Self {
            engine,
            connector,
            channel,
            seats: Arc::default(),
            live: watch::Sender::new(None),
            started: Once::new(),
            task: Mutex::default(),
        }
    }

    /// Registers a waiter, and waits for a moment until the session listens. Whether it does.
    pub(crate) async fn sit(&self, name: &str, owner: &str, bell: &Bell) -> (Seat, bool) {
        let rung = Arc::new(AtomicBool::new(false));
        let waiter = Waiter {
            owner: owner.into(),
            bell: bell.clone(),
            rung: rung.clone(),
        };
        lock(&self.seats).entry(name.into()).or_default().push(waiter);
        let seat = Seat {
            seats: self.seats.clone(),
            name: name.into(),
            owner: owner.into(),
            rung,
        };
        self.started.call_once(|| self.start());
        let mut live = self.live.subscribe();
        let listens = live.wait_for(|live| live.is_some());
        let listens = self.engine.clock().timeout(Duration::from_secs(1), listens).await;
        let listens = matches!(listens, Some(Ok(live)) if *live == Some(true));
        (seat, listens)
    }

    /// Whether notices arrive at present.
    pub(crate) fn is_live(&self) -> bool {
        *self.live.borrow() == Some(true)
    }

    fn start(&self) {
        let session = Session {
            engine: self.engine.clone(),
            connector: self.connector.clone(),
            channel: self.channel.clone(),
            seats: self.seats.clone(),
            live: self.live.clone(),
        };
        let task = self.engine.spawn(session.keep());
        *self.task.lock().unwrap_or_else(PoisonError::into_inner) = Some(task);
    }

    /// Ends the session.
    pub(crate) fn stop(&self) {
        if let Some(task) = self.task.lock().unwrap_or_else(PoisonError::into_inner).take() {
            task.abort();
        }
        self.live.send_replace(Some(false));
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.stop();
    }
}

struct Session {
    engine: Engine,
    connector: Connector,
    channel: String,
    seats: Arc<Mutex<Seats>>,
    live: watch::Sender<Option<bool>>,
}

impl Session {
    /// Listens for ever, over one connection after the other.
    async fn keep(self) {
        let clock = self.engine.clock().clone();
        let mut pause = Duration::from_millis(50);
        loop {
            let started = clock.now();
            if let Err(why) = self.listen().await {
                debug!(target: "distlock", error = %why, "not listening for notices at present");
            }
            self.live.send_replace(Some(false));
            // What was missed meanwhile is asked for by the waiters themselves.
            ring_all(&self.seats);
            pause = match clock.now().since(started) > Duration::from_secs(10) {
                true => Duration::from_millis(50),
                false => (pause * 2).min(Duration::from_secs(2)),
            };
            clock.sleep(pause).await;
        }
    }

    async fn listen(&self) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        let seats = self.seats.clone();
        // The connection's task owns the closure: when it ends, the sender is dropped.
        let (alive, mut ended) = oneshot::channel::<()>();
        let (echo, mut echoed) = oneshot::channel::<()>();
        let mut echo = Some(echo);
        let heard = move |message| {
            let _ = &alive;
            if let AsyncMessage::Notification(notice) = message {
                match notice.payload() {
                    ECHO => drop(echo.take().map(|echo| echo.send(()))),
                    payload => ring(&seats, payload),
                }
            }
        };
        let clock = self.engine.clock();
        let client = self.connector.connect_with(&self.engine, heard).await;
        let client = client.map_err(|fault| fault.into_error())?;
        // A pooler may accept the LISTEN of a session and give its notices to nobody: listen to ourselves first.
        let own = format!("distlock_echo_{}", self.engine.owners().client().simple());
        let listen = format!(
            "LISTEN \"{}\"; LISTEN \"{own}\"; NOTIFY \"{own}\", '{ECHO}'",
            self.channel
        );
        clock
            .timeout(HEARTBEAT, client.batch_execute(&listen))
            .await
            .ok_or("no answer")??;
        clock
            .timeout(HEARTBEAT, &mut echoed)
            .await
            .ok_or("notices do not arrive: is a pooler in between?")??;
        self.live.send_replace(Some(true));
        ring_all(&self.seats);
        loop {
            if clock.timeout(HEARTBEAT, &mut ended).await.is_some() {
                return Err("the connection was closed".into());
            }
            clock
                .timeout(HEARTBEAT, client.batch_execute(""))
                .await
                .ok_or("no answer")??;
        }
    }
}

fn ring_all(seats: &Mutex<Seats>) {
    for waiter in lock(seats).values().flatten() {
        waiter.rung.store(true, Ordering::Release);
        waiter.bell.ring();
    }
}

/// A notice is the owner whose turn it is (or nothing), a space, and the name of the row.
fn ring(seats: &Mutex<Seats>, payload: &str) {
    let Some((next, name)) = payload.split_once(' ') else {
        return;
    };
    let seats = lock(seats);
    for waiter in seats.get(name).into_iter().flatten() {
        if next.is_empty() || waiter.owner == next {
            waiter.rung.store(true, Ordering::Release);
            waiter.bell.ring();
        }
    }
}
