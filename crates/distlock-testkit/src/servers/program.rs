//! What is started, and what can go wrong with it.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::spawn::spawn;

/// How long a server may take to become ready, on a busy machine.
pub(super) const READY: Duration = Duration::from_secs(60);

/// Why a server is not there.
#[derive(Debug)]
#[non_exhaustive]
pub enum StartError {
    /// The program is not installed.
    Missing(String),
    /// It did not start, or never became ready; with the end of its log.
    Failed {
        /// What was started.
        program: String,
        /// What went wrong.
        why: String,
        /// The last lines of its log.
        log: String,
    },
    /// The machine refused a file, port or process.
    Io(io::Error),
}

impl std::fmt::Display for StartError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Missing(what) => write!(f, "{what} is not installed"),
            Self::Failed { program, why, log } => write!(f, "{program}: {why}\n{log}"),
            Self::Io(e) => write!(f, "starting a server: {e}"),
        }
    }
}

impl std::error::Error for StartError {}

impl From<io::Error> for StartError {
    fn from(e: io::Error) -> Self {
        Self::Io(e)
    }
}

/// What a restarted server finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Data {
    /// Its own data, as far as it had written them.
    Keep,
    /// An empty directory.
    Empty,
}

/// How a server process is started.
#[derive(Debug, Clone)]
pub struct Program {
    /// The executable.
    pub path: PathBuf,
    /// Its arguments.
    pub args: Vec<OsString>,
    /// Its working directory, to which its log is written as well.
    pub dir: PathBuf,
    /// Environment variables to add.
    pub env: Vec<(OsString, OsString)>,
    /// The user and group to run as, where the server refuses to be root.
    pub user: Option<(u32, u32)>,
}

impl Program {
    /// A program that runs in `dir` as the present user.
    pub fn new(path: impl Into<PathBuf>, dir: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            args: Vec::new(),
            dir: dir.into(),
            env: Vec::new(),
            user: None,
        }
    }

    /// Adds arguments.
    #[must_use]
    pub fn args<A: Into<OsString>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    fn log(&self) -> PathBuf {
        self.dir.join("server.log")
    }

    /// The last lines of the log.
    pub fn log_tail(&self) -> String {
        let text = fs::read(self.log()).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(25)..].join("\n")
    }

    /// The command that starts it, with its output going to the log.
    pub(super) fn command(&self) -> io::Result<Command> {
        let out: File = OpenOptions::new().create(true).append(true).open(self.log())?;
        let mut command = Command::new(&self.path);
        command
            .args(&self.args)
            .current_dir(&self.dir)
            .envs(self.env.iter().map(|(k, v)| (k, v)))
            .stdin(Stdio::null())
            .stdout(out.try_clone()?)
            .stderr(out);
        if let Some((uid, gid)) = self.user {
            std::os::unix::process::CommandExt::uid(&mut command, uid);
            std::os::unix::process::CommandExt::gid(&mut command, gid);
        }
        Ok(command)
    }

    /// Runs it to its end (for set-up tools).
    ///
    /// # Errors
    /// [`StartError::Failed`] if it did not end well.
    pub async fn run(&self) -> Result<(), StartError> {
        let mut child = spawn(self.command()?)?;
        let ended = eventually(READY, async || child.try_wait().ok().flatten()).await;
        match ended {
            Some(status) if status.success() => Ok(()),
            Some(status) => Err(self.failed(format!("ended with {status}"))),
            None => {
                let _ = child.kill();
                let _ = child.wait();
                Err(self.failed("did not end in time".into()))
            }
        }
    }

    pub(super) fn failed(&self, why: String) -> StartError {
        StartError::Failed {
            program: self.path.display().to_string(),
            why,
            log: self.log_tail(),
        }
    }
}

/// Polls `look` every few milliseconds until it gives a value; `None` when `limit` has passed.
pub async fn eventually<T>(limit: Duration, mut look: impl AsyncFnMut() -> Option<T>) -> Option<T> {
    let deadline = Instant::now() + limit;
    loop {
        if let Some(found) = look().await {
            return Some(found);
        }
        if Instant::now() >= deadline {
            return None;
        }
        tokio::time::sleep(Duration::from_millis(8)).await;
    }
}
