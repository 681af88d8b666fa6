//! The directory of the locks: made, opened and examined before anything in it is believed.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use distlock_core::driver::DriverError;
use rustix::fs::{self, AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;

use crate::config::{Config, Share};
use crate::filesystem;
use crate::trouble::{failed, refused};

/// An examined directory.
#[derive(Debug)]
pub(crate) struct Dir {
    fd: OwnedFd,
    path: PathBuf,
    share: Share,
}

const OPEN: OFlags = OFlags::DIRECTORY
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC)
    .union(OFlags::RDONLY);

impl Dir {
    /// Opens the directory, making it if only its last part is missing (the default directory: with its parents).
    pub(crate) fn open(config: &Config) -> Result<Self, DriverError> {
        let path = &config.dir;
        if path.as_os_str().is_empty() {
            return Err(refused("the directory of the file engine is empty; name one"));
        }
        let fd = match fs::open(path, OPEN, Mode::empty()) {
            Err(Errno::NOENT) => make(config)?,
            other => opened(path, other)?,
        };
        let dir = Self {
            fd,
            path: path.clone(),
            share: config.share,
        };
        dir.check_filesystem(config.network_fs)?;
        dir.check_owner_and_mode()?;
        Ok(dir)
    }

    /// Opens the directory `name` inside, making it if it is missing.
    pub(crate) fn inside(&self, name: &str) -> Result<Self, DriverError> {
        let path = self.path.join(name);
        let fd = match fs::openat(&self.fd, name, OPEN, Mode::empty()) {
            Err(Errno::NOENT) => {
                match fs::mkdirat(&self.fd, name, Mode::from_raw_mode(0o700)) {
                    Err(e) if e != Errno::EXIST => return Err(failed("cannot create", &path, e)),
                    _ => {}
                }
                let fd = opened(&path, fs::openat(&self.fd, name, OPEN, Mode::empty()))?;
                chmod(&fd, &path, self.share)?;
                fd
            }
            other => opened(&path, other)?,
        };
        let dir = Self {
            fd,
            path,
            share: self.share,
        };
        dir.check_owner_and_mode()?;
        Ok(dir)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn share(&self) -> Share {
        self.share
    }

    fn check_filesystem(&self, allow: bool) -> Result<(), DriverError> {
        let stat = fs::fstatfs(&self.fd).map_err(|e| failed("cannot examine", &self.path, e))?;
        match filesystem::kind(&stat) {
            kind if allow || kind.is_local() => Ok(()),
            kind => Err(refused(not_local(&self.path, kind))),
        }
    }

    /// Refuses a directory in which others could tamper with the locks.
    fn check_owner_and_mode(&self) -> Result<(), DriverError> {
        let stat = fs::fstat(&self.fd).map_err(|e| failed("cannot examine", &self.path, e))?;
        let me = rustix::process::geteuid().as_raw();
        let path = self.path.display();
        let mode = stat.st_mode & 0o7777;
        if self.share == Share::User && stat.st_uid != me && stat.st_uid != 0 {
            return Err(refused(format!(
                "{path} belongs to user {}, not to user {me}; choose another directory, or share it with \
                 `share=group` or `share=all`",
                stat.st_uid
            )));
        }
        let (bad, who, advice) = match self.share {
            Share::User => (0o022, "its group or everybody", "`share=group` or `share=all`"),
            Share::Group => (0o002, "everybody", "`share=all`"),
            Share::All => (0, "", ""),
        };
        if mode & bad != 0 {
            return Err(refused(format!(
                "{path} can be written by {who} (mode {mode:04o}), who could tamper with its locks; `chmod {:o}` \
                 it, or share it on purpose with {advice}",
                mode & !bad
            )));
        }
        let want = self.share.dir_mode() & 0o777;
        if self.share != Share::User && mode & want != want && stat.st_uid == me {
            chmod(&self.fd, &self.path, self.share)?;
        }
        Ok(())
    }

    /// Whether the path still leads to this very directory.
    pub(crate) fn is_in_place(&self) -> bool {
        let same = |path: fs::Stat, open: fs::Stat| (path.st_dev, path.st_ino) == (open.st_dev, open.st_ino);
        match (
            fs::statat(fs::CWD, &self.path, AtFlags::SYMLINK_NOFOLLOW),
            fs::fstat(&self.fd),
        ) {
            (Ok(path), Ok(open)) => same(path, open),
            _ => false,
        }
    }
}

impl AsFd for Dir {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn make(config: &Config) -> Result<OwnedFd, DriverError> {
    let path = &config.dir;
    if Config::default_dir().is_ok_and(|default| default == *path)
        && let Some(parent) = path.parent()
    {
        use std::os::unix::fs::DirBuilderExt;
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(parent)
            .map_err(|e| failed("cannot create", parent, e))?;
    }
    match fs::mkdir(path, Mode::from_raw_mode(0o700)) {
        // Somebody else was first; the checks decide whether it can be used.
        Err(Errno::EXIST) => return opened(path, fs::open(path, OPEN, Mode::empty())),
        Err(Errno::NOENT) => {
            return Err(refused(format!(
                "{} cannot be created: its parent directory does not exist; create that first",
                path.display()
            )));
        }
        Err(e) => return Err(failed("cannot create", path, e)),
        Ok(()) => {}
    }
    let fd = opened(path, fs::open(path, OPEN, Mode::empty()))?;
    chmod(&fd, path, config.share)?;
    Ok(fd)
}

fn not_local(path: &Path, kind: filesystem::Kind) -> String {
    let path = path.display();
    match kind.name {
        Some(name) => format!(
            "{path} is on {name}, where locks of several hosts would not exclude each other reliably; choose a \
             directory on a local file system, or one of the engines with a server, or accept the risk with \
             `network_fs=allow`"
        ),
        None => format!(
            "{path} is on a file system that is not known to be local (type {:#x}); choose a directory on a local \
             one, or accept the risk with `network_fs=allow`",
            kind.magic
        ),
    }
}

/// Modes are set explicitly; the umask has no say.
fn chmod(fd: &OwnedFd, path: &Path, share: Share) -> Result<(), DriverError> {
    fs::fchmod(fd, Mode::from_raw_mode(share.dir_mode()))
        .map_err(|e| failed("cannot set the mode of", path, e))
}

fn opened(path: &Path, result: Result<OwnedFd, Errno>) -> Result<OwnedFd, DriverError> {
    match result {
        Ok(fd) => Ok(fd),
        Err(Errno::LOOP | Errno::NOTDIR) => {
            let is_link = fs::lstat(path).is_ok_and(|s| FileType::from_raw_mode(s.st_mode).is_symlink());
            let what = if is_link {
                "a symbolic link, which is not followed: name the directory itself"
            } else {
                "not a directory: name one"
            };
            Err(refused(format!("{} is {what}", path.display())))
        }
        Err(Errno::NOENT) => Err(refused(format!(
            "{} cannot be created: its parent directory does not exist; create that first",
            path.display()
        ))),
        Err(e) => Err(failed("cannot open", path, e)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f93_file_systems_of_several_hosts_or_of_a_program_are_no_place_for_locks() {
        for name in ["NFS", "FUSE", "CIFS", "9p"] {
            let kind = filesystem::Kind::by_name(name).unwrap();
            assert!(!kind.is_local(), "{name}");
            let why = not_local(Path::new("/mnt/locks"), kind);
            assert!(
                why.contains("/mnt/locks") && why.contains(name) && why.contains("network_fs=allow"),
                "{why}"
            );
        }
    }
}
