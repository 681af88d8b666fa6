//! The system calls that no safe crate offers: `fork`, signal masks and dispositions, `signalfd`, the password
//! database, and what a command's process does between `fork` and `exec`.
//!
//! This is the only module of the command with `unsafe` code.
#![allow(unsafe_code)]

use std::ffi::{CStr, OsString};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use rustix::process::Pid;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Which side of a [`fork`] this is.
#[derive(Debug)]
pub(crate) enum Side {
    Parent(Pid),
    Child,
}

/// Forks. Only while this process has one thread: the child is then as free to allocate and lock as the parent.
pub(crate) fn fork() -> io::Result<Side> {
    debug_assert!(single_threaded());
    // SAFETY: there is one thread (the callers are at the start of `main`, or in the guardian, which never makes
    // a thread), so that no lock can be held by a thread that does not exist in the child.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(Side::Child),
        pid => Pid::from_raw(pid)
            .map(Side::Parent)
            .ok_or_else(|| io::Error::other("fork returned no process id")),
    }
}

fn single_threaded() -> bool {
    std::fs::read_dir("/proc/self/task").is_ok_and(|tasks| tasks.count() == 1)
}

/// A set of signals.
#[derive(Clone, Copy)]
pub(crate) struct SignalSet(libc::sigset_t);

impl std::fmt::Debug for SignalSet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SignalSet")
    }
}

impl SignalSet {
    pub(crate) fn of(signals: impl IntoIterator<Item = i32>) -> Self {
        let mut set = MaybeUninit::uninit();
        // SAFETY: sigemptyset initialises the set; sigaddset refuses numbers that are no signals.
        unsafe {
            libc::sigemptyset(set.as_mut_ptr());
            for signal in signals {
                libc::sigaddset(set.as_mut_ptr(), signal);
            }
            Self(set.assume_init())
        }
    }

    /// Blocks these signals in this thread, beside those that are blocked already; returns the mask before.
    pub(crate) fn block(&self) -> io::Result<SignalSet> {
        self.mask(libc::SIG_BLOCK)
    }

    /// Makes these the blocked signals of this thread.
    pub(crate) fn set(&self) -> io::Result<SignalSet> {
        self.mask(libc::SIG_SETMASK)
    }

    fn mask(&self, how: i32) -> io::Result<SignalSet> {
        let mut before = MaybeUninit::uninit();
        // SAFETY: both sets are valid for the call, and `before` is filled when it succeeds.
        unsafe {
            match libc::pthread_sigmask(how, &self.0, before.as_mut_ptr()) {
                0 => Ok(Self(before.assume_init())),
                e => Err(io::Error::from_raw_os_error(e)),
            }
        }
    }
}

/// Whether the signal is ignored, as `nohup` and non-interactive shells arrange for the commands that they start.
pub(crate) fn is_ignored(signal: i32) -> bool {
    let mut action = MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: a null new action only reads the present one, which is filled when the call succeeds.
    unsafe {
        libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr()) == 0
            && action.assume_init().sa_sigaction == libc::SIG_IGN
    }
}

/// Restores the default disposition of a signal.
pub(crate) fn default_action(signal: i32) {
    // SAFETY: SIG_DFL is a valid disposition for every signal; failure (no such signal) changes nothing.
    unsafe {
        libc::signal(signal, libc::SIG_DFL);
    }
}

/// Signals as readable events. The signals must be blocked in every thread.
#[derive(Debug)]
pub(crate) struct SignalFd(OwnedFd);

/// One signal that arrived.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Arrived {
    pub(crate) signal: i32,
    /// Sent by the kernel, as the terminal's keys are, and so to the whole foreground group.
    pub(crate) by_kernel: bool,
}

impl SignalFd {
    pub(crate) fn new(set: &SignalSet) -> io::Result<Self> {
        // SAFETY: the set is valid for the call; a descriptor that the kernel returns is ours alone.
        unsafe {
            match libc::signalfd(-1, &set.0, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) {
                -1 => Err(io::Error::last_os_error()),
                fd => Ok(Self(OwnedFd::from_raw_fd(fd))),
            }
        }
    }

    /// The next signal, or `None` when there is none now.
    pub(crate) fn next(&self) -> io::Result<Option<Arrived>> {
        let mut info = MaybeUninit::<libc::signalfd_siginfo>::zeroed();
        let size = size_of::<libc::signalfd_siginfo>();
        // SAFETY: the buffer has `size` bytes and every bit pattern is a valid `signalfd_siginfo`.
        let (n, info) = unsafe {
            let n = libc::read(self.0.as_raw_fd(), info.as_mut_ptr().cast(), size);
            (n, info.assume_init())
        };
        if n == size as isize {
            return Ok(Some(Arrived {
                signal: info.ssi_signo as i32,
                by_kernel: info.ssi_code > 0,
            }));
        }
        match io::Error::last_os_error() {
            e if e.kind() == io::ErrorKind::WouldBlock => Ok(None),
            e if e.kind() == io::ErrorKind::Interrupted => Ok(None),
            e => Err(e),
        }
    }
}

/// Watches a descriptor for input from the present runtime.
pub(crate) fn watch(fd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an `OwnedFd` is open, gives the same descriptor each time, and is closed only by its drop, which the
    // `AsyncFd` owns.
    Ok(unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) }?)
}

/// As [`watch`].
pub(crate) fn watch_signals(fd: SignalFd) -> io::Result<AsyncFd<SignalFd>> {
    // SAFETY: it is an `OwnedFd`; see `watch`.
    Ok(unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) }?)
}

impl AsRawFd for SignalFd {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

impl std::os::fd::AsFd for SignalFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        std::os::fd::AsFd::as_fd(&self.0)
    }
}

/// What a command's process does to itself before it becomes the command.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Before {
    /// The guardian: the command dies with it.
    pub(crate) parent: Pid,
    /// The process group to join; `None`: to lead one of its own.
    pub(crate) group: Option<Pid>,
    /// The terminal to take, when it leads the foreground group.
    pub(crate) terminal: Option<RawFd>,
    /// The signal mask that the wrapper was started with.
    pub(crate) mask: SignalSet,
}

/// Makes the command do that before `exec`.
pub(crate) fn prepare(command: &mut Command, before: Before) {
    // SAFETY: the closure only makes system calls and touches no memory but its own copy.
    unsafe {
        command.pre_exec(move || {
            if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) == -1 {
                return Err(io::Error::last_os_error());
            }
            // The guardian may have died before the line above took effect.
            if libc::getppid() != before.parent.as_raw_nonzero().get() {
                libc::_exit(128 + libc::SIGKILL);
            }
            let group = before.group.map_or(0, |group| group.as_raw_nonzero().get());
            if libc::setpgid(0, group) == -1 {
                return Err(io::Error::last_os_error());
            }
            if let Some(tty) = before.terminal {
                // A background process that takes the terminal is stopped by SIGTTOU unless that is blocked.
                SignalSet::of([libc::SIGTTOU]).block()?;
                libc::tcsetpgrp(tty, libc::getpid());
            }
            before.mask.set()?;
            Ok(())
        });
    }
}

/// Takes over a descriptor that this process was started with.
pub(crate) fn inherited(fd: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: F_SETFD touches no memory, and fails for a number that is no open descriptor.
    if unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) } == -1 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: it is open, was inherited, and nothing else in this program knows its number.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// The home directory that the password database has for the user of this process, whatever `HOME` says.
pub(crate) fn passwd_home() -> Option<PathBuf> {
    let mut entry = MaybeUninit::<libc::passwd>::uninit();
    let mut found = std::ptr::null_mut();
    let mut buffer = vec![0u8; 16 * 1024];
    // SAFETY: the buffer outlives every use of the entry, whose strings point into it; `found` is null unless the
    // entry was filled.
    unsafe {
        let rc = libc::getpwuid_r(
            libc::geteuid(),
            entry.as_mut_ptr(),
            buffer.as_mut_ptr().cast(),
            buffer.len(),
            &mut found,
        );
        if rc != 0 || found.is_null() || (*found).pw_dir.is_null() {
            return None;
        }
        let home = CStr::from_ptr((*found).pw_dir).to_bytes().to_vec();
        (!home.is_empty()).then(|| PathBuf::from(OsString::from_vec(home)))
    }
}
