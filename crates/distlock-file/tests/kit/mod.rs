//! What the tests share: clients in this process, and workers in processes of their own, driven by lines.
#![allow(
    dead_code,
    unreachable_pub,
    missing_docs,
    missing_debug_implementations,
    unsafe_code
)]
#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::print_stderr)]

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use distlock_core::bell::Bell;
use distlock_core::clock::Clock;
use distlock_core::driver::{
    Claim, Driver, DriverError, Grant, Hold, Life, Line, Mode, Order, Renewal, Standing, Want,
};
use distlock_core::engine::{Engine, EngineThread};
use distlock_core::{Key, Namespace};
use distlock_file::{Config, Share};

mod mount;
pub mod worker;

#[allow(unused_imports)]
pub use mount::Mount;

/// One client.
#[derive(Debug)]
pub struct Client {
    pub engine: Engine,
    pub driver: Arc<dyn Driver>,
    pub thread: EngineThread,
}

pub fn client(dir: &Path) -> Client {
    client_of(Config::new(dir)).unwrap()
}

pub fn client_of(config: Config) -> Result<Client, DriverError> {
    client_on(Clock::boot(), config)
}

pub fn client_on(clock: Clock, config: Config) -> Result<Client, DriverError> {
    let (engine, thread) = Engine::start(clock, Namespace::default(), None).unwrap();
    let driver = distlock_file::open(engine.clone(), config)?;
    Ok(Client {
        engine,
        driver,
        thread,
    })
}

pub fn shared(dir: &Path, share: Share) -> Config {
    Config {
        share,
        ..Config::new(dir)
    }
}

/// A want with the settings that tests seldom change.
pub struct Ask {
    pub key: String,
    pub mode: Mode,
    pub order: Order,
    pub line: Line,
    pub life: Life,
    pub ttl: Duration,
    pub reason: Option<String>,
}

pub fn mutex(key: &str) -> Ask {
    Ask {
        key: key.into(),
        mode: Mode::Mutex,
        order: Order::Any,
        line: Line::Join,
        life: Life::Process,
        ttl: Duration::from_secs(30),
        reason: None,
    }
}

impl Ask {
    pub fn mode(self, mode: Mode) -> Self {
        Self { mode, ..self }
    }
    pub fn fifo(self) -> Self {
        Self {
            order: Order::Fifo,
            ..self
        }
    }
    pub fn never(self) -> Self {
        Self {
            line: Line::Never,
            ..self
        }
    }
    pub fn lease(self) -> Self {
        Self {
            life: Life::Lease,
            ..self
        }
    }
    pub fn ttl(self, ms: u64) -> Self {
        Self {
            ttl: Duration::from_millis(ms),
            ..self
        }
    }
    pub fn want(self, engine: &Engine) -> Arc<Want> {
        Arc::new(Want {
            key: Key::new(&self.key).unwrap(),
            owner: engine.owners().next(),
            mode: self.mode,
            order: self.order,
            line: self.line,
            life: self.life,
            ttl: self.ttl,
            label: Some("test".into()),
            reason: self.reason.map(Into::into),
            bell: Bell::new(),
        })
    }
}

/// A contender with what it wants.
pub struct Contender {
    pub want: Arc<Want>,
    pub claim: Box<dyn Claim>,
    pub grant: Option<Grant>,
}

impl Client {
    pub fn contender(&self, ask: Ask) -> Contender {
        let want = ask.want(&self.engine);
        Contender {
            claim: self.driver.claim(want.clone()).unwrap(),
            want,
            grant: None,
        }
    }

    pub async fn renew(&self, c: &Contender, ttl: Duration) -> Renewal {
        let hold = Hold {
            want: c.want.clone(),
            mark: c.grant.map_or(0, |g| g.mark),
            ttl,
            floor: None,
        };
        let answer = std::sync::Mutex::new(None);
        self.driver
            .renew(&[hold], &|_, r| *answer.lock().unwrap() = Some(r))
            .await;
        answer.into_inner().unwrap().expect("an answer")
    }
}

impl Contender {
    /// One look: the token if held.
    pub async fn look(&mut self) -> Result<Option<u64>, DriverError> {
        match self.claim.try_acquire().await? {
            Standing::Held(grant) => {
                self.grant = Some(grant);
                Ok(Some(grant.token.map_or(0, |t| t.get())))
            }
            Standing::Waiting { .. } => Ok(None),
        }
    }

    /// Waits as the core does: by the bell, and at the latest after the recheck.
    pub async fn wait(&mut self, clock: &Clock) -> Result<u64, DriverError> {
        loop {
            match self.claim.try_acquire().await? {
                Standing::Held(grant) => {
                    self.grant = Some(grant);
                    return Ok(grant.token.map_or(0, |t| t.get()));
                }
                Standing::Waiting { recheck, .. } => {
                    clock.timeout(recheck, self.want.bell.rung()).await;
                }
            }
        }
    }
}

/// Looks until it is true, at most for `limit`.
pub async fn until(limit: Duration, mut look: impl AsyncFnMut() -> bool) -> bool {
    let end = Instant::now() + limit;
    loop {
        if look().await {
            return true;
        }
        if Instant::now() > end {
            return false;
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// A worker process.
pub struct Worker {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
    pub pid: i32,
}

impl Worker {
    pub fn start(dir: &Path) -> Self {
        Self::start_as(&[], dir, "user")
    }

    /// Starts a worker under `wrap` (`unshare …`, `setpriv …`).
    pub fn start_as(wrap: &[&str], dir: &Path, share: &str) -> Self {
        let exe = std::env::current_exe().unwrap();
        let mut command = match wrap.split_first() {
            Some((program, args)) => {
                let mut c = Command::new(program);
                c.args(args).arg(&exe);
                c
            }
            None => Command::new(&exe),
        };
        let mut child = command
            .args(["--exact", "worker", "--nocapture", "--test-threads=1"])
            .env("DISTLOCK_FILE_WORKER", dir)
            .env("DISTLOCK_FILE_SHARE", share)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (send, lines) = channel();
        let out = BufReader::new(child.stdout.take().unwrap());
        std::thread::spawn(move || {
            for line in out.lines().map_while(Result::ok) {
                if let Some(at) = line.find("#> ")
                    && send.send(line[at + 3..].to_owned()).is_err()
                {
                    return;
                }
            }
        });
        let mut w = Self {
            stdin: child.stdin.take(),
            pid: child.id() as i32,
            child,
            lines,
        };
        let ready = w.hear(Duration::from_secs(20));
        // Under a wrapper that forks, the worker is not our child itself.
        if let Some(pid) = ready.strip_prefix("ready ")
            && wrap.is_empty()
        {
            w.pid = pid.parse().unwrap();
        }
        w
    }

    pub fn say(&mut self, line: &str) {
        let stdin = self.stdin.as_mut().unwrap();
        writeln!(stdin, "{line}").unwrap();
        stdin.flush().unwrap();
    }

    pub fn hear(&mut self, limit: Duration) -> String {
        self.lines
            .recv_timeout(limit)
            .unwrap_or_else(|e| panic!("worker {}: {e}", self.pid))
    }

    /// A line that it has said already.
    pub fn heard(&self) -> Option<String> {
        self.lines.try_recv().ok()
    }

    pub fn ask(&mut self, line: &str) -> String {
        self.say(line);
        self.hear(Duration::from_secs(20))
    }

    /// The token after `held `.
    pub fn held(&mut self, line: &str) -> u64 {
        let answer = self.ask(line);
        token(&answer)
    }

    pub fn signal(&self, signal: i32) {
        worker::kill(self.pid, signal);
    }

    pub fn kill(&mut self) {
        self.signal(libc::SIGKILL);
    }

    /// Reaps it.
    pub fn wait(&mut self) {
        let _ = self.child.wait();
    }
}

pub fn token(answer: &str) -> u64 {
    answer
        .strip_prefix("held ")
        .and_then(|t| t.parse().ok())
        .unwrap_or_else(|| panic!("not held: {answer}"))
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.stdin.take();
        self.signal(libc::SIGCONT);
        let end = Instant::now() + Duration::from_secs(2);
        while Instant::now() < end {
            if matches!(self.child.try_wait(), Ok(Some(_))) {
                return;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Says loudly that a test did not run.
pub fn skip(what: &str, why: &str) {
    distlock_testkit::servers::skip(&format!("{what}: {why}"));
}
