//! What others take for the same, in the same rounds as ours. They promise other things, so nothing is demanded.

use std::process::Command;
use std::time::{Duration, Instant};

use distlock::Locks;
use sqlx::Connection;
use sqlx::postgres::{PgAdvisoryLock, PgConnection};
use tokio::runtime::Runtime;

use super::{Bench, Dialect, Way};
use crate::peer::{Peer, PeerPrograms, java};
use crate::report::{Report, good};
use crate::sample::{Sample, ratio};

/// Rounds in which nobody is measured: a compiler warms up, connections are made.
const WARM: usize = 20;

/// sqlx's own guard of a session lock, on one connection.
pub(super) fn sqlx(report: &mut Report, rt: &Runtime, bench: &Bench, address: &str, rounds: usize) {
    let (mut ours, mut theirs) = (Sample::default(), Sample::default());
    rt.block_on(async {
        let lock = PgAdvisoryLock::new("order:close:42");
        let mut conn = good(PgConnection::connect(&bench.dialect.url(address)).await);
        for round in 0..rounds + WARM {
            let start = Instant::now();
            conn = good(good(lock.acquire(conn).await).release_now().await);
            let took = start.elapsed();
            let start = Instant::now();
            bench.cycle(Way::Ours, 42).await;
            if round >= WARM {
                theirs.push(took);
                ours.push(start.elapsed());
            }
        }
    });
    told(
        report,
        "sqlx PgAdvisoryLock (no lease, no token, nothing written), 1 task",
        &ours,
        &theirs,
    );
}

/// Programs of other products.
pub(super) fn programs(
    report: &mut Report,
    rt: &Runtime,
    bench: &Bench,
    address: &str,
    programs: &PeerPrograms,
    rounds: usize,
) {
    let url = bench.dialect.url(address);
    let crates = programs.distributed_lock.as_ref().map(Command::new);
    let crates = Peer::start("the distributed-lock crate", 1.0, crates, &url, report);
    if let Some(mut peer) = crates {
        for (tasks, each) in [(1, 20), (64, 5)] {
            beside(report, rt, bench, &mut peer, (tasks, each), rounds);
        }
    }
    let shedlock = programs.shedlock.as_ref().map(|path| java(path, "ShedLockBench"));
    // Its table is made by our own use of it.
    let made = async {
        let locks = good(Locks::connect(&format!("{url}?layout=shedlock")).await);
        good(good(locks.mutex("made").acquire().await).release().await)
    };
    rt.block_on(made);
    let jdbc = match bench.dialect {
        Dialect::Postgres => format!("jdbc:postgresql://{address}/postgres?user=postgres"),
        Dialect::Mysql => format!("jdbc:mariadb://{address}/distlock?user=root"),
    };
    if let Some(mut peer) = Peer::start("ShedLock", 1.0, shedlock, &jdbc, report) {
        for (tasks, each) in [(1, 20), (64, 5)] {
            beside(report, rt, bench, &mut peer, (tasks, each), rounds);
        }
    }
}

fn beside(
    report: &mut Report,
    rt: &Runtime,
    bench: &Bench,
    peer: &mut Peer,
    (tasks, each): (usize, usize),
    rounds: usize,
) {
    let (mut ours, mut theirs) = (Sample::default(), Sample::default());
    let pairs = u32::try_from(tasks * each).unwrap_or(u32::MAX);
    for round in 0..rounds + WARM {
        let Some(took) = peer.tried(tasks, each) else {
            return report.note(
                format!("beside {}, {tasks} tasks", peer.name),
                "skipped: it failed",
            );
        };
        let start = Instant::now();
        rt.block_on(bench.many(Way::Ours, tasks, each));
        if round >= WARM {
            theirs.push(took / pairs);
            ours.push(start.elapsed() / pairs);
        }
    }
    let s = if tasks == 1 { "" } else { "s" };
    told(report, &format!("{}, {tasks} task{s}", peer.name), &ours, &theirs);
}

fn told(report: &mut Report, whom: &str, ours: &Sample, theirs: &Sample) {
    let (ours, theirs): (Duration, Duration) = (ours.p50(), theirs.p50());
    report.beside(
        format!("beside {whom}: time for a pair"),
        format!("{theirs:?}"),
        format!("{ours:?} ({:.2} x)", ratio(ours, theirs)),
    );
}
