//! `mode=session`: the database's own session locks (`pg_advisory_lock`, `GET_LOCK`) on one connection per client
//! that is never pooled. Free at once when that connection ends; no tokens, no sharing, no line.

mod driver;
mod link;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use distlock_core::bell::Bell;
use distlock_core::driver::DriverError;
use distlock_core::engine::Engine;
use tokio::sync::oneshot;
use tracing::debug;

pub(crate) use self::driver::SessionDriver;
use self::link::{Dialer, Link};
use crate::config::Config;
use crate::fault::Fault;
use crate::hash::name_hash;

/// How often the connection is asked whether it is still there.
const HEARTBEAT: Duration = Duration::from_secs(1);
/// How long that may take before the session counts as ended.
const PATIENCE: Duration = Duration::from_secs(3);

/// The session of one client, and what it holds. Everything that touches the connection runs on the engine thread,
/// one at a time, to its end.
#[derive(Debug)]
struct Session {
    engine: Engine,
    dialer: Dialer,
    timeout: Duration,
    link: tokio::sync::Mutex<Option<Link>>,
    holds: Mutex<HashMap<String, Hold>>,
    closed: AtomicBool,
}

#[derive(Debug)]
struct Hold {
    owner: String,
    bell: Bell,
}

impl Session {
    fn new(engine: Engine, config: &Config) -> Result<Self, DriverError> {
        Ok(Self {
            dialer: Dialer::new(engine.clone(), config)?,
            timeout: config.timeout,
            link: tokio::sync::Mutex::new(None),
            holds: Mutex::default(),
            closed: AtomicBool::new(false),
            engine,
        })
    }

    fn holds(&self) -> MutexGuard<'_, HashMap<String, Hold>> {
        self.holds.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    fn is_held(&self, name: &str, owner: &str) -> bool {
        self.holds().get(name).is_some_and(|hold| hold.owner == owner)
    }

    /// Takes the lock if it is free or ours.
    async fn take(self: &Arc<Self>, name: String, owner: String, bell: Bell) -> Result<bool, Fault> {
        let mut guard = self.link.lock().await;
        match self.holds().get(&name) {
            Some(hold) if hold.owner == owner => return Ok(true),
            // The session would get it a second time: to the database we are one.
            Some(_) => return Ok(false),
            None => {}
        }
        let link = self.connected(&mut guard).await?;
        let asked = link.take(&name, name_hash(&name));
        let got = match self.engine.clock().timeout(self.timeout, asked).await {
            Some(got) => got,
            None => Err(Fault::Unanswered(
                format!("no answer within {:?}", self.timeout).into(),
            )),
        };
        match got {
            Ok(got) => {
                if got {
                    self.holds().insert(name, Hold { owner, bell });
                }
                Ok(got)
            }
            Err(fault) => {
                if fault.ends_connection() {
                    self.end(&mut guard);
                }
                Err(fault)
            }
        }
    }

    /// Gives the lock back; whether we had it.
    async fn give(self: &Arc<Self>, name: String, owner: String) -> Result<bool, Fault> {
        let mut guard = self.link.lock().await;
        if !self.is_held(&name, &owner) {
            return Ok(false);
        }
        let Some(link) = guard.as_mut() else {
            return Ok(false);
        };
        let asked = link.give(&name, name_hash(&name));
        let gave = match self.engine.clock().timeout(self.timeout, asked).await {
            Some(gave) => gave,
            None => Err(Fault::Unanswered(
                format!("no answer within {:?}", self.timeout).into(),
            )),
        };
        match gave {
            Ok(gave) => {
                self.holds().remove(&name);
                Ok(gave)
            }
            Err(fault) => {
                // Whatever became of the request, the end of the session gives everything back.
                self.end(&mut guard);
                debug!(target: "distlock", ?fault, "the session was ended to be sure of a release");
                Ok(true)
            }
        }
    }

    async fn connected<'a>(self: &Arc<Self>, guard: &'a mut Option<Link>) -> Result<&'a mut Link, Fault> {
        if guard.as_ref().is_some_and(Link::is_over) {
            self.end(guard);
        }
        if guard.is_none() {
            let (over, ended) = oneshot::channel();
            let link = self.dialer.dial(over).await?;
            let session = Arc::downgrade(self);
            self.engine.spawn(async move { keep(session, ended).await });
            *guard = Some(link);
        }
        guard.as_mut().ok_or_else(|| Fault::Unsent("no session".into()))
    }

    /// Closes the connection and tells everybody who held a lock by it.
    fn end(&self, guard: &mut Option<Link>) {
        *guard = None;
        for (_, hold) in self.holds().drain() {
            hold.bell.ring();
        }
    }
}

/// Watches one connection until it ends or is replaced.
async fn keep(session: std::sync::Weak<Session>, mut ended: oneshot::Receiver<()>) {
    let Some(clock) = session.upgrade().map(|s| s.engine.clock().clone()) else {
        return;
    };
    loop {
        // PostgreSQL's end is heard at once; MySQL's by the next heartbeat.
        let over = clock.timeout(HEARTBEAT, &mut ended).await.is_some();
        let Some(session) = session.upgrade() else { return };
        let mut guard = session.link.lock().await;
        let Some(link) = guard.as_mut() else { return };
        let alive = !over && matches!(clock.timeout(PATIENCE, link.ping()).await, Some(Ok(())));
        if !alive {
            session.end(&mut guard);
            return;
        }
    }
}
