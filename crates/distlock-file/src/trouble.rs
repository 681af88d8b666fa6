//! How this engine's troubles become the port's errors: with the path, and with advice.

use std::fmt;
use std::path::Path;

use distlock_core::driver::{DriverError, DriverErrorKind, Reached, Refusal};
use rustix::io::Errno;

/// A system call on this path failed.
pub(crate) fn failed(doing: &str, path: &Path, e: impl Into<std::io::Error>) -> DriverError {
    let e = e.into();
    let advice = match e.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::ACCESS | Errno::PERM) => {
            "; check its owner and mode, or share it with `share=group` or `share=all`"
        }
        Some(Errno::ROFS) => "; the file system is read-only: choose a directory on a writable one",
        Some(Errno::NOSPC | Errno::DQUOT) => "; the file system is full",
        Some(Errno::MFILE | Errno::NFILE) => "; too many open files: raise `ulimit -n`",
        _ => "",
    };
    unavailable(format!("{doing} {}: {e}{advice}", path.display()))
}

/// The engine cannot serve now; nothing was applied.
pub(crate) fn unavailable(why: impl Into<String>) -> DriverError {
    DriverError::unavailable(Reached::No, Why(why.into()))
}

/// The setting, or what is on the disk, is refused.
pub(crate) fn refused(why: impl Into<String>) -> DriverError {
    DriverError::refused(Refusal::InvalidConfig(why.into()))
}

/// The table does not add up.
pub(crate) fn corrupt(table: &Path, what: &str) -> DriverError {
    DriverError {
        kind: DriverErrorKind::Unavailable,
        reached: Reached::No,
        retry: false,
        source: Some(Box::new(Why(format!(
            "{}: {what}; nothing in it is trusted. `break` a key of it to clear that part, or remove the \
             directory when nobody uses it",
            table.display()
        )))),
    }
}

#[derive(Debug)]
struct Why(String);

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Why {}
