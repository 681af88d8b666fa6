//! Other products, driven over pipes: see `interop/java/src/RedissonBench.java` and `interop/rslock`.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use super::contended::Turn;
use super::{PeerPrograms, good};
use crate::report::Report;

/// Those that were given.
pub(super) struct Peers(pub(super) Vec<Peer>);

/// One of them. Killed when dropped.
pub(super) struct Peer {
    pub(super) name: &'static str,
    /// What our time for one task may be, as a multiple of its.
    pub(super) slack: f64,
    child: Child,
    requests: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Peers {
    pub(super) fn start(url: &str, programs: &PeerPrograms, report: &mut Report) -> Self {
        let java = programs.redisson.as_ref().map(|path| {
            let mut java = Command::new("java");
            java.args(["-Xmx512m", "-cp", path, "RedissonBench"]);
            java
        });
        let mut peers = Vec::new();
        // The crate neither mints tokens nor tells waiters; Redisson tells them.
        for (name, slack, command) in [
            ("Redisson", 1.0, java),
            (
                "the rslock crate",
                1.1,
                programs.rslock.as_ref().map(Command::new),
            ),
        ] {
            match command {
                Some(command) => peers.push(Peer::start(name, slack, command, url.trim_end_matches('/'))),
                None => report.note(
                    format!("beside {name}"),
                    "skipped: not given (scripts/bench installs it)",
                ),
            }
        }
        Self(peers)
    }

    /// Those that know Redlock.
    pub(super) fn of_quorums(addresses: &[String], programs: &PeerPrograms, report: &mut Report) -> Self {
        let mut peers = Vec::new();
        for (name, program) in [
            ("the rslock crate", &programs.rslock),
            ("redsync", &programs.redsync),
        ] {
            match program {
                Some(program) => {
                    let mut command = Command::new(program);
                    command.args(&addresses[1..]);
                    peers.push(Peer::start(name, 1.0, command, &addresses[0]));
                }
                None => report.note(
                    format!("beside {name}"),
                    "skipped: not given (scripts/bench installs it)",
                ),
            }
        }
        Self(peers)
    }

    /// The one that can contend.
    pub(super) fn redisson(&mut self) -> Option<&mut Peer> {
        self.0.iter_mut().find(|peer| peer.name == "Redisson")
    }
}

impl Peer {
    fn start(name: &'static str, slack: f64, mut command: Command, url: &str) -> Self {
        command.arg(url).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = good(command.spawn());
        let (Some(requests), Some(answers)) = (child.stdin.take(), child.stdout.take()) else {
            panic!("pipes were asked for")
        };
        Self {
            name,
            slack,
            child,
            requests,
            answers: BufReader::new(answers),
        }
    }

    fn ask(&mut self, request: &str) {
        good(writeln!(self.requests, "{request}").and_then(|()| self.requests.flush()));
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        match good(self.answers.read_line(&mut line)) {
            0 => panic!("{} ended", self.name),
            _ => line.trim().to_owned(),
        }
    }

    /// How long so many pairs in each of so many tasks take.
    pub(super) fn pairs(&mut self, tasks: usize, each: usize) -> Duration {
        self.ask(&format!("{tasks} {each}"));
        Duration::from_nanos(good(self.line().parse()))
    }

    /// Has so many clients take turns on one key.
    pub(super) fn turns(&mut self, address: &str, clients: usize, seconds: u64, fair: bool) -> Vec<Turn> {
        self.ask(&format!("contend redis://{address} {clients} {seconds} {fair}"));
        let mut turns = Vec::new();
        loop {
            let line = self.line();
            let mut words = line.split(' ');
            match (words.next(), words.next(), words.next()) {
                (Some(of), Some(granted), Some(left)) => turns.push(Turn {
                    of: good(of.parse()),
                    granted: good(granted.parse()),
                    left: good(left.parse()),
                }),
                _ => return turns,
            }
        }
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
