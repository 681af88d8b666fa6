//! The rslock crate, driven over pipes by `scripts/bench`.
//!
//! Arguments: the server's address, or those of several for Redlock. Each line of standard input, `<tasks> <each>`, asks for that many pairs of
//! lock and unlock in each of so many tasks, on a key for each task; the answer is the time that it took, in
//! nanoseconds.

use std::error::Error;
use std::io::{BufRead, Write};
use std::time::{Duration, Instant};

use futures_util::future::try_join_all;
use rslock::{LockError, LockManager};

fn main() -> Result<(), Box<dyn Error>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let locks = LockManager::new(std::env::args().skip(1).collect());
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let (tasks, each) = line.split_once(' ').ok_or("two numbers")?;
        let (tasks, each): (usize, usize) = (tasks.parse()?, each.parse()?);
        let start = Instant::now();
        runtime.block_on(try_join_all((0..tasks).map(|task| pairs(&locks, task, each))))?;
        println!("{}", start.elapsed().as_nanos());
        std::io::stdout().flush()?;
    }
    Ok(())
}

async fn pairs(locks: &LockManager, task: usize, each: usize) -> Result<(), LockError> {
    let key = format!("rslock:order:close:{task}");
    for _ in 0..each {
        let lock = locks.lock(key.as_bytes(), Duration::from_secs(30)).await?;
        locks.unlock(&lock).await;
    }
    Ok(())
}
