//! The other processes of a measurement: this program started again with a role.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use distlock::{Client, Locks};

const ROLE: &str = "DISTLOCK_BENCH_ROLE";

pub(crate) fn is_child() -> bool {
    std::env::var_os(ROLE).is_some()
}

/// A child with a role in a directory of locks; what it prints is read line by line.
pub(crate) struct Helper {
    pub(crate) child: Child,
    pub(crate) lines: BufReader<std::process::ChildStdout>,
}

impl Helper {
    pub(crate) fn start(role: &str, dir: &Path) -> Self {
        let program = std::env::current_exe().unwrap_or_else(|e| panic!("where am I: {e}"));
        let mut command = Command::new(program);
        command.env(ROLE, role).arg(dir);
        Self::run(command)
    }

    /// Another program.
    pub(crate) fn run(mut command: Command) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|e| panic!("cannot start: {e}"));
        let Some(out) = child.stdout.take() else {
            panic!("stdout was asked for")
        };
        Self {
            child,
            lines: BufReader::new(out),
        }
    }

    /// Writes a line to it.
    pub(crate) fn tell(&mut self, what: &str) -> std::io::Result<()> {
        match &mut self.child.stdin {
            Some(stdin) => writeln!(stdin, "{what}").and_then(|()| stdin.flush()),
            None => Ok(()),
        }
    }

    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        let _ = self.lines.read_line(&mut line);
        line.trim().to_owned()
    }

    /// CPU time that it has used.
    pub(crate) fn cpu(&self) -> Duration {
        let text =
            std::fs::read_to_string(format!("/proc/{}/schedstat", self.child.id())).unwrap_or_default();
        Duration::from_nanos(
            text.split_whitespace()
                .next()
                .and_then(|n| n.parse().ok())
                .unwrap_or(0),
        )
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A client of the file engine in this directory.
pub(crate) fn client(dir: &Path) -> Locks {
    let config = distlock_file::Config::new(dir);
    match Client::builder().build_now(|engine| distlock_file::open(engine, config)) {
        Ok(client) => client.into(),
        Err(e) => panic!("{e}"),
    }
}

/// Now, on a clock that all processes share.
pub(crate) fn now() -> u64 {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    t.tv_sec.unsigned_abs() * 1_000_000_000 + t.tv_nsec.unsigned_abs()
}

pub(crate) fn runtime() -> tokio::runtime::Runtime {
    match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(rt) => rt,
        Err(e) => panic!("no runtime: {e}"),
    }
}

#[allow(clippy::print_stdout, reason = "the parent reads it")]
pub(crate) fn say(what: impl std::fmt::Display) {
    println!("{what}");
    let _ = std::io::stdout().flush();
}

pub(crate) fn run() {
    let role = std::env::var(ROLE).unwrap_or_default();
    let dir = std::env::args_os().nth(1).unwrap_or_default();
    let dir = Path::new(&dir);
    if role == "redis-turns" {
        return crate::redis::take_turns(&dir.to_string_lossy());
    }
    let rt = runtime();
    match role.as_str() {
        "hold" => rt.block_on(async {
            let locks = client(dir);
            let guard = locks.mutex("k").acquire().await;
            say(if guard.is_ok() { "held" } else { "failed" });
            std::future::pending::<()>().await;
        }),
        "wait" => rt.block_on(async {
            let locks = client(dir);
            say("waiting");
            let _guard = locks.mutex("k").acquire().await;
            std::future::pending::<()>().await;
        }),
        "turns" => drop(rt.block_on(crate::file::take_turns(dir, None))),
        "fifo" => rt.block_on(crate::file::echo(dir)),
        "sql-turns" => rt.block_on(crate::sql::take_turns(
            &dir.to_string_lossy(),
            |granted, released| {
                say(format_args!("{granted} {released}"));
            },
        )),
        "line" => rt.block_on(crate::line::stand(&dir.to_string_lossy())),
        "storm" => {
            let grants = rt.block_on(storm(dir));
            say(grants.iter().map(u64::to_string).collect::<Vec<_>>().join(" "));
        }
        _ => say("unknown role"),
    }
}

/// Eight tasks on one key for ten seconds; an overlap is seen by a marker that must not exist. Grants per task, and
/// last the overlaps.
async fn storm(dir: &Path) -> Vec<u64> {
    let locks = client(dir);
    let until = Instant::now() + Duration::from_secs(10);
    let tasks: Vec<_> = (0..8)
        .map(|_| {
            let (locks, marker) = (locks.clone(), dir.join("inside"));
            tokio::spawn(async move {
                let (mut grants, mut overlaps) = (0u64, 0u64);
                while Instant::now() < until {
                    let Ok(guard) = locks.mutex("storm").acquire().await else {
                        continue;
                    };
                    let alone = std::fs::File::options()
                        .write(true)
                        .create_new(true)
                        .open(&marker)
                        .is_ok();
                    overlaps += u64::from(!alone);
                    grants += 1;
                    let _ = std::fs::remove_file(&marker);
                    let _ = guard.release().await;
                }
                (grants, overlaps)
            })
        })
        .collect();
    let mut out = Vec::new();
    let mut all_overlaps = 0;
    for task in tasks {
        let (grants, overlaps) = task.await.unwrap_or_default();
        out.push(grants);
        all_overlaps += overlaps;
    }
    out.push(all_overlaps);
    out
}
