//! A flash sale: 1,000 buyers in three processes, and 100 pieces in stock.
//!
//! ```text
//! cargo run --example flash_sale                      # exact
//! cargo run --example flash_sale -- --unlocked        # oversells
//! cargo run --example flash_sale -- --url redis://127.0.0.1/
//! ```
//!
//! The stock is a number in a file, read, thought about and written back, as a service does with a row that it
//! cannot update in one statement. The same code takes any engine by its URL.
#![allow(clippy::print_stdout, reason = "a program that tells what it does")]

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::time::Duration;

use clap::Parser;
use distlock::{Locks, locked};

type Failure = Box<dyn std::error::Error + Send + Sync>;

#[derive(Parser, Clone)]
struct Args {
    /// Where the locks are kept; a directory of the sale's own if not given.
    #[arg(long, env = "DISTLOCK_URL")]
    url: Option<String>,
    /// How many people want to buy one piece each.
    #[arg(long, default_value_t = 1000)]
    buyers: u32,
    /// How many pieces there are.
    #[arg(long, default_value_t = 100)]
    stock: u32,
    /// Over how many processes the buyers come in.
    #[arg(long, default_value_t = 3)]
    processes: u32,
    /// Sell without the lock, to see what happens.
    #[arg(long)]
    unlocked: bool,
    /// The sale's data; given to the processes of the sale.
    #[arg(long, hide = true)]
    shop: Option<PathBuf>,
}

fn main() -> Result<ExitCode, Failure> {
    let args = Args::parse();
    match &args.shop {
        None => sale(&args),
        Some(dir) => {
            let runtime = tokio::runtime::Builder::new_multi_thread()
                .worker_threads(2)
                .enable_all()
                .build()?;
            runtime.block_on(serve(&args, dir)).map(|()| ExitCode::SUCCESS)
        }
    }
}

/// Opens the shop, starts the processes, and counts afterwards.
fn sale(args: &Args) -> Result<ExitCode, Failure> {
    let dir = tempfile::tempdir()?;
    fs::write(dir.path().join("stock"), args.stock.to_string())?;
    fs::write(dir.path().join("sales"), "")?;
    fs::create_dir(dir.path().join("locks"))?;

    let url = args
        .url
        .clone()
        .unwrap_or_else(|| format!("file://{}", dir.path().join("locks").display()));
    let share = args.buyers.div_ceil(args.processes);
    let mut processes = Vec::new();
    for n in 0..args.processes {
        let buyers = share.min(args.buyers.saturating_sub(n * share)).to_string();
        let mut process = Command::new(std::env::current_exe()?);
        process
            .args(["--url", &url, "--buyers", &buyers])
            .arg("--shop")
            .arg(dir.path());
        if args.unlocked {
            process.arg("--unlocked");
        }
        processes.push(process.spawn()?);
    }
    let mut failed = false;
    for mut process in processes {
        failed |= !process.wait()?.success();
    }

    let sold = fs::read_to_string(dir.path().join("sales"))?.lines().count();
    let left = fs::read_to_string(dir.path().join("stock"))?;
    let expected = args.stock.min(args.buyers) as usize;
    let verdict = if failed {
        "failed"
    } else if sold > args.stock as usize {
        "OVERSOLD"
    } else if sold == expected && left == (args.stock as usize - sold).to_string() {
        "exact"
    } else {
        "WRONG"
    };
    println!(
        "{} buyers, {} pieces: sold {sold}, left {left}: {verdict}",
        args.buyers, args.stock
    );
    Ok(ExitCode::from(u8::from(verdict != "exact")))
}

/// One process of the shop: its share of the buyers, all at once.
async fn serve(args: &Args, dir: &Path) -> Result<(), Failure> {
    let url = args.url.as_deref().ok_or("the shop needs a --url")?;
    let locks = Locks::connect(url).await?;
    let shop = Arc::new(Shop {
        dir: dir.to_owned(),
        locks: locks.clone(),
    });
    let buyers: Vec<_> = (0..args.buyers)
        .map(|n| {
            let (shop, unlocked) = (shop.clone(), args.unlocked);
            tokio::spawn(async move {
                let buyer = format!("{}-{n}", std::process::id());
                if unlocked {
                    shop.take_one(&buyer).await
                } else {
                    shop.buy("ticket", &buyer).await
                }
            })
        })
        .collect();
    for buyer in buyers {
        buyer.await??;
    }
    locks.shutdown(Duration::from_secs(5)).await;
    Ok(())
}

/// The shop's data, and how to lock it.
struct Shop {
    dir: PathBuf,
    locks: Locks,
}

impl Shop {
    /// Sells one piece, if there is one. One buyer at a time, over all processes.
    #[locked(key = "stock:{item}", locks = self.locks, wait = "5m", ttl = "10s")]
    async fn buy(&self, item: &str, buyer: &str) -> Result<bool, Failure> {
        self.take_one(buyer).await
    }

    /// The sale itself: correct only while nobody else does the same.
    async fn take_one(&self, buyer: &str) -> Result<bool, Failure> {
        let stock: u32 = fs::read_to_string(self.dir.join("stock"))?.parse().unwrap_or(0);
        // Somewhere between reading and writing, others get their turn: a query, a payment, an await.
        tokio::task::yield_now().await;
        if stock == 0 {
            return Ok(false);
        }
        let fresh = self.dir.join(format!("stock-{buyer}"));
        fs::write(&fresh, (stock - 1).to_string())?;
        fs::rename(&fresh, self.dir.join("stock"))?;
        let mut sales = OpenOptions::new().append(true).open(self.dir.join("sales"))?;
        sales.write_all(format!("{buyer}\n").as_bytes())?;
        Ok(true)
    }
}
