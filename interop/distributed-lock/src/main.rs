//! The distributed-lock crates, driven over pipes by `scripts/bench`.
//!
//! One argument, the server's address. Each line of standard input, `<tasks> <each>`, asks for that many pairs of
//! acquire and release in each of so many tasks, on a key for each task; the answer is the time that it took, in
//! nanoseconds.

use std::error::Error;
use std::io::{BufRead, Write};
use std::time::{Duration, Instant};

use distributed_lock_core::error::LockResult;
use distributed_lock_core::traits::{DistributedLock, LockHandle, LockProvider};
use distributed_lock_mysql::MySqlLockProvider;
use distributed_lock_postgres::PostgresLockProvider;
use futures_util::future::try_join_all;
use tokio::runtime::Runtime;

fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::args().nth(1).ok_or("no address")?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    match url.starts_with("mysql:") {
        true => serve(&runtime, runtime.block_on(MySqlLockProvider::builder().connection_string(url).build())?),
        false => serve(&runtime, runtime.block_on(PostgresLockProvider::new(url))?),
    }
}

fn serve(runtime: &Runtime, locks: impl LockProvider) -> Result<(), Box<dyn Error>> {
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

async fn pairs(locks: &impl LockProvider, task: usize, each: usize) -> LockResult<()> {
    let lock = locks.create_lock(&format!("peer:order:close:{task}"));
    // No limit would be a negative one for `GET_LOCK`, to which MariaDB answers NULL.
    let limit = Some(Duration::from_secs(60));
    for _ in 0..each {
        lock.acquire(limit).await?.release().await?;
    }
    Ok(())
}
