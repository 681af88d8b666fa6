//! One server process: start, wait until it is ready, stop, continue, kill, start again.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

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

/// A running server process. Dropping it kills it, also when it is stopped.
#[derive(Debug)]
pub struct Process {
    program: Program,
    child: Child,
    ended: bool,
}

impl Process {
    /// Starts the program; says nothing about its being ready.
    ///
    /// # Errors
    /// When it cannot be started at all.
    pub fn start(program: Program) -> Result<Self, StartError> {
        let child = spawn(program.command()?)?;
        Ok(Self {
            program,
            child,
            ended: false,
        })
    }

    /// Polls `check` until it is true.
    ///
    /// # Errors
    /// [`StartError::Failed`] when the process ends or the check stays false for a minute.
    pub async fn ready(&mut self, mut check: impl AsyncFnMut() -> bool) -> Result<(), StartError> {
        let deadline = Instant::now() + READY;
        loop {
            if let Some(status) = self.child.try_wait()? {
                self.ended = true;
                return Err(self
                    .program
                    .failed(format!("ended with {status} before it was ready")));
            }
            // Bounded, so that a server that accepts and never answers is noticed as well.
            if tokio::time::timeout(Duration::from_secs(5), check()).await == Ok(true) {
                return Ok(());
            }
            if Instant::now() > deadline {
                return Err(self.program.failed("not ready in time".into()));
            }
            tokio::time::sleep(Duration::from_millis(8)).await;
        }
    }

    /// How it was started.
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Whether it runs (a stopped process does).
    pub fn alive(&mut self) -> bool {
        if !self.ended && matches!(self.child.try_wait(), Ok(Some(_))) {
            self.ended = true;
        }
        !self.ended
    }

    /// Stops it and all its descendants (SIGSTOP). The kernel goes on accepting its TCP connections.
    ///
    /// # Errors
    /// When the process has ended.
    pub fn pause(&self) -> io::Result<()> {
        self.signal(Signal::STOP)
    }

    /// Continues it and its descendants (SIGCONT).
    ///
    /// # Errors
    /// When the process has ended.
    pub fn resume(&self) -> io::Result<()> {
        self.signal(Signal::CONT)
    }

    /// Kills it and its descendants (SIGKILL), and waits until it is gone.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn kill9(&mut self) -> io::Result<()> {
        if self.alive() {
            self.signal(Signal::KILL)?;
            self.child.wait()?;
            self.ended = true;
        }
        Ok(())
    }

    /// Asks it to end with `signal`, and kills it if it has not ended after `grace`.
    ///
    /// # Errors
    /// When the system refuses.
    pub async fn end(&mut self, signal: Signal, grace: Duration) -> io::Result<()> {
        if self.alive() {
            kill_process(pid(self.child.id())?, signal)?;
            eventually(grace, async || (!self.alive()).then_some(())).await;
        }
        self.kill9()
    }

    /// Kills it if it still runs, and starts it again on the same or on emptied data.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn again(&mut self, data: Data) -> Result<(), StartError> {
        self.kill9()?;
        if data == Data::Empty {
            empty(&self.program.dir)?;
        }
        self.child = spawn(self.program.command()?)?;
        self.ended = false;
        Ok(())
    }

    /// Memory in use, in bytes (Linux).
    pub fn rss(&self) -> Option<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid())).ok()?;
        let line = status.lines().find(|l| l.starts_with("VmRSS:"))?;
        Some(line.split_whitespace().nth(1)?.parse::<u64>().ok()? * 1024)
    }

    fn signal(&self, signal: Signal) -> io::Result<()> {
        if self.ended {
            return Err(io::Error::other("the process has ended"));
        }
        // The parent first: stopped or dead, it makes no new children while the others are looked for.
        kill_process(pid(self.pid())?, signal)?;
        for child in descendants(self.pid()) {
            // One that ended meanwhile needs no signal.
            let _ = kill_process(pid(child)?, signal);
        }
        Ok(())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.kill9();
    }
}

fn pid(raw: u32) -> io::Result<Pid> {
    i32::try_from(raw)
        .ok()
        .and_then(Pid::from_raw)
        .ok_or_else(|| io::Error::other("not a process id"))
}

/// All descendants of a process, parents before children (Linux; elsewhere none).
fn descendants(root: u32) -> Vec<u32> {
    let children: Vec<(u32, u32)> = fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .filter_map(|entry| {
            let pid: u32 = entry.ok()?.file_name().to_str()?.parse().ok()?;
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
            // The command's name, in parentheses, may contain anything.
            let parent = stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()?;
            Some((parent, pid))
        })
        .collect();
    let mut found = vec![root];
    let mut next = 0;
    while next < found.len() {
        let parent = found[next];
        found.extend(children.iter().filter(|(p, _)| *p == parent).map(|(_, c)| *c));
        next += 1;
    }
    found.remove(0);
    found
}

fn empty(dir: &Path) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        // Files whose names start with "keep" are configuration, not data.
        if entry.file_name().to_string_lossy().starts_with("keep") {
            continue;
        }
        if entry.file_type()?.is_dir() {
            fs::remove_dir_all(entry.path())?;
        } else {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
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
