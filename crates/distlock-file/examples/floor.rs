//! What an uncontended acquire and release cost, beside the raw system calls that no file lock can do without.
#![allow(clippy::print_stdout, reason = "it is a program that prints a table")]

use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use distlock_core::bell::Bell;
use distlock_core::clock::Clock;
use distlock_core::driver::{Life, Line, Mode, Order, Standing, Want};
use distlock_core::engine::Engine;
use distlock_core::{Key, Namespace};
use distlock_file::Config;
use rustix::fs::{self, FlockOperation, OFlags};

const N: usize = 20_000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = tempfile::tempdir()?;
    let (engine, _thread) = Engine::start(Clock::boot(), Namespace::default(), None)?;
    let driver = distlock_file::open(engine.clone(), Config::new(dir.path().join("locks")))?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let path = dir.path().join("raw");
    std::fs::write(&path, [0; 8])?;
    let key = Key::new("order:close:42")?;
    for _ in 0..5 {
        let mut floor = Vec::with_capacity(N);
        for _ in 0..N {
            let begun = Instant::now();
            let file = fs::open(&path, OFlags::RDWR | OFlags::CLOEXEC, fs::Mode::empty())?;
            fs::flock(&file, FlockOperation::LockExclusive)?;
            fs::fstat(&file)?;
            let mut n = [0; 8];
            rustix::io::pread(file.as_fd(), &mut n, 0)?;
            rustix::io::pwrite(&file, &(u64::from_le_bytes(n) + 1).to_le_bytes(), 0)?;
            drop(file);
            floor.push(begun.elapsed());
        }
        let mut ours = Vec::with_capacity(N);
        runtime.block_on(async {
            for _ in 0..N {
                let begun = Instant::now();
                let want = Arc::new(Want {
                    key: key.clone(),
                    owner: engine.owners().next(),
                    mode: Mode::Mutex,
                    order: Order::Any,
                    line: Line::Join,
                    life: Life::Process,
                    ttl: Duration::from_secs(30),
                    label: None,
                    reason: None,
                    bell: Bell::new(),
                });
                let mut claim = driver.claim(want)?;
                let Standing::Held(_) = claim.try_acquire().await? else {
                    return Err("somebody else holds it".into());
                };
                claim.release(None).await?;
                drop(claim);
                ours.push(begun.elapsed());
            }
            Ok::<(), Box<dyn std::error::Error>>(())
        })?;
        let p = |all: &mut Vec<Duration>| {
            all.sort();
            (all[N / 2], all[N * 99 / 100])
        };
        let (f, o) = (p(&mut floor), p(&mut ours));
        println!(
            "floor p50 {:?} p99 {:?} · file engine p50 {:?} p99 {:?} · ratio {:.2}",
            f.0,
            f.1,
            o.0,
            o.1,
            o.0.as_secs_f64() / f.0.as_secs_f64()
        );
    }
    Ok(())
}
