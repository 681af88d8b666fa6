//! Those whom this client's waiters wait behind: whether they live, and the notice when they die.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

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
    known: Mutex<HashMap<u128, Weak<Peer>>>,
}

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
    fn lock(&self) -> MutexGuard<'_, HashMap<u128, Weak<Peer>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn get(&self, process: u128) -> Option<Arc<Peer>> {
        self.lock().get(&process)?.upgrade()
    }

    /// Whether the process lives.
    pub(crate) fn is_alive(&self, fifos: &Fifos, process: u128) -> Result<bool, DriverError> {
        if process == fifos.own || matches!(neighbour(process), Neighbour::Live(_)) {
            return Ok(true);
        }
        match self.get(process) {
            Some(peer) => Ok(peer.has_reader()),
            None => Ok(fifos.open(process)?.is_some()),
        }
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
        let peer = match self.get(process) {
            Some(peer) => peer,
            None => {
                let Some(fifo) = fifos.open(process)? else {
                    return Ok(None);
                };
                let peer = Arc::new(Peer {
                    fifo: Arc::new(fifo),
                    bells: Mutex::default(),
                    task: Mutex::default(),
                });
                let mut known = self.lock();
                known.retain(|_, peer| peer.strong_count() > 0);
                match known.get(&process).and_then(Weak::upgrade) {
                    Some(first) => first,
                    None => {
                        known.insert(process, Arc::downgrade(&peer));
                        peer.start(engine);
                        peer
                    }
                }
            }
        };
        peer.bells().insert(claim, bell.clone());
        // Either the task sees the death after this, or this sees it.
        if !peer.has_reader() {
            return Ok(None);
        }
        Ok(Some(Watch { process, claim, peer }))
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

    fn start(self: &Arc<Self>, engine: &Engine) {
        let (fifo, peer) = (self.fifo.clone(), Arc::downgrade(self));
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
