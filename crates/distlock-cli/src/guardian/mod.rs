//! The guardian: a small process between the wrapper and the command.
//!
//! The wrapper (`distlock run`) talks to the engine; it may be killed, stopped, or starved. The guardian only
//! watches a clock, its command and a socket, so that it does its one duty whatever becomes of the wrapper: **the
//! command and all its descendants are gone before anybody else can hold the lock.**
//!
//! - It is forked at the start of `main`, before there is any thread or engine, and waits for the order to start.
//! - It is the parent of the command and a sub-reaper: every descendant of the command, also a daemon that forked
//!   twice, stays below it, and it can find, signal and reap them all.
//! - It hears each new deadline and has its own timer, which counts suspended time. At `deadline − kill_after` it
//!   sends TERM to all descendants, at the deadline KILL.
//! - When the socket ends, the wrapper is dead: it kills at once.
//! - On the file engine it holds a copy of the wrapper's liveness descriptor. So the lock of a dead wrapper is
//!   taken for alive until the guardian has ended, which it does when nobody is left.
//! - The command is killed by the kernel when the guardian dies; what is deeper then comes to the wrapper, which
//!   is a sub-reaper too.

mod placement;
mod process;
mod stop;
mod tree;
mod wire;

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::process::Pid;
use tokio::io::Ready;
use tokio::io::unix::AsyncFd;

pub(crate) use placement::{stop_own_group, wrapper_in_foreground};
pub(crate) use process::Plan;
pub(crate) use tree::{Family, descends_from};
pub(crate) use wire::{End, Order, Report, Start, Why};

use crate::sys::{self, Side};

/// The wrapper's side of a guardian that was forked and waits for orders.
#[derive(Debug)]
pub(crate) struct Guardian {
    socket: OwnedFd,
    pid: Pid,
}

impl Guardian {
    /// Forks the guardian. To be called while the process has one thread.
    ///
    /// # Errors
    /// When the socket or the process cannot be made.
    pub(crate) fn fork(plan: Plan) -> io::Result<Self> {
        let (ours, theirs) = socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
            None,
        )?;
        match sys::fork()? {
            Side::Parent(pid) => Ok(Self { socket: ours, pid }),
            Side::Child => {
                drop(ours);
                process::run(plan, theirs)
            }
        }
    }

    /// Makes it usable from the present runtime.
    ///
    /// # Errors
    /// When the runtime cannot watch its socket.
    pub(crate) fn watch(self) -> io::Result<Watched> {
        Ok(Watched {
            socket: sys::watch(self.socket)?,
            pid: self.pid,
        })
    }
}

/// A guardian that the runtime watches.
#[derive(Debug)]
pub(crate) struct Watched {
    socket: AsyncFd<OwnedFd>,
    pid: Pid,
}

impl Watched {
    pub(crate) fn pid(&self) -> Pid {
        self.pid
    }

    /// Gives an order. An order to a guardian that has ended, or that is stopped and has thousands of them to
    /// read, is lost; both are found by other means.
    pub(crate) fn order(&self, order: &Order) {
        let _ = wire::send(self.socket.get_ref(), order, None);
    }

    /// Orders to start the command, and hands over the liveness descriptor.
    pub(crate) fn start(&self, start: Start, liveness: Option<BorrowedFd<'_>>) -> io::Result<()> {
        wire::send(self.socket.get_ref(), &Order::Start(start), liveness)
    }

    /// The next report; `None` when the guardian is dead.
    ///
    /// # Cancel safety
    /// Safe: a report is taken from the socket only when it is returned.
    pub(crate) async fn report(&self) -> io::Result<Option<Report>> {
        loop {
            let mut ready = self.socket.readable().await?;
            match wire::recv::<Report>(self.socket.get_ref()) {
                Ok(Some((report, _))) => return Ok(Some(report)),
                Ok(None) => return Ok(None),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    ready.clear_ready_matching(Ready::READABLE);
                }
                Err(e) => return Err(e),
            }
        }
    }
}
