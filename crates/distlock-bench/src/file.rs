//! The file engine against the kernel's own means.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use distlock::all;
use rustix::fs::{FlockOperation, Mode, OFlags, flock, fstat, mkfifoat};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::pipe;

use crate::children::{Helper, client, now, runtime};
use crate::report::Report;
use crate::sample::{Sample, ratio, time};

pub(crate) fn measure(quick: bool) -> Report {
    let mut report = Report::new("file engine");
    let n = if quick { 20 } else { 200 };
    uncontended(&mut report, n);
    hand_off(&mut report, if quick { 300 } else { 3000 });
    takeover(&mut report, if quick { 30 } else { 200 });
    waiting(&mut report);
    storm(&mut report);
    many_keys(&mut report, if quick { 100_000 } else { 1_000_000 });
    report
}

fn temp() -> tempfile::TempDir {
    tempfile::tempdir().unwrap_or_else(|e| panic!("no temporary directory: {e}"))
}

/// What any lock by a file must do: open, lock, see that the file is still the one in the directory, count.
fn raw_cycle(path: &Path) {
    let work = || -> std::io::Result<()> {
        let file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)?;
        flock(&file, FlockOperation::LockExclusive)?;
        let (a, b) = (fstat(&file)?, std::fs::metadata(path)?);
        assert_eq!(a.st_ino, std::os::unix::fs::MetadataExt::ino(&b));
        let mut count = [0u8; 8];
        let _ = file.read_at(&mut count, 0)?;
        file.write_all_at(&(u64::from_le_bytes(count) + 1).to_le_bytes(), 0)
    };
    if let Err(e) = work() {
        panic!("{e}");
    }
}

fn uncontended(report: &mut Report, n: usize) {
    let (dir, rt) = (temp(), runtime());
    let locks = client(dir.path());
    let path = dir.path().join("raw");
    let cached = File::create(dir.path().join("cached")).unwrap_or_else(|e| panic!("{e}"));
    let cycle = || {
        rt.block_on(async {
            match locks.mutex("order:close:42").acquire().await {
                Ok(guard) => drop(guard.release().await),
                Err(e) => panic!("{e}"),
            }
        });
    };
    let eight = || {
        rt.block_on(async {
            let set = all((0..8).map(|i| locks.mutex(format!("row:{i}"))));
            match set.acquire().await {
                Ok(guard) => drop(guard.release().await),
                Err(e) => panic!("{e}"),
            }
        });
    };
    let (mut floor, mut bare, mut ours, mut set) = Default::default();
    (0..200).for_each(|_| cycle());
    for _ in 0..n {
        time(&mut floor, 10, 20, || raw_cycle(&path));
        time(&mut bare, 10, 20, || {
            let _ = flock(&cached, FlockOperation::LockExclusive);
            let _ = flock(&cached, FlockOperation::Unlock);
        });
        time(&mut ours, 10, 20, cycle);
        time(&mut set, 5, 4, eight);
    }
    let r = ratio(ours.p50(), floor.p50());
    let (floor_p50, ours_p50) = (floor.p50(), ours.p50());
    report.note("flock(2) on an open descriptor, p50", format!("{:?}", bare.p50()));
    report.row(
        "acquire + release, 1 task, p50 (floor: open, flock, inode check, counter)",
        format!("{floor_p50:?}"),
        format!("{ours_p50:?} ({r:.2} x)"),
        "<= 3 x",
        r <= 3.0,
    );
    let r = ratio(set.p50(), ours.p50() * 8);
    report.row(
        "all of 8 keys, p50 (floor: eight single cycles)",
        format!("{:?}", ours.p50() * 8),
        format!("{:?} ({r:.2} x)", set.p50()),
        "<= 1.3 x",
        r <= 1.3,
    );
}

/// Two processes take turns; each writes down when it releases, the other when it holds. A bare FIFO is measured
/// between the turns.
pub(crate) async fn take_turns(dir: &Path, fifo: Option<(&mut Fifo, usize)>) -> (Sample, Sample) {
    let locks = client(dir);
    let stamp = File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(dir.join("stamp"));
    let stamp = stamp.unwrap_or_else(|e| panic!("{e}"));
    let (mut hand_off, mut bare) = (Sample::default(), Sample::default());
    let (mut fifo, turns) = match fifo {
        Some((fifo, n)) => (Some(fifo), n),
        None => (None, usize::MAX),
    };
    let me = std::process::id();
    for _ in 0..turns {
        let Ok(guard) = locks.mutex("turn").acquire().await else {
            break;
        };
        let held = now();
        let mut last = [0u8; 12];
        let read = stamp.read_at(&mut last, 0).unwrap_or(0);
        let (at, who) = last.split_at(8);
        let at = u64::from_le_bytes(at.try_into().unwrap_or_default());
        let who = u32::from_le_bytes(who.try_into().unwrap_or_default());
        if read == 12 && who != me {
            hand_off.push(Duration::from_nanos(held.saturating_sub(at)));
        }
        if let Some(fifo) = fifo.as_mut() {
            bare.push(fifo.ping().await);
        }
        // Long enough for the other one to have begun to wait.
        tokio::time::sleep(Duration::from_millis(1)).await;
        let mut last = now().to_le_bytes().to_vec();
        last.extend(me.to_le_bytes());
        let _ = stamp.write_all_at(&last, 0);
        let _ = guard.release().await;
        tokio::time::sleep(Duration::from_micros(300)).await;
    }
    (hand_off, bare)
}

/// A pair of FIFOs to a process that answers with the time at which it woke.
pub(crate) struct Fifo {
    out: pipe::Sender,
    back: pipe::Receiver,
}

fn fifo_pair(dir: &Path, out: &str, back: &str) -> Fifo {
    let open = || -> std::io::Result<Fifo> {
        let mut options = pipe::OpenOptions::new();
        options.read_write(true);
        Ok(Fifo {
            out: options.open_sender(dir.join(out))?,
            back: options.open_receiver(dir.join(back))?,
        })
    };
    open().unwrap_or_else(|e| panic!("{e}"))
}

impl Fifo {
    async fn ping(&mut self) -> Duration {
        let sent = now();
        let _ = self.out.write_all(&sent.to_le_bytes()).await;
        let mut woke = [0u8; 8];
        let _ = self.back.read_exact(&mut woke).await;
        Duration::from_nanos(u64::from_le_bytes(woke).saturating_sub(sent))
    }
}

/// The other end of [`Fifo`].
pub(crate) async fn echo(dir: &Path) {
    let mut fifo = fifo_pair(dir, "b", "a");
    let mut sent = [0u8; 8];
    while fifo.back.read_exact(&mut sent).await.is_ok() {
        let _ = fifo.out.write_all(&now().to_le_bytes()).await;
    }
}

fn hand_off(report: &mut Report, turns: usize) {
    let (dir, rt) = (temp(), runtime());
    for name in ["a", "b"] {
        mkfifoat(rustix::fs::CWD, dir.path().join(name), Mode::from_raw_mode(0o600))
            .unwrap_or_else(|e| panic!("{e}"));
    }
    let _ = OFlags::RDWR;
    let (ours, floor) = rt.block_on(async {
        let mut fifo = fifo_pair(dir.path(), "a", "b");
        let _echo = Helper::start("fifo", dir.path());
        let _other = Helper::start("turns", dir.path());
        take_turns(dir.path(), Some((&mut fifo, turns))).await
    });
    let r = ratio(ours.p50(), floor.p50());
    report.row(
        format!(
            "hand-off to another process, p50 of {} (floor: bare FIFO write to tokio wake-up)",
            ours.len()
        ),
        format!("{:?}", floor.p50()),
        format!("{:?} ({r:.2} x), p99 {:?}", ours.p50(), ours.quantile(0.99)),
        "<= 3 x",
        r <= 3.0,
    );
}

fn takeover(report: &mut Report, kills: usize) {
    let (dir, rt) = (temp(), runtime());
    let locks = client(dir.path());
    let stop = Arc::new(AtomicBool::new(false));
    let busy: Vec<_> = (0..2)
        .map(|_| {
            let stop = stop.clone();
            std::thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            })
        })
        .collect();
    let mut sample = Sample::default();
    for _ in 0..kills {
        let mut holder = Helper::start("hold", dir.path());
        assert_eq!(holder.line(), "held");
        let took = rt.block_on(async {
            let locks = locks.clone();
            let waiter = tokio::spawn(async move {
                let guard = locks.mutex("k").acquire().await;
                (now(), guard.map(|g| g.release()))
            });
            tokio::time::sleep(Duration::from_millis(5)).await;
            let killed = now();
            let _ = holder.child.kill();
            match waiter.await {
                Ok((held, Ok(release))) => {
                    let _ = release.await;
                    Duration::from_nanos(held.saturating_sub(killed))
                }
                other => panic!("{:?}", other.map(|(at, r)| (at, r.is_ok()))),
            }
        });
        sample.push(took);
    }
    stop.store(true, Ordering::Relaxed);
    busy.into_iter().for_each(|b| drop(b.join()));
    let (p50, p99) = (sample.p50(), sample.quantile(0.99));
    report.row(
        format!("takeover after kill -9, two busy cores, {kills} kills"),
        "",
        format!("p50 {p50:?}, p99 {p99:?}"),
        "p50 <= 1 ms, p99 <= 20 ms",
        p50 <= Duration::from_millis(1) && p99 <= Duration::from_millis(20),
    );
}

fn waiting(report: &mut Report) {
    let (dir, rt) = (temp(), runtime());
    let locks = client(dir.path());
    let _held = rt.block_on(locks.mutex("k").acquire());
    let mut waiters: Vec<_> = (0..64).map(|_| Helper::start("wait", dir.path())).collect();
    waiters.iter_mut().for_each(|w| drop(w.line()));
    std::thread::sleep(Duration::from_millis(500));
    let used = |waiters: &[Helper]| waiters.iter().map(Helper::cpu).sum::<Duration>();
    let (before, start) = (used(&waiters), Instant::now());
    std::thread::sleep(Duration::from_secs(5));
    let share = (used(&waiters) - before).as_secs_f64() / start.elapsed().as_secs_f64() * 100.0;
    report.row(
        "64 processes waiting for 5 s, all together",
        "",
        format!("{share:.3} % of a core"),
        "< 0.1 %",
        share < 0.1,
    );
}

fn storm(report: &mut Report) {
    let dir = temp();
    let mut processes: Vec<_> = (0..8).map(|_| Helper::start("storm", dir.path())).collect();
    let mut grants = Vec::new();
    let mut overlaps = 0;
    for p in &mut processes {
        let line = p.line();
        let mut numbers: Vec<u64> = line.split_whitespace().filter_map(|n| n.parse().ok()).collect();
        overlaps += numbers.pop().unwrap_or(u64::MAX);
        grants.push(numbers.iter().sum::<u64>());
    }
    let (all, most) = (
        grants.iter().sum::<u64>(),
        grants.iter().max().copied().unwrap_or(0),
    );
    let least = grants.iter().min().copied().unwrap_or(0);
    report.row(
        "8 processes x 8 tasks on one key, 10 s",
        "",
        format!(
            "{} grants/s, most/least {:.2}, {overlaps} overlaps",
            all / 10,
            most as f64 / least.max(1) as f64
        ),
        "0 overlaps",
        overlaps == 0 && all > 0,
    );
}

fn many_keys(report: &mut Report, n: usize) {
    let (dir, rt) = (temp(), runtime());
    let locks = client(dir.path());
    let mut parts = Vec::new();
    rt.block_on(async {
        for tenth in 0..10 {
            let start = Instant::now();
            for i in 0..n / 10 {
                match locks.mutex(format!("key:{tenth}:{i}")).acquire().await {
                    Ok(guard) => drop(guard.release().await),
                    Err(e) => panic!("{e}"),
                }
            }
            parts.push(start.elapsed() / u32::try_from(n / 10).unwrap_or(1));
        }
    });
    let (mut bytes, mut files) = (0u64, 0);
    let mut todo = vec![dir.path().to_owned()];
    while let Some(at) = todo.pop() {
        for entry in std::fs::read_dir(at).into_iter().flatten().flatten() {
            if entry.path().is_dir() {
                todo.push(entry.path());
            } else if let Ok(meta) = entry.metadata() {
                files += 1;
                bytes += std::os::unix::fs::MetadataExt::blocks(&meta) * 512;
            }
        }
    }
    let r = ratio(parts[9], parts[0]);
    let mib = bytes as f64 / 1024.0 / 1024.0;
    report.row(
        format!("{n} distinct keys, one after the other"),
        format!("first tenth {:?}", parts[0]),
        format!(
            "last tenth {:?} ({r:.2} x), {mib:.1} MiB, {files} files",
            parts[9]
        ),
        "flat, <= 4 MiB, no file per key",
        r <= 1.5 && mib <= 4.0 && files < 10,
    );
}
