//! Three processes close the same overdue orders, and one of them is killed half-way.
//!
//! ```text
//! cargo run --example order_closer
//! cargo run --example order_closer -- --url redis://127.0.0.1/
//! ```
//!
//! Each process runs the same timer: go through the overdue orders, take the lock of each, close it if it is still
//! open. An order that somebody else is closing right now is skipped, not waited for. In the end each order was
//! closed once, also those of the killed process, whose lock ends with it (or with its TTL, on an engine that
//! cannot see processes).
#![allow(clippy::print_stdout, reason = "a program that tells what it does")]

use std::error::Error;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::thread;
use std::time::{Duration, Instant};

use clap::Parser;
use distlock::{Locks, locked};

#[derive(Parser)]
struct Args {
    /// Where the locks are kept; a directory of the example's own if not given.
    #[arg(long, env = "DISTLOCK_URL")]
    url: Option<String>,
    /// How many orders are overdue.
    #[arg(long, default_value_t = 60)]
    orders: u32,
    /// The orders' data; given to the closing processes.
    #[arg(long, hide = true)]
    store: Option<PathBuf>,
}

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let args = Args::parse();
    match &args.store {
        None => shop(&args),
        Some(dir) => {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()?;
            runtime.block_on(closer(&args, dir)).map(|()| ExitCode::SUCCESS)
        }
    }
}

/// Starts three closers, kills one of them, and looks at the ledger.
fn shop(args: &Args) -> Result<ExitCode, Box<dyn Error>> {
    let dir = tempfile::tempdir()?;
    let store = Store {
        dir: dir.path().to_owned(),
    };
    fs::write(store.ledger(), "")?;
    fs::create_dir(dir.path().join("locks"))?;
    let url = args
        .url
        .clone()
        .unwrap_or_else(|| format!("file://{}", dir.path().join("locks").display()));

    let mut closers = Vec::new();
    for _ in 0..3 {
        let mut closer = Command::new(std::env::current_exe()?);
        closer
            .args(["--url", &url, "--orders", &args.orders.to_string()])
            .arg("--store")
            .arg(dir.path());
        closers.push(closer.spawn()?);
    }
    let deadline = Instant::now() + Duration::from_secs(60);
    while store.closed()?.len() < args.orders as usize / 4 && Instant::now() < deadline {
        thread::sleep(Duration::from_millis(5));
    }
    closers[0].kill()?;
    let mut failed = false;
    for (n, closer) in closers.iter_mut().enumerate() {
        failed |= !closer.wait()?.success() && n != 0;
    }

    let mut closed = store.closed()?;
    let entries = closed.len();
    closed.sort_unstable();
    closed.dedup();
    let exact = !failed && entries == args.orders as usize && closed.len() == entries;
    println!(
        "{} orders: {} closed, {} entries in the ledger: {}",
        args.orders,
        closed.len(),
        entries,
        if exact { "each once" } else { "WRONG" }
    );
    Ok(ExitCode::from(u8::from(!exact)))
}

/// One process: its timer goes round until all orders are closed.
async fn closer(args: &Args, dir: &Path) -> Result<(), Box<dyn Error>> {
    let url = args.url.as_deref().ok_or("a closer needs a --url")?;
    distlock::install(Locks::connect(url).await?)?;
    let store = Store { dir: dir.to_owned() };
    while store.closed()?.len() < args.orders as usize {
        for order in 0..args.orders {
            close(&store, order).await?;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

/// What became of an order.
#[derive(Debug, PartialEq)]
enum Closing {
    Closed,
    /// It was closed before.
    Done,
    /// Another process is closing it right now.
    Elsewhere,
}

/// Closes one order, unless somebody else does.
#[locked(key = "order:close:{order}", wait = "try", ttl = "2s", on_busy = skip(Ok(Closing::Elsewhere)))]
async fn close(store: &Store, order: u32) -> Result<Closing, Box<dyn Error>> {
    // Look again under the lock: the order may have been closed since the list was read.
    if store.closed()?.contains(&order) {
        return Ok(Closing::Done);
    }
    // The payment service is asked.
    tokio::time::sleep(Duration::from_millis(5)).await;
    let mut ledger = OpenOptions::new().append(true).open(store.ledger())?;
    ledger.write_all(format!("{order}\n").as_bytes())?;
    Ok(Closing::Closed)
}

/// The orders' database.
struct Store {
    dir: PathBuf,
}

impl Store {
    fn ledger(&self) -> PathBuf {
        self.dir.join("ledger")
    }

    /// The orders that the ledger says are closed, in its order.
    fn closed(&self) -> Result<Vec<u32>, Box<dyn Error>> {
        Ok(fs::read_to_string(self.ledger())?
            .lines()
            .map(str::parse)
            .collect::<Result<_, _>>()?)
    }
}
