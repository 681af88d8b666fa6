//! One server process: start, wait until it is ready, stop, continue, kill, start again.

use std::fs;
use std::io;
use std::path::Path;
use std::process::Child;
use std::time::{Duration, Instant};

use rustix::process::{Signal, kill_process};

use super::program::{Data, Program, READY, StartError};
use super::spawn::spawn;
use super::tree::{descendants, is_stopped, pid, runs};

/// Within which a stopped process is stopped.
const STOPS: Duration = Duration::from_secs(10);

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

    /// Stops it and all its descendants (SIGSTOP), and waits until they are stopped. The kernel goes on accepting its
    /// TCP connections.
    ///
    /// # Errors
    /// When the process has ended, or does not stop.
    pub fn pause(&self) -> io::Result<()> {
        self.signal(Signal::STOP)?;
        // A thread that is on a processor goes on until it is looked at.
        let all = [vec![self.pid()], descendants(self.pid())].concat();
        let deadline = Instant::now() + STOPS;
        while !all.iter().all(|pid| is_stopped(*pid)) {
            if Instant::now() > deadline {
                return Err(io::Error::other("the process does not stop"));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    /// Continues it and its descendants (SIGCONT).
    ///
    /// # Errors
    /// When the process has ended.
    pub fn resume(&self) -> io::Result<()> {
        self.signal(Signal::CONT)
    }

    /// Kills it and its descendants (SIGKILL), and waits until they are gone.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn kill9(&mut self) -> io::Result<()> {
        if self.alive() {
            let children = descendants(self.pid());
            self.signal(Signal::KILL)?;
            self.child.wait()?;
            self.ended = true;
            // They are not ours to wait for, but what they have open must be closed before a new start.
            let deadline = Instant::now() + Duration::from_secs(10);
            while children.iter().any(|pid| runs(*pid)) && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        Ok(())
    }

    /// Asks it to end with `signal`, and kills it if it has not ended after `grace`. Blocks meanwhile.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn end(&mut self, signal: Signal, grace: Duration) -> io::Result<()> {
        if self.alive() {
            self.signal(Signal::CONT)?;
            kill_process(pid(self.pid())?, signal)?;
            let deadline = Instant::now() + grace;
            while self.alive() && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(2));
            }
        }
        self.kill9()
    }

    /// Kills it if it still runs, and starts it again on the same or on emptied data; `refill` prepares an emptied
    /// directory.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn again(
        &mut self,
        data: Data,
        refill: impl FnOnce(&Path) -> io::Result<()>,
    ) -> Result<(), StartError> {
        self.kill9()?;
        if data == Data::Empty {
            empty(&self.program.dir)?;
            refill(&self.program.dir)?;
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
        // The parent first: stopped or dead, it makes no new children. Its children lose it when it dies, so they
        // are looked for before as well as after.
        let mut children = descendants(self.pid());
        kill_process(pid(self.pid())?, signal)?;
        children.extend(descendants(self.pid()));
        for child in children {
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
