//! The system calls that no crate offers in a safe form. The only unsafe code of this engine.
#![allow(unsafe_code)]

use std::ffi::{CStr, OsStr};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::ptr;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::sync::{Arc, Once};

use memmap2::MmapRaw;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// One byte of a file, reserved for this open file description.
///
/// Open-file-description locks, never the POSIX ones: those belong to the process and are dropped when *any* of its
/// descriptors of the file is closed. The kernel gives the byte back when the description goes, however that is.
#[derive(Debug)]
pub(crate) struct ByteLock<'a> {
    file: BorrowedFd<'a>,
    at: u64,
}

impl<'a> ByteLock<'a> {
    /// Takes the byte at `at`; `None` if somebody else has it.
    pub(crate) fn take(file: BorrowedFd<'a>, at: u64) -> io::Result<Option<Self>> {
        match ofd(file, at, libc::F_WRLCK) {
            Ok(()) => Ok(Some(Self { file, at })),
            Err(e) if matches!(e.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => Ok(None),
            Err(e) => Err(e),
        }
    }
}

impl Drop for ByteLock<'_> {
    fn drop(&mut self) {
        // Cannot fail for a byte that is ours, and nothing could be done about it.
        let _ = ofd(self.file, self.at, libc::F_UNLCK);
    }
}

fn ofd(file: BorrowedFd<'_>, at: u64, kind: libc::c_int) -> io::Result<()> {
    // SAFETY: all bit patterns are valid for this plain C struct.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = kind as _;
    lock.l_whence = libc::SEEK_SET as _;
    lock.l_start = at as _;
    lock.l_len = 1;
    // SAFETY: the descriptor is open for the lifetime of the borrow, and `lock` outlives the call.
    if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &lock) } == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// The word at this offset of a shared mapping.
///
/// A table that is truncated while it is mapped raises SIGBUS here; whoever can do that can also write to it.
///
/// # Panics
/// When the word is not within the mapping, or not aligned.
pub(crate) fn word(map: &MmapRaw, at: usize) -> &AtomicU64 {
    assert!(at.is_multiple_of(8) && at + 8 <= map.len());
    // SAFETY: within the mapping (checked above), aligned since mappings start on a page, and only ever accessed
    // as an atomic, in this process and in all others.
    unsafe { AtomicU64::from_ptr(map.as_mut_ptr().add(at).cast()) }
}

/// Registers a descriptor with the runtime at hand, for reading.
///
/// # Panics
/// Outside of a runtime with I/O.
pub(crate) fn watch_readable(fd: Arc<NotInChildren>) -> io::Result<AsyncFd<Arc<NotInChildren>>> {
    // SAFETY: it owns its descriptor, always gives the same one, and the `Arc` keeps it open for as long as the
    // registration lives. In a forked child it is replaced, where no runtime runs any more.
    Ok(unsafe { AsyncFd::register(fd) }?)
}

/// Registers the write end of a FIFO with the runtime at hand, for the notice that its last reader has gone.
///
/// # Panics
/// Outside of a runtime with I/O.
pub(crate) fn watch_errors(fd: Arc<OwnedFd>) -> io::Result<AsyncFd<Arc<OwnedFd>>> {
    // SAFETY: as above; the `Arc` keeps the descriptor open for as long as the registration lives.
    Ok(unsafe { AsyncFd::register_with_interest(fd, Interest::ERROR) }?)
}

/// Writes to a FIFO without the SIGPIPE that its dead reader would cost a host that leaves that signal at default.
pub(crate) fn write_quietly(fifo: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<usize> {
    let write = || {
        // SAFETY: a valid slice to an open descriptor.
        let n = unsafe { libc::write(fifo.as_raw_fd(), bytes.as_ptr().cast(), bytes.len()) };
        usize::try_from(n).map_err(|_| io::Error::last_os_error())
    };
    // SAFETY: plain signal calls on local memory. The signal is blocked for this thread only, and taken if this write
    // raised it (it was not pending before).
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        let asked = libc::sigaction(libc::SIGPIPE, ptr::null(), &mut action);
        if asked == 0 && action.sa_sigaction == libc::SIG_IGN {
            // As the Rust runtime leaves it.
            return write();
        }
        let mut pipe: libc::sigset_t = std::mem::zeroed();
        let mut before: libc::sigset_t = std::mem::zeroed();
        let mut pending: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut pipe);
        libc::sigaddset(&mut pipe, libc::SIGPIPE);
        libc::sigpending(&mut pending);
        let was_pending = libc::sigismember(&pending, libc::SIGPIPE) == 1;
        libc::pthread_sigmask(libc::SIG_BLOCK, &pipe, &mut before);
        let result = write();
        if !was_pending && matches!(&result, Err(e) if e.raw_os_error() == Some(libc::EPIPE)) {
            let now = libc::timespec {
                tv_sec: 0,
                tv_nsec: 0,
            };
            libc::sigtimedwait(&pipe, ptr::null_mut(), &now);
        }
        libc::pthread_sigmask(libc::SIG_SETMASK, &before, ptr::null_mut());
        result
    }
}

/// Stops this process, at this very instruction of this thread (a signal to the process could go to another one).
pub(crate) fn stop_here() {
    // SAFETY: a plain system call.
    unsafe { libc::raise(libc::SIGSTOP) };
}

/// The home directory of the user in the password database.
pub(crate) fn home(uid: u32) -> Option<PathBuf> {
    let mut buffer = vec![0 as libc::c_char; 1024];
    loop {
        // SAFETY: all bit patterns are valid for this plain C struct.
        let mut entry: libc::passwd = unsafe { std::mem::zeroed() };
        let mut found = ptr::null_mut();
        // SAFETY: all pointers are to live local memory of the stated size.
        let code =
            unsafe { libc::getpwuid_r(uid, &mut entry, buffer.as_mut_ptr(), buffer.len(), &mut found) };
        if code == libc::ERANGE && buffer.len() < 1 << 20 {
            buffer.resize(buffer.len() * 2, 0);
            continue;
        }
        if code != 0 || found.is_null() || entry.pw_dir.is_null() {
            return None;
        }
        // SAFETY: the entry's strings are NUL-terminated and live in `buffer`.
        let dir = unsafe { CStr::from_ptr(entry.pw_dir) };
        return Some(PathBuf::from(OsStr::from_bytes(dir.to_bytes())));
    }
}

/// A descriptor that a forked child must not keep: in a child that did not `exec`, it becomes `/dev/null`.
///
/// The number stays in use, so that nothing in the child can close somebody else's descriptor by it.
#[derive(Debug)]
pub(crate) struct NotInChildren {
    fd: OwnedFd,
    seat: &'static AtomicI32,
}

/// Descriptors that a child gives up. The fork handler may only touch memory that never moves, so seats are
/// allocated once and used again.
struct Seats {
    seat: AtomicI32,
    next: AtomicU64,
}

static FIRST: AtomicU64 = AtomicU64::new(0);
static NULL: AtomicI32 = AtomicI32::new(-1);
static PREPARE: Once = Once::new();

impl NotInChildren {
    pub(crate) fn new(fd: OwnedFd) -> io::Result<Self> {
        let mut failed = None;
        PREPARE.call_once(|| {
            let opened = std::fs::OpenOptions::new()
                .read(true)
                .write(true)
                .open("/dev/null");
            match opened {
                Ok(null) => {
                    use std::os::fd::IntoRawFd;
                    NULL.store(null.into_raw_fd(), Ordering::Release);
                    // SAFETY: the handler only reads atomics and calls dup3, which is async-signal-safe.
                    unsafe { libc::pthread_atfork(None, None, Some(give_up)) };
                }
                Err(e) => failed = Some(e),
            }
        });
        if let Some(e) = failed {
            return Err(e);
        }
        let seat = take_seat(fd.as_raw_fd());
        Ok(Self { fd, seat })
    }
}

impl AsFd for NotInChildren {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl AsRawFd for NotInChildren {
    fn as_raw_fd(&self) -> i32 {
        self.fd.as_raw_fd()
    }
}

impl Drop for NotInChildren {
    fn drop(&mut self) {
        // Before the descriptor closes: a fork in between must not replace somebody else's.
        self.seat.store(-1, Ordering::SeqCst);
    }
}

fn take_seat(fd: i32) -> &'static AtomicI32 {
    let mut at = FIRST.load(Ordering::Acquire);
    while at != 0 {
        // SAFETY: only addresses of leaked seats are ever stored in the list.
        let seats: &'static Seats = unsafe { &*(at as usize as *const Seats) };
        if seats
            .seat
            .compare_exchange(-1, fd, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
        {
            return &seats.seat;
        }
        at = seats.next.load(Ordering::Acquire);
    }
    let seats: &'static Seats = Box::leak(Box::new(Seats {
        seat: AtomicI32::new(fd),
        next: AtomicU64::new(0),
    }));
    let address = ptr::from_ref(seats) as usize as u64;
    let mut first = FIRST.load(Ordering::Acquire);
    loop {
        seats.next.store(first, Ordering::Relaxed);
        match FIRST.compare_exchange_weak(first, address, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => return &seats.seat,
            Err(now) => first = now,
        }
    }
}

extern "C" fn give_up() {
    let null = NULL.load(Ordering::Acquire);
    let mut at = FIRST.load(Ordering::Acquire);
    while at != 0 {
        // SAFETY: only addresses of leaked seats are ever stored in the list.
        let seats: &'static Seats = unsafe { &*(at as usize as *const Seats) };
        let fd = seats.seat.load(Ordering::Acquire);
        if fd >= 0 && null >= 0 {
            // SAFETY: both numbers are open descriptors of this (single-threaded) child.
            unsafe { libc::dup3(null, fd, libc::O_CLOEXEC) };
        }
        at = seats.next.load(Ordering::Acquire);
    }
}
