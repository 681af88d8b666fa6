//! A FIFO per client: its wake-ups, the proof that it lives, and the notice of its death.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};

use distlock_core::driver::DriverError;
use rustix::fs::{self, AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;

use crate::dir::Dir;
use crate::sys::{self, NotInChildren};
use crate::trouble::{failed, refused};

/// The directory of the FIFOs.
const DIR: &str = "p";

/// The FIFOs of a directory, and this client's own.
#[derive(Debug)]
pub(crate) struct Fifos {
    dir: Dir,
    pub(crate) own: u128,
    /// Gone once the client is closed.
    fd: Mutex<Option<Arc<NotInChildren>>>,
    /// The write ends of those who were woken lately: they are likely to be woken again.
    recent: Mutex<Vec<(u128, OwnedFd)>>,
    pid: u32,
}

const RECENT: usize = 4;

fn name(process: u128) -> String {
    format!("{process:032x}")
}

impl Fifos {
    /// Makes this client's FIFO and opens both its ends. It lives for as long as any copy of the descriptor is open;
    /// forked children give theirs up, and spawned commands never get one.
    pub(crate) fn create(root: &Dir) -> Result<Self, DriverError> {
        let dir = root.inside(DIR)?;
        let own = rand::random::<u128>().max(1);
        let path = dir.path().join(name(own));
        let trouble = |e: Errno| failed("cannot create the FIFO", &path, e);
        fs::mknodat(&dir, name(own), FileType::Fifo, Mode::from_raw_mode(0o600), 0).map_err(trouble)?;
        let open = || {
            let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOFOLLOW;
            let fd = fs::openat(&dir, name(own), flags, Mode::empty())?;
            fs::fchmod(&fd, Mode::from_raw_mode(root.share().file_mode()))?;
            Ok(fd)
        };
        let made = open().and_then(|fd| {
            NotInChildren::new(fd)
                .map_err(|e| Errno::from_raw_os_error(e.raw_os_error().unwrap_or(libc::EIO)))
        });
        match made {
            Ok(fd) => Ok(Self {
                dir,
                own,
                fd: Mutex::new(Some(Arc::new(fd))),
                recent: Mutex::default(),
                pid: std::process::id(),
            }),
            Err(e) => {
                let _ = fs::unlinkat(&dir, name(own), AtFlags::empty());
                Err(trouble(e))
            }
        }
    }

    pub(crate) fn descriptor(&self) -> Option<Arc<NotInChildren>> {
        self.fd.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A copy that keeps the client alive. Spawned commands do not get it.
    pub(crate) fn copy(&self) -> Option<OwnedFd> {
        rustix::io::fcntl_dupfd_cloexec(self.descriptor()?, 3).ok()
    }

    /// Ends this client: its FIFO goes, and with the last copy of the descriptor all watchers are told.
    pub(crate) fn close(&self) {
        self.fd.lock().unwrap_or_else(PoisonError::into_inner).take();
        if std::process::id() == self.pid {
            // It may be gone with its directory; others sweep what stays.
            let _ = fs::unlinkat(&self.dir, name(self.own), AtFlags::empty());
        }
    }

    /// Opens another client's FIFO for writing: `None` if that client is dead.
    pub(crate) fn open(&self, process: u128) -> Result<Option<OwnedFd>, DriverError> {
        let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let path = || self.dir.path().join(name(process));
        match fs::openat(&self.dir, name(process), flags, Mode::empty()) {
            Ok(fd) => {
                let stat = fs::fstat(&fd).map_err(|e| failed("cannot examine", &path(), e))?;
                if FileType::from_raw_mode(stat.st_mode) != FileType::Fifo {
                    return Err(refused(format!("{} is not a FIFO", path().display())));
                }
                Ok(Some(fd))
            }
            Err(Errno::NXIO | Errno::NOENT) => Ok(None),
            // Never "dead": whoever that is may well be alive.
            Err(e @ (Errno::ACCESS | Errno::PERM)) => Err(refused(format!(
                "{}: {e}; all users of a directory must name the same `share=`",
                path().display()
            ))),
            Err(e) => Err(failed("cannot open", &path(), e)),
        }
    }

    /// Wakes a claim of another client: `false` if that client is dead. A message to a full FIFO is dropped: its
    /// reader has enough to read.
    pub(crate) fn send(&self, process: u128, claim: u64) -> Result<bool, DriverError> {
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        let at = recent.iter().position(|(p, _)| *p == process);
        let at = match at {
            Some(at) => at,
            None => {
                let Some(fd) = self.open(process)? else {
                    return Ok(false);
                };
                if recent.len() == RECENT {
                    recent.remove(0);
                }
                recent.push((process, fd));
                recent.len() - 1
            }
        };
        match sys::write_quietly(recent[at].1.as_fd(), &claim.to_le_bytes()) {
            Ok(_) => Ok(true),
            Err(e) if e.raw_os_error() == Some(libc::EPIPE) => {
                recent.remove(at);
                Ok(false)
            }
            Err(e) if e.raw_os_error() == Some(libc::EAGAIN) => Ok(true),
            Err(e) => Err(failed("cannot write to", &self.dir.path().join(name(process)), e)),
        }
    }

    /// Removes the FIFOs of the dead, and tables that were never finished.
    pub(crate) fn sweep(&self, root: &Dir) {
        const OLD: i64 = 60;
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime).tv_sec;
        let old = |dir: &Dir, name: &str| {
            fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW).is_ok_and(|s| now - s.st_ctime > OLD)
        };
        for name in names(&self.dir) {
            let Ok(process) = u128::from_str_radix(&name, 16) else {
                continue;
            };
            if process != self.own && old(&self.dir, &name) && matches!(self.open(process), Ok(None)) {
                let _ = fs::unlinkat(&self.dir, &*name, AtFlags::empty());
            }
        }
        for name in names(root).filter(|n| n.starts_with(".new-")) {
            if old(root, &name) {
                let _ = fs::unlinkat(root, &*name, AtFlags::empty());
            }
        }
    }
}

fn names(dir: &Dir) -> impl Iterator<Item = String> {
    const MANY: usize = 4096;
    fs::Dir::read_from(dir)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|e| e.file_name().to_str().ok().map(str::to_owned))
        .take(MANY)
}
