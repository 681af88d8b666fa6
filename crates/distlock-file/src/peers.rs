//! Those whom this client's waiters wait behind: whether they live, and the notice when they die.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use distlock_core::bell::Bell;
use distlock_core::driver::DriverError;
use distlock_core::engine::Engine;
use rustix::event::{PollFd, PollFlags, poll};
use tokio::io::Interest;
use tokio::task::AbortHandle;

use crate::bells::{Neighbour, neighbour};
use crate::fifo::Fifos;
use crate::sys;

/// The watched processes.
#[derive(Debug, Default)]
pub(crate) struct Peers {
    known: Arc<Mutex<Known>>,
}

type Known = HashMap<u128, Arc<Peer>>;

/// How many processes are kept in sight although nobody waits behind them just now: whoever contends with them once
/// is likely to do so again.
const LINGER: usize = 8;

/// A process whose FIFO is held open for writing, which makes the kernel tell of its death.
#[derive(Debug)]
struct Peer {
    fifo: Arc<OwnedFd>,
    bells: Mutex<HashMap<u64, Bell>>,
    task: Mutex<Option<AbortHandle>>,
}

/// Rings a claim's bell when the process dies, for as long as this is kept.
#[derive(Debug)]
pub(crate) struct Watch {
    pub(crate) process: u128,
    claim: u64,
    peer: Arc<Peer>,
}

impl Peers {
    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn get(&self, process: u128) -> Option<Arc<Peer>> {
        self.lock().get(&process).cloned()
    }

    /// The peer, unless it was found dead.
    fn living(&self, process: u128) -> Option<Arc<Peer>> {
        let peer = self.get(process)?;
        if !peer.has_reader() {
            self.lock().remove(&process);
            return None;
        }
        Some(peer)
    }

    /// Whether the process lives.
    pub(crate) fn is_alive(&self, fifos: &Fifos, process: u128) -> Result<bool, DriverError> {
        if process == fifos.own || matches!(neighbour(process), Neighbour::Live(_)) {
            return Ok(true);
        }
        Ok(self.living(process).is_some() || fifos.open(process)?.is_some())
    }

    /// Watches a process for a claim: `None` if it is dead already.
    pub(crate) fn watch(
        &self,
        fifos: &Fifos,
        engine: &Engine,
        process: u128,
        claim: u64,
        bell: &Bell,
    ) -> Result<Option<Watch>, DriverError> {
        let peer = match self.living(process) {
            Some(peer) => peer,
            None => {
                let Some(fifo) = fifos.open(process)? else {
                    return Ok(None);
                };
                self.add(engine, process, fifo)
            }
        };
        peer.bells().insert(claim, bell.clone());
        // Either the task sees the death after this, or this sees it.
        if !peer.has_reader() {
            return Ok(None);
        }
        Ok(Some(Watch { process, claim, peer }))
    }

    fn add(&self, engine: &Engine, process: u128, fifo: OwnedFd) -> Arc<Peer> {
        let mut known = self.lock();
        if let Some(first) = known.get(&process) {
            return first.clone();
        }
        let mut idle = 0;
        known.retain(|_, peer| {
            let waited_for = !peer.bells().is_empty();
            idle += usize::from(!waited_for);
            waited_for || idle < LINGER
        });
        let peer = Arc::new(Peer {
            fifo: Arc::new(fifo),
            bells: Mutex::default(),
            task: Mutex::default(),
        });
        peer.start(engine, process, &self.known);
        known.insert(process, peer.clone());
        peer
    }
}

impl Peer {
    fn bells(&self) -> MutexGuard<'_, HashMap<u64, Bell>> {
        self.bells.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn has_reader(&self) -> bool {
        let mut fds = [PollFd::new(&self.fifo, PollFlags::empty())];
        let none = rustix::time::Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        match poll(&mut fds, Some(&none)) {
            Ok(_) => !fds[0].revents().contains(PollFlags::ERR),
            Err(_) => true,
        }
    }

    fn start(self: &Arc<Self>, engine: &Engine, process: u128, known: &Arc<Mutex<Known>>) {
        let (fifo, peer) = (self.fifo.clone(), Arc::downgrade(self));
        let known = Arc::downgrade(known);
        let task = engine.spawn(async move {
            match sys::watch_errors(fifo) {
                Ok(fifo) => {
                    let _ = fifo.ready(Interest::ERROR).await;
                }
                Err(e) => {
                    tracing::warn!(error = %e, "cannot watch a holder; its death will be noticed late");
                    return;
                }
            }
            if let Some(peer) = peer.upgrade() {
                peer.bells().values().for_each(Bell::ring);
            }
            if let Some(known) = known.upgrade() {
                known
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .remove(&process);
            }
        });
        *self.task.lock().unwrap_or_else(PoisonError::into_inner) = Some(task.abort_handle());
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let task = self.task.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(task) = task.take() {
            task.abort();
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.peer.bells().remove(&self.claim);
    }
}
