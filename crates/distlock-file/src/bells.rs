//! The bells of a client's claims, and those who ring them: messages in its FIFO, and other clients of the process.

use std::collections::HashMap;
use std::os::fd::AsFd;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use distlock_core::bell::Bell;
use rustix::io::{self, Errno};

use crate::sys::{self, NotInChildren};

/// A message in a FIFO: the number of the claim to wake.
pub(crate) const MESSAGE: usize = 8;

/// The bells of one client, by claim.
#[derive(Debug, Default)]
pub(crate) struct Bells {
    claims: Mutex<HashMap<u64, Bell>>,
    closed: AtomicBool,
}

impl Bells {
    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Bell>> {
        self.claims.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn hang(&self, claim: u64, bell: &Bell) {
        self.lock().insert(claim, bell.clone());
    }

    pub(crate) fn take_down(&self, claim: u64) {
        self.lock().remove(&claim);
    }

    pub(crate) fn ring(&self, claim: u64) {
        if let Some(bell) = self.lock().get(&claim) {
            bell.ring();
        }
    }

    pub(crate) fn ring_all(&self) {
        self.lock().values().for_each(Bell::ring);
    }

    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.ring_all();
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }
}

/// The clients of this process by the number of their FIFO: they ring each other's bells directly.
static NEIGHBOURS: Mutex<Option<HashMap<u128, Weak<Bells>>>> = Mutex::new(None);

/// What is known of a client of this process.
pub(crate) enum Neighbour {
    Live(Arc<Bells>),
    Unknown,
}

fn neighbours() -> MutexGuard<'static, Option<HashMap<u128, Weak<Bells>>>> {
    NEIGHBOURS.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn move_in(process: u128, bells: &Arc<Bells>) {
    neighbours()
        .get_or_insert_default()
        .insert(process, Arc::downgrade(bells));
}

pub(crate) fn move_out(process: u128) {
    if let Some(all) = neighbours().as_mut() {
        all.remove(&process);
    }
}

pub(crate) fn neighbour(process: u128) -> Neighbour {
    let found = neighbours().as_ref().and_then(|all| all.get(&process)?.upgrade());
    found
        .filter(|bells| !bells.is_closed())
        .map_or(Neighbour::Unknown, Neighbour::Live)
}

/// Reads a client's FIFO and rings its bells, until the task is aborted. Several may do so, each on its runtime. What
/// `begin` gives is kept for as long.
pub(crate) async fn listen<T>(fifo: Arc<NotInChildren>, bells: Weak<Bells>, begin: impl FnOnce() -> T) {
    // A runtime without I/O panics here. Its waiters are woken by the engine thread, a little later; the task stays
    // until the runtime ends, so that nobody tries again.
    let registered = std::panic::catch_unwind(AssertUnwindSafe(|| sys::watch_readable(fifo)));
    let fifo = match registered {
        Ok(Ok(fifo)) => fifo,
        Ok(Err(e)) => {
            tracing::warn!(error = %e, "cannot listen for wake-ups; waiters will be late");
            return std::future::pending().await;
        }
        Err(_) => return std::future::pending().await,
    };
    let _reading = begin();
    loop {
        let Ok(mut ready) = fifo.readable().await else {
            return;
        };
        let Some(bells) = bells.upgrade() else {
            return;
        };
        match deliver(fifo.get_ref(), &bells) {
            Ok(true) => {}
            Ok(false) => ready.clear_ready(),
            Err(e) => {
                tracing::warn!(error = %e, "cannot read wake-ups; waiters will be late");
                return;
            }
        }
    }
}

/// Reads messages and rings the bells; says whether there may be more.
pub(crate) fn deliver(fifo: &NotInChildren, bells: &Bells) -> Result<bool, Errno> {
    let mut buffer = [0u8; 512 * MESSAGE];
    let n = match io::read(fifo.as_fd(), &mut buffer) {
        Ok(n) => n,
        Err(Errno::AGAIN) => return Ok(false),
        Err(Errno::INTR) => return Ok(true),
        Err(e) => return Err(e),
    };
    let (messages, rest) = buffer[..n].as_chunks::<MESSAGE>();
    messages.iter().for_each(|m| bells.ring(u64::from_le_bytes(*m)));
    if !rest.is_empty() {
        // Not written by us: better all than the wrong one.
        bells.ring_all();
    }
    Ok(n == buffer.len())
}
