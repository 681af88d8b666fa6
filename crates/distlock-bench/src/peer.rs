//! Other products, driven over pipes: see `interop/java`, `interop/rslock` and `interop/distributed-lock`.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use crate::report::{Report, good};

/// Programs of other products; each is skipped where it is not given. `scripts/bench` installs them.
#[derive(Debug, clap::Args)]
pub(crate) struct PeerPrograms {
    /// Only these rows of the table of Redis.
    #[arg(long, value_enum, value_delimiter = ',')]
    pub(crate) rows: Vec<crate::redis::Rows>,
    /// The class path of Redisson and its driver.
    #[arg(long)]
    pub(crate) redisson: Option<String>,
    /// The driver of the rslock crate.
    #[arg(long)]
    pub(crate) rslock: Option<String>,
    /// The driver of redsync.
    #[arg(long)]
    pub(crate) redsync: Option<String>,
    /// The class path of ShedLock and its driver.
    #[arg(long)]
    pub(crate) shedlock: Option<String>,
    /// The driver of the distributed-lock crates.
    #[arg(long)]
    pub(crate) distributed_lock: Option<String>,
}

/// Another product's program. Killed when dropped.
pub(crate) struct Peer {
    pub(crate) name: &'static str,
    /// What our time for one task may be, as a multiple of its.
    pub(crate) slack: f64,
    child: Child,
    requests: ChildStdin,
    answers: BufReader<ChildStdout>,
}

/// A program in Java.
pub(crate) fn java(class_path: &str, class: &str) -> Command {
    let mut java = Command::new("java");
    java.args(["-Xmx512m", "-cp", class_path, class]);
    java
}

impl Peer {
    /// Starts it against the server of this address; `None`, which the report tells, if it was not given.
    pub(crate) fn start(
        name: &'static str,
        slack: f64,
        command: Option<Command>,
        address: &str,
        report: &mut Report,
    ) -> Option<Self> {
        let Some(mut command) = command else {
            report.note(
                format!("beside {name}"),
                "skipped: not given (scripts/bench installs it)",
            );
            return None;
        };
        command.arg(address).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = good(command.spawn());
        let (Some(requests), Some(answers)) = (child.stdin.take(), child.stdout.take()) else {
            panic!("pipes were asked for")
        };
        Some(Self {
            name,
            slack,
            child,
            requests,
            answers: BufReader::new(answers),
        })
    }

    pub(crate) fn ask(&mut self, request: &str) {
        good(writeln!(self.requests, "{request}").and_then(|()| self.requests.flush()));
    }

    pub(crate) fn line(&mut self) -> String {
        self.answer().unwrap_or_else(|| panic!("{} ended", self.name))
    }

    /// How long so many pairs in each of so many tasks take.
    pub(crate) fn pairs(&mut self, tasks: usize, each: usize) -> Duration {
        self.tried(tasks, each)
            .unwrap_or_else(|| panic!("{} ended", self.name))
    }

    /// The same, of a peer that may not be up to it: `None` once it has ended.
    pub(crate) fn tried(&mut self, tasks: usize, each: usize) -> Option<Duration> {
        writeln!(self.requests, "{tasks} {each}").ok()?;
        self.requests.flush().ok()?;
        Some(Duration::from_nanos(good(self.answer()?.parse())))
    }

    fn answer(&mut self) -> Option<String> {
        let mut line = String::new();
        let read = good(self.answers.read_line(&mut line));
        (read > 0).then(|| line.trim().to_owned())
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
