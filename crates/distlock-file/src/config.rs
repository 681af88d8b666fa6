//! Where the locks of a host are, and who may share them.

use std::path::PathBuf;

use distlock_core::driver::DriverError;
use rustix::fs::{self, FileType};

use crate::filesystem;
use crate::sys;

/// The settings of the file engine.
#[derive(Debug, Clone)]
pub struct Config {
    /// The directory. All that share a lock name the same one; it is created if its parent exists.
    pub dir: PathBuf,
    /// Who may use it.
    pub share: Share,
    /// Accept a file system that this engine does not know to be local (`network_fs=allow`). On a file system that
    /// does not keep `mmap`, `pread` and byte locks coherent between all users, locks will be granted twice.
    pub network_fs: bool,
}

impl Config {
    /// This user's own locks in this directory.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self {
            dir: dir.into(),
            share: Share::User,
            network_fs: false,
        }
    }

    /// The fixed directory of the present user: the same in a shell, in cron and under `env -i`, since it depends
    /// on the user id, the password database and the type of the file system alone.
    ///
    /// * root: `/var/lib/distlock`;
    /// * others: `.local/state/distlock` in their home directory, if that is there and on a local file system;
    /// * else `/var/tmp/distlock-<uid>`.
    ///
    /// # Errors
    /// None at present; kept for platforms that cannot tell.
    pub fn default_dir() -> Result<PathBuf, DriverError> {
        let uid = rustix::process::geteuid();
        if uid.is_root() {
            return Ok(PathBuf::from("/var/lib/distlock"));
        }
        let uid = uid.as_raw();
        let home = sys::home(uid).filter(|home| {
            home.is_absolute()
                && fs::stat(home).is_ok_and(|s| FileType::from_raw_mode(s.st_mode).is_dir())
                && filesystem::of(home).is_ok_and(|kind| kind.is_local())
        });
        Ok(match home {
            Some(home) => home.join(".local/state/distlock"),
            None => PathBuf::from(format!("/var/tmp/distlock-{uid}")),
        })
    }
}

/// Who may use a directory of locks. Whoever may use it may also break its locks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Share {
    /// Its owner alone (directories 0700, files 0600).
    #[default]
    User,
    /// The directory's group as well (2770 and 0660).
    Group,
    /// Everybody on the host (0777 and 0666).
    All,
}

impl Share {
    pub(crate) fn dir_mode(self) -> u32 {
        match self {
            Share::User => 0o700,
            Share::Group => 0o2770,
            Share::All => 0o777,
        }
    }

    pub(crate) fn file_mode(self) -> u32 {
        match self {
            Share::User => 0o600,
            Share::Group => 0o660,
            Share::All => 0o666,
        }
    }
}
