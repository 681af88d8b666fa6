//! A directory with locks, and processes that use them and are gone when the test ends.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

/// Longer than anything takes on a busy machine, when it works.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// One test's own directory and engine.
pub(crate) struct Stage {
    dir: tempfile::TempDir,
}

impl Stage {
    pub(crate) fn new() -> Self {
        Self {
            dir: tempfile::tempdir().unwrap(),
        }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn url(&self) -> String {
        format!("file://{}", self.path("locks").display())
    }

    /// `distlock …` on this stage's engine.
    pub(crate) fn distlock(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_distlock"));
        command
            .args(args)
            .env("DISTLOCK_URL", self.url())
            .current_dir(self.dir.path());
        command.env_remove("DISTLOCK_CTL").env_remove("DISTLOCK_LOG");
        // No configuration of the machine it runs on.
        std::fs::write(self.path("none.toml"), "").unwrap();
        command
            .env("DISTLOCK_CONFIG", self.path("none.toml"))
            .stdin(Stdio::null());
        command
    }

    /// Runs it to its end.
    pub(crate) fn run(&self, args: &[&str]) -> Done {
        Done::of(self.distlock(args).output().unwrap())
    }

    /// Starts it.
    pub(crate) fn start(&self, args: &[&str]) -> Running {
        Running::start(self.distlock(args))
    }

    /// Holds `key` by `distlock hold` until it is dropped.
    pub(crate) fn hold(&self, key: &str) -> Running {
        let mut command = self.distlock(&["hold", "--no-stdin", key]);
        command.stdout(Stdio::piped());
        let mut running = Running::start(command);
        let line = running.first_line();
        assert!(line.contains("\"held\""), "{line}");
        running
    }

    pub(crate) fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    /// Waits until a file has a whole line, and gives its text.
    pub(crate) fn wait_for(&self, name: &str) -> String {
        until(name, || Some(self.read(name)).filter(|text| text.ends_with('\n')))
            .trim_end()
            .to_owned()
    }

    /// Whether somebody else could take the lock now.
    pub(crate) fn is_free(&self, key: &str) -> bool {
        match self.run(&["try", key, "--", "true"]).code {
            Some(0) => true,
            Some(75) => false,
            other => panic!("try ended with {other:?}"),
        }
    }
}

/// Asks again and again until there is an answer.
pub(crate) fn until<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(Instant::now() < end, "waited too long for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// What a command came to.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Done {
    pub(crate) fn of(output: Output) -> Self {
        Self {
            code: output.status.code(),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

/// A process that is killed when the test is done with it.
pub(crate) struct Running {
    child: Child,
}

impl Running {
    pub(crate) fn start(mut command: Command) -> Self {
        Self {
            child: command.spawn().unwrap(),
        }
    }

    pub(crate) fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).unwrap()
    }

    pub(crate) fn stdin(&mut self) -> std::process::ChildStdin {
        self.child.stdin.take().unwrap()
    }

    pub(crate) fn first_line(&mut self) -> String {
        let out = self.child.stdout.as_mut().unwrap();
        let mut line = Vec::new();
        let mut byte = [0];
        while out.read(&mut byte).unwrap() == 1 && byte != [b'\n'] {
            line.push(byte[0]);
        }
        String::from_utf8(line).unwrap()
    }

    pub(crate) fn signal(&self, signal: i32) {
        kill(self.pid(), signal);
    }

    /// Its status, when it ends.
    pub(crate) fn wait(&mut self) -> ExitStatus {
        until("a process to end", || self.child.try_wait().unwrap())
    }

    /// Its status, the moment that it ends.
    pub(crate) fn wait_closely(&mut self) -> ExitStatus {
        self.child.wait().unwrap()
    }

    pub(crate) fn code(&mut self) -> Option<i32> {
        self.wait().code()
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    /// What it wrote to standard error, once it has ended.
    pub(crate) fn errors(&mut self) -> String {
        let mut text = String::new();
        self.child
            .stderr
            .take()
            .unwrap()
            .read_to_string(&mut text)
            .unwrap();
        text
    }

    /// Its only child, once it has one: of a wrapper, the guardian.
    pub(crate) fn guardian(&self) -> i32 {
        until("the guardian", || children(self.pid()).first().copied())
    }
}

impl From<Child> for Running {
    fn from(child: Child) -> Self {
        Self { child }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !matches!(self.child.try_wait(), Ok(Some(_))) {
            kill(self.pid(), 18);
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// Sends a signal by number.
pub(crate) fn kill(pid: i32, signal: i32) {
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    let signal = rustix::process::Signal::from_named_raw(signal).unwrap();
    let _ = rustix::process::kill_process(pid, signal);
}

/// The children of a process.
pub(crate) fn children(parent: i32) -> Vec<i32> {
    let pids = std::fs::read_dir("/proc")
        .unwrap()
        .filter_map(|e| e.unwrap().file_name().to_str()?.parse().ok());
    let mut pids: Vec<i32> = pids
        .filter(|pid| stat(*pid).is_some_and(|(_, p)| p == parent))
        .collect();
    pids.sort_unstable();
    pids
}

/// A process's state and parent.
pub(crate) fn stat(pid: i32) -> Option<(char, i32)> {
    let text = std::fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("stat")).ok()?;
    let mut words = text[text.rfind(')')? + 1..].split_whitespace();
    Some((words.next()?.chars().next()?, words.next()?.parse().ok()?))
}

/// Whether a process exists and has not ended.
pub(crate) fn lives(pid: i32) -> bool {
    stat(pid).is_some_and(|(state, _)| !matches!(state, 'Z' | 'X'))
}

pub(crate) const HUP: i32 = 1;
pub(crate) const INT: i32 = 2;
pub(crate) const KILL: i32 = 9;
pub(crate) const USR1: i32 = 10;
pub(crate) const TERM: i32 = 15;
pub(crate) const CONT: i32 = 18;
pub(crate) const STOP: i32 = 19;
