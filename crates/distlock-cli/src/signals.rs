//! The signals that the wrapper hears instead of obeying.

use std::io;

use tokio::io::unix::AsyncFd;

use crate::sys::{self, Arrived, SignalFd, SignalSet};

/// Those that end a wait, and are passed on to a running command.
const ENDING: [i32; 6] = [
    libc::SIGHUP,
    libc::SIGINT,
    libc::SIGQUIT,
    libc::SIGTERM,
    libc::SIGUSR1,
    libc::SIGUSR2,
];

/// Signals that are blocked from the start of the program on, so that none is missed.
#[derive(Debug)]
pub(crate) struct Blocked {
    set: SignalSet,
    /// The mask before, which a command gets.
    pub(crate) before: SignalSet,
}

impl Blocked {
    /// Blocks them. To be called while the process has one thread: the others inherit it.
    ///
    /// # Errors
    /// When the system refuses.
    pub(crate) fn now() -> io::Result<Self> {
        // What is ignored stays ignored: `nohup`, or a background job of a plain shell.
        let heard = ENDING.into_iter().filter(|signal| !sys::is_ignored(*signal));
        let set = SignalSet::of(heard.chain([libc::SIGTSTP, libc::SIGCONT]));
        let before = set.block()?;
        // Messages may be written from the background.
        SignalSet::of([libc::SIGTTOU]).block()?;
        sys::default_action(libc::SIGCHLD);
        Ok(Self { set, before })
    }

    /// Makes them readable from the present runtime.
    ///
    /// # Errors
    /// When the system refuses.
    pub(crate) fn listen(&self) -> io::Result<Signals> {
        let fd = SignalFd::new(&self.set)?;
        Ok(Signals(sys::watch_signals(fd)?))
    }
}

/// The signals as they arrive.
#[derive(Debug)]
pub(crate) struct Signals(AsyncFd<SignalFd>);

impl Signals {
    /// The next signal.
    ///
    /// # Cancel safety
    /// Safe: a signal is taken only when it is returned.
    pub(crate) async fn next(&self) -> Arrived {
        loop {
            let Ok(mut ready) = self.0.readable().await else {
                return std::future::pending().await;
            };
            match self.0.get_ref().next() {
                Ok(Some(arrived)) => return arrived,
                Ok(None) => ready.clear_ready(),
                Err(_) => return std::future::pending().await,
            }
        }
    }

    /// The next signal that ends a wait. A key that stops the job stops this process until it is continued.
    pub(crate) async fn ending(&self) -> i32 {
        loop {
            match self.next().await.signal {
                libc::SIGTSTP => crate::guardian::stop_own_group(false),
                libc::SIGCONT => {}
                signal => return signal,
            }
        }
    }
}
