//! How long a release takes to reach a waiter in another process, beside a bare FIFO write that wakes the same kind
//! of runtime. And how long a takeover takes after `kill -9`. Both interleaved in one run.
#![allow(clippy::print_stdout, reason = "it is a program that prints a table")]

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use distlock_core::bell::Bell;
use distlock_core::clock::Clock;
use distlock_core::driver::{Claim, Driver, Life, Line, Mode, Order, Standing, Want};
use distlock_core::engine::{Engine, EngineThread};
use distlock_core::{Key, Namespace};
use distlock_file::Config;
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

const ROUNDS: usize = 2000;
const KILLS: usize = 100;

struct Client {
    engine: Engine,
    driver: Arc<dyn Driver>,
    _thread: EngineThread,
}

impl Client {
    fn open(dir: &Path) -> Result<Self> {
        let (engine, thread) = Engine::start(Clock::boot(), Namespace::default(), None)?;
        let driver = distlock_file::open(engine.clone(), Config::new(dir.join("locks")))?;
        Ok(Self {
            engine,
            driver,
            _thread: thread,
        })
    }

    async fn acquire(&self, key: &str, order: Order) -> Result<Box<dyn Claim>> {
        let want = Arc::new(Want {
            key: Key::new(key)?,
            owner: self.engine.owners().next(),
            mode: Mode::Mutex,
            order,
            line: Line::Join,
            life: Life::Process,
            ttl: Duration::from_secs(30),
            label: None,
            reason: None,
            bell: Bell::new(),
        });
        let mut claim = self.driver.claim(want.clone())?;
        while let Standing::Waiting { recheck, .. } = claim.try_acquire().await? {
            self.engine.clock().timeout(recheck, want.bell.rung()).await;
        }
        Ok(claim)
    }

    fn now(&self) -> u64 {
        self.engine.clock().now().as_nanos()
    }
}

/// The other process: does as it is told, and says when it was woken.
async fn waiter(dir: PathBuf) -> Result<()> {
    let client = Client::open(&dir)?;
    let mut bare = pipe::OpenOptions::new()
        .read_write(true)
        .open_receiver(dir.join("bare"))?;
    println!("ready");
    for line in std::io::stdin().lock().lines() {
        match line?.as_str() {
            "bare" => {
                bare.read_u8().await?;
                println!("{}", client.now());
            }
            "hold" => {
                std::mem::forget(client.acquire("k", Order::Any).await?);
                println!("held");
            }
            order => {
                let order = if order == "fifo" { Order::Fifo } else { Order::Any };
                let mut claim = client.acquire("k", order).await?;
                let now = client.now();
                claim.release(None).await?;
                println!("{now}");
            }
        }
    }
    Ok(())
}

struct Process(Child, BufReader<std::process::ChildStdout>);

impl Process {
    fn start(dir: &Path) -> Result<Self> {
        let mut child = Command::new(std::env::current_exe()?)
            .arg(dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let out = BufReader::new(child.stdout.take().ok_or("no stdout")?);
        let mut p = Self(child, out);
        p.hear()?;
        Ok(p)
    }

    fn say(&mut self, line: &str) -> Result<()> {
        Ok(writeln!(self.0.stdin.as_mut().ok_or("no stdin")?, "{line}")?)
    }

    fn hear(&mut self) -> Result<String> {
        let mut line = String::new();
        self.1.read_line(&mut line)?;
        Ok(line.trim().to_owned())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

async fn measure(dir: &Path) -> Result<()> {
    rustix::fs::mknodat(
        rustix::fs::CWD,
        dir.join("bare"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o600),
        0,
    )?;
    let client = Client::open(dir)?;
    let mut other = Process::start(dir)?;
    let mut bare = std::fs::OpenOptions::new().write(true).open(dir.join("bare"))?;
    let settle = Duration::from_micros(300);
    let mut times: [Vec<u64>; 4] = Default::default();
    for _ in 0..ROUNDS {
        other.say("bare")?;
        std::thread::sleep(settle);
        let begun = client.now();
        bare.write_all(b"x")?;
        times[0].push(other.hear()?.parse::<u64>()?.saturating_sub(begun));
        for (i, order, name) in [(1, Order::Any, "any"), (2, Order::Fifo, "fifo")] {
            let mut claim = client.acquire("k", order).await?;
            other.say(name)?;
            std::thread::sleep(settle);
            let begun = client.now();
            claim.release(None).await?;
            times[i].push(other.hear()?.parse::<u64>()?.saturating_sub(begun));
        }
    }
    for _ in 0..KILLS {
        let mut victim = Process::start(dir)?;
        victim.say("hold")?;
        victim.hear()?;
        let waiting = client.acquire("k", Order::Any);
        let kill = async {
            client.engine.clock().sleep(Duration::from_millis(3)).await;
            let begun = client.now();
            let _ = victim.0.kill();
            begun
        };
        let (claim, begun) = tokio::join!(async { (waiting.await, client.now()) }, kill);
        let (claim, now) = claim;
        claim?.release(None).await?;
        times[3].push(now.saturating_sub(begun));
    }
    for (what, all) in ["bare FIFO", "hand-off, any", "hand-off, fifo", "takeover"]
        .iter()
        .zip(&mut times)
    {
        all.sort_unstable();
        let at = |p: usize| Duration::from_nanos(all[all.len() * p / 100]);
        println!("{what:<16} p50 {:>10.1?} p99 {:>10.1?}", at(50), at(99));
    }
    let ratio = |i: usize| times[i][ROUNDS / 2] as f64 / times[0][ROUNDS / 2] as f64;
    println!("hand-off / bare: any {:.2}, fifo {:.2}", ratio(1), ratio(2));
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    match std::env::args_os().nth(1) {
        Some(dir) => waiter(dir.into()).await,
        None => measure(tempfile::tempdir()?.path()).await,
    }
}
