//! One opening of the directory: its table, and this client's FIFO in it. Opened anew when the directory is removed.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

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
use crate::rule::{Unheard, Wake};
use crate::stopped::is_stopped;
use crate::table::Table;

/// An open directory of locks.
#[derive(Debug)]
pub(crate) struct Place {
    dir: Dir,
    pub(crate) table: Table,
    pub(crate) fifos: Fifos,
    pub(crate) peers: Peers,
    bells: Arc<Bells>,
    engine: Handle,
    listeners: Mutex<Listeners>,
}

/// Who reads this client's FIFO.
#[derive(Debug, Default)]
struct Listeners {
    tasks: Vec<(runtime::Id, AbortHandle)>,
    /// A waiter has no other runtime than the engine thread's.
    engine_needed: bool,
    closed: bool,
}

impl Listeners {
    fn end(&mut self, runtime: runtime::Id) {
        self.tasks.retain(|(id, task)| {
            if *id == runtime {
                task.abort();
            }
            *id != runtime
        });
    }
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
            engine: engine.runtime().clone(),
            listeners: Mutex::default(),
        });
        place.listen_on(&place.engine);
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

    /// Sees to it that the present runtime reads the FIFO, so that no wake-up of its waiters takes a detour over
    /// another thread. From then on the engine thread does not: a message wakes all who read, and a second thread
    /// on the processor that the waiter needs costs it as much as the whole way of the message. It reads again when
    /// that runtime has ended, and for waiters that have no other; what a blocked runtime leaves unread for a holder,
    /// the vigil finds.
    pub(crate) fn listen_here(self: &Arc<Self>) {
        // Without I/O a runtime can only panic; see `listen`.
        let here = Handle::try_current()
            .ok()
            .filter(|here| cfg!(panic = "unwind") && here.id() != self.engine.id());
        let Some(here) = here else {
            self.listeners().engine_needed = true;
            return self.listen_on(&self.engine);
        };
        self.listen_on(&here);
    }

    /// Rings for the messages that nobody has read yet.
    pub(crate) fn ring(&self) {
        if let Some(fifo) = self.fifos.descriptor() {
            let _ = bells::deliver(&fifo, &self.bells);
        }
    }

    fn listeners(&self) -> MutexGuard<'_, Listeners> {
        self.listeners.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_read_by(&self, runtime: &Handle) -> bool {
        let listeners = self.listeners();
        listeners
            .tasks
            .iter()
            .any(|(id, task)| *id == runtime.id() && !task.is_finished())
    }

    /// Reads the FIFO on this runtime, if nobody does so yet.
    fn listen_on(self: &Arc<Self>, runtime: &Handle) {
        if self.is_read_by(runtime) {
            return;
        }
        let Some(fifo) = self.fifos.descriptor() else {
            return;
        };
        let (place, id) = (Arc::downgrade(self), runtime.id());
        let other = id != self.engine.id();
        let begin = move || other.then(|| Reading::begin(place, id));
        let listener = bells::listen(fifo, Arc::downgrade(&self.bells), begin);
        // Not under the lock: a runtime that has ended drops the task at once.
        let task = runtime.spawn(listener).abort_handle();
        let mut listeners = self.listeners();
        if listeners.closed {
            return task.abort();
        }
        listeners.tasks.retain(|(_, task)| !task.is_finished());
        listeners.tasks.push((id, task));
    }

    /// Wakes those whom a commit chose; returns those who turned out to be dead, or stopped.
    pub(crate) fn wake(&self, wakes: &[Wake]) -> Unheard {
        let mut unheard = Unheard::default();
        for wake in wakes.iter().filter(|w| w.process != 0) {
            if let Neighbour::Live(bells) = neighbour(wake.process) {
                bells.ring(wake.claim);
                continue;
            }
            match self.fifos.send(wake.process, wake.claim) {
                // Looked at after the ring, when a waiter that is awake is on its way already.
                Ok(true) if wake.pid != 0 && is_stopped(wake.pid) => unheard.stopped.push(*wake),
                Ok(true) => {}
                Ok(false) if unheard.dead.contains(&wake.process) => {}
                Ok(false) => unheard.dead.push(wake.process),
                Err(e) => tracing::warn!(error = %e, "cannot wake a waiter; it will be late"),
            }
        }
        unheard
    }

    /// Ends this client's life in the directory.
    pub(crate) fn close(&self) {
        bells::move_out(self.fifos.own);
        self.fifos.close();
        let tasks = {
            let mut listeners = self.listeners();
            listeners.closed = true;
            std::mem::take(&mut listeners.tasks)
        };
        for (_, task) in tasks {
            task.abort();
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.close();
    }
}

/// A runtime other than the engine thread's reads the FIFO.
pub(crate) struct Reading {
    place: Weak<Place>,
    runtime: runtime::Id,
}

impl Reading {
    /// The engine thread need not read any more.
    fn begin(place: Weak<Place>, runtime: runtime::Id) -> Self {
        if let Some(place) = place.upgrade() {
            let mut listeners = place.listeners();
            if !listeners.engine_needed {
                listeners.end(place.engine.id());
            }
        }
        Self { place, runtime }
    }
}

impl Drop for Reading {
    /// It has ended, as its runtime does. A waiter may have moved to another one without looking again.
    fn drop(&mut self) {
        let Some(place) = self.place.upgrade() else { return };
        let engine = place.engine.id();
        let others = {
            let mut listeners = place.listeners();
            listeners.end(self.runtime);
            listeners.tasks.retain(|(_, task)| !task.is_finished());
            listeners.tasks.iter().any(|(id, _)| *id != engine)
        };
        if !others {
            place.listen_on(&place.engine);
        }
    }
}
