//! Processes whose wall clock is moved by hand (libfaketime).

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::program::StartError;

/// Where Debian puts the library, for the machines that we know.
const LIBRARIES: [&str; 2] = [
    "/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1",
    "/usr/lib/aarch64-linux-gnu/faketime/libfaketime.so.1",
];

/// A wall clock for the processes that are started with [`env`](Self::env). Monotonic clocks go on as they are.
#[derive(Debug)]
pub struct FakeClock {
    library: PathBuf,
    dir: TempDir,
}

impl FakeClock {
    /// A clock that is right for now.
    ///
    /// # Errors
    /// [`StartError::Missing`] without libfaketime (Debian's package `faketime`).
    pub fn new() -> Result<Self, StartError> {
        use std::os::unix::fs::PermissionsExt;
        let library = LIBRARIES.iter().map(Path::new).find(|path| path.is_file());
        let library = library
            .ok_or_else(|| StartError::Missing("libfaketime".into()))?
            .to_owned();
        let dir = TempDir::with_prefix("distlock-faketime-")?;
        // Servers run as users of their own.
        std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755))?;
        let clock = Self { library, dir };
        clock.set(0)?;
        Ok(clock)
    }

    /// Moves the clock to so many seconds before or after the real time. Processes see it at their next look.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn set(&self, seconds: i64) -> io::Result<()> {
        let next = self.dir.path().join("next");
        std::fs::write(&next, format!("{seconds:+}s\n"))?;
        std::fs::rename(next, self.file())
    }

    fn file(&self) -> PathBuf {
        self.dir.path().join("offset")
    }

    /// Variables for the environment of a process.
    pub fn env(&self) -> Vec<(OsString, OsString)> {
        let on = || OsString::from("1");
        vec![
            ("LD_PRELOAD".into(), self.library.clone().into()),
            ("FAKETIME_TIMESTAMP_FILE".into(), self.file().into()),
            ("FAKETIME_NO_CACHE".into(), on()),
            ("FAKETIME_DONT_FAKE_MONOTONIC".into(), on()),
            ("DONT_FAKE_MONOTONIC".into(), on()),
        ]
    }
}
