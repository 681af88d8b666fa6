//! A nightly report that cron starts on every host at the same minute, and that is written once.
//!
//! ```text
//! 0 3 * * *  app  nightly_report --url redis://locks.internal/ --dir /srv/reports
//! ```
//!
//! The lock is not waited for: whoever comes second leaves at once, with one line that says why and exit code 0.
//! `min_hold` keeps the lock for a while even when the report takes no time, because the clocks of two hosts never
//! agree to the second; and the report that is there already says that the night's work is done.
#![allow(clippy::print_stdout, reason = "a program that tells what it does")]

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Parser;
use distlock::{Locks, locked};

#[derive(Parser)]
struct Args {
    /// Where the locks are kept.
    #[arg(long, env = "DISTLOCK_URL")]
    url: String,
    /// Where the reports go.
    #[arg(long)]
    dir: PathBuf,
    /// The night that is reported.
    #[arg(long, default_value = "2026-11-30")]
    day: String,
}

#[derive(Debug)]
enum Night {
    Written,
    Done,
    Elsewhere(String),
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let args = Args::parse();
    let locks = Locks::connect(&args.url).await?;
    distlock::install(locks.clone())?;
    match report(&args.dir, &args.day).await? {
        Night::Written => println!("the report of {} was written", args.day),
        Night::Done => println!("the report of {} was there already", args.day),
        Night::Elsewhere(who) => println!("the report of {} is being written elsewhere: {who}", args.day),
    }
    locks.shutdown(Duration::from_secs(5)).await;
    Ok(())
}

#[locked(key = "report:nightly:{day}", wait = "try", min_hold = "1s", max_hold = "1h", on_busy = call(elsewhere))]
async fn report(dir: &Path, day: &str) -> Result<Night, Box<dyn Error>> {
    let file = dir.join(format!("{day}.txt"));
    if file.exists() {
        return Ok(Night::Done);
    }
    // The work of the night.
    tokio::time::sleep(Duration::from_millis(100)).await;
    fs::write(file, format!("all is well, says {}\n", std::process::id()))?;
    Ok(Night::Written)
}

/// Not an error: somebody else is at it, and the message says who.
fn elsewhere(busy: distlock::Error) -> Result<Night, Box<dyn Error>> {
    Ok(Night::Elsewhere(busy.to_string()))
}
