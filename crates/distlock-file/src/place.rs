//! One opening of the directory: its table, and this client's FIFO in it. Opened anew when the directory is removed.

use std::sync::{Arc, Mutex, PoisonError};

use distlock_core::driver::DriverError;
use distlock_core::engine::Engine;
use tokio::runtime::{self, Handle};
use tokio::task::AbortHandle;

use crate::bells::{self, Bells, Neighbour, neighbour};
use crate::boot::Boot;
use crate::config::Config;
use crate::dir::Dir;
use crate::fifo::Fifos;
use crate::peers::Peers;
use crate::rule::Wake;
use crate::table::Table;

/// An open directory of locks.
#[derive(Debug)]
pub(crate) struct Place {
    dir: Dir,
    pub(crate) table: Table,
    pub(crate) fifos: Fifos,
    pub(crate) peers: Peers,
    bells: Arc<Bells>,
    listeners: Mutex<Vec<(runtime::Id, AbortHandle)>>,
}

impl Place {
    pub(crate) fn open(
        engine: &Engine,
        config: &Config,
        bells: &Arc<Bells>,
    ) -> Result<Arc<Self>, DriverError> {
        let boot = Boot::current()?;
        let dir = Dir::open(config)?;
        let table = Table::open(&dir, boot)?;
        let fifos = Fifos::create(&dir)?;
        bells::move_in(fifos.own, bells);
        let place = Arc::new(Self {
            dir,
            table,
            fifos,
            peers: Peers::default(),
            bells: bells.clone(),
            listeners: Mutex::default(),
        });
        place.listen_on(engine.runtime());
        let sweeper = Arc::downgrade(&place);
        engine.spawn(async move {
            if let Some(place) = sweeper.upgrade() {
                place.fifos.sweep(&place.dir);
            }
        });
        Ok(place)
    }

    pub(crate) fn dir(&self) -> &Dir {
        &self.dir
    }

    /// Whether the directory and its table are still where others look for them.
    pub(crate) fn is_in_place(&self) -> bool {
        self.dir.is_in_place() && self.table.is_in_place(&self.dir)
    }

    /// Reads the FIFO on the caller's runtime as well, so that its waiters need no detour over the engine thread. When
    /// it was added, the median hand-off of `examples/handoff.rs` hardly moved (50 to 45 µs for `Fifo`, not at all for
    /// `Any`, on a busy machine).
    pub(crate) fn listen_here(&self) {
        // Without I/O a runtime can only panic; see `listen`.
        if cfg!(panic = "unwind")
            && let Ok(here) = Handle::try_current()
        {
            self.listen_on(&here);
        }
    }

    /// Reads the FIFO on this runtime, if nobody does so yet.
    fn listen_on(&self, runtime: &Handle) {
        let mut listeners = self.listeners.lock().unwrap_or_else(PoisonError::into_inner);
        listeners.retain(|(_, task)| !task.is_finished());
        if listeners.iter().any(|(id, _)| *id == runtime.id()) {
            return;
        }
        let Some(fifo) = self.fifos.descriptor() else {
            return;
        };
        let listener = bells::listen(fifo, Arc::downgrade(&self.bells));
        listeners.push((runtime.id(), runtime.spawn(listener).abort_handle()));
    }

    /// Wakes those whom a commit chose; returns the processes that turned out to be dead.
    pub(crate) fn wake(&self, wakes: &[Wake]) -> Vec<u128> {
        let mut dead = Vec::new();
        for wake in wakes.iter().filter(|w| w.process != 0) {
            if let Neighbour::Live(bells) = neighbour(wake.process) {
                bells.ring(wake.claim);
                continue;
            }
            match self.fifos.send(wake.process, wake.claim) {
                Ok(true) => {}
                Ok(false) if dead.contains(&wake.process) => {}
                Ok(false) => dead.push(wake.process),
                Err(e) => tracing::warn!(error = %e, "cannot wake a waiter; it will be late"),
            }
        }
        dead
    }

    /// Ends this client's life in the directory.
    pub(crate) fn close(&self) {
        bells::move_out(self.fifos.own);
        self.fifos.close();
        let listeners = std::mem::take(&mut *self.listeners.lock().unwrap_or_else(PoisonError::into_inner));
        for (_, task) in listeners {
            task.abort();
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.close();
    }
}
