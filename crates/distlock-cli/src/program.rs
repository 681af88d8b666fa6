//! Whether the command can be run at all: looked at before waiting for a lock.

use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};

use crate::exit::Exit;
use crate::say::quote;

/// Why a command cannot be run.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum CannotRun {
    NotFound(String),
    NotExecutable(String),
}

impl CannotRun {
    /// What was probably meant.
    pub(crate) fn hint(&self, program: &OsStr) -> Option<String> {
        let words = program.as_bytes().iter().any(u8::is_ascii_whitespace);
        (words && matches!(self, Self::NotFound(_))).then(|| {
            let line = quote(&program.to_string_lossy());
            format!("it was taken as one word; for a line of shell write: sh -c {line}")
        })
    }

    pub(crate) fn exit(&self) -> Exit {
        match self {
            Self::NotFound(_) => Exit::NOT_FOUND,
            Self::NotExecutable(_) => Exit::NOT_EXECUTABLE,
        }
    }

    /// What the system said when the command was executed.
    pub(crate) fn from_errno(program: &OsStr, errno: i32) -> Self {
        let error = std::io::Error::from_raw_os_error(errno);
        match errno {
            libc::ENOENT if check(program).is_ok() => Self::NotExecutable(format!(
                "{}: the interpreter named in its first line, or its loader, was not found",
                program.display()
            )),
            libc::ENOENT => Self::NotFound(format!("{}: command not found", program.display())),
            _ => Self::NotExecutable(format!("{}: {error}", program.display())),
        }
    }
}

impl fmt::Display for CannotRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotFound(text) | Self::NotExecutable(text) => f.write_str(text),
        }
    }
}

/// Looks for the program as `exec` would.
///
/// # Errors
/// What keeps it from being run.
pub(crate) fn check(program: &OsStr) -> Result<(), CannotRun> {
    let name = program.display();
    if program.is_empty() {
        return Err(CannotRun::NotFound("the command is an empty word".into()));
    }
    if program.as_bytes().contains(&b'/') {
        return check_file(Path::new(program)).map_err(|found| match found {
            Found::Nothing => CannotRun::NotFound(format!("{name}: no such file")),
            Found::Useless(why) => CannotRun::NotExecutable(format!("{name}: {why}")),
        });
    }
    let path = std::env::var_os("PATH").unwrap_or_else(|| "/bin:/usr/bin".into());
    let mut useless = None;
    for dir in std::env::split_paths(&path) {
        let dir = if dir.as_os_str().is_empty() {
            PathBuf::from(".")
        } else {
            dir
        };
        match check_file(&dir.join(program)) {
            Ok(()) => return Ok(()),
            Err(Found::Useless(why)) => {
                useless.get_or_insert(format!("{}: {why}", dir.join(program).display()));
            }
            Err(Found::Nothing) => {}
        }
    }
    Err(match useless {
        Some(text) => CannotRun::NotExecutable(text),
        None => CannotRun::NotFound(format!("{name}: command not found")),
    })
}

enum Found {
    Nothing,
    Useless(&'static str),
}

fn check_file(path: &Path) -> Result<(), Found> {
    match std::fs::metadata(path) {
        Ok(meta) if meta.is_dir() => Err(Found::Useless("is a directory")),
        Ok(_) if access(path, Access::EXEC_OK).is_ok() => Ok(()),
        Ok(_) => Err(Found::Useless("is not executable (chmod +x makes it so)")),
        Err(e) if e.kind() == std::io::ErrorKind::PermissionDenied => {
            Err(Found::Useless("may not be looked at (permission denied)"))
        }
        Err(_) => Err(Found::Nothing),
    }
}
