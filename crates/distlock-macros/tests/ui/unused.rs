//! The shortest wrong uses are warned of: a lock that is not taken, a guard that is dropped at once, an outcome that
//! nobody looks at.
#![deny(unused_must_use)]
use distlock::{Error, Locks, locked};

#[locked(key = "a")]
async fn close() -> Result<(), Error> {
    Ok(())
}

async fn wrong(locks: Locks) -> Result<(), Error> {
    locks.mutex("a");
    locks.mutex("a").acquire().await?;
    close().await;
    Ok(())
}

fn main() {}
