//! What the core itself costs, on the memory engine.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use distlock::memory::Memory;
use distlock::{Client, Guard};
use metrics_util::debugging::DebuggingRecorder;
use tokio::runtime::Runtime;

use crate::report::Report;
use crate::sample::{Sample, cpu, resident, time};

fn runtime() -> Runtime {
    match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(rt) => rt,
        Err(e) => panic!("no runtime: {e}"),
    }
}

fn client() -> Client {
    match Client::builder().memory(&Memory::new()) {
        Ok(client) => client,
        Err(e) => panic!("no client: {e}"),
    }
}

pub(crate) fn measure(quick: bool) -> Report {
    let mut report = Report::new("core, memory engine");
    let rounds = if quick { 200 } else { 2000 };
    uncontended(&mut report, rounds);
    observed(&mut report, rounds);
    waiters(&mut report, if quick { 1000 } else { 10_000 });
    held(
        &mut report,
        100_000,
        Duration::from_secs(if quick { 12 } else { 60 }),
        true,
    );
    if !quick {
        held(&mut report, 1_000_000, Duration::from_secs(30), false);
    }
    report
}

async fn cycle(locks: &Client) {
    match locks.mutex("order:close:42").acquire().await {
        Ok(guard) => drop(guard.release().await),
        Err(e) => panic!("{e}"),
    }
}

fn uncontended(report: &mut Report, rounds: usize) {
    let (locks, rt) = (client(), runtime());
    let (mut plain, mut scoped, mut nested) = (Sample::default(), Sample::default(), Sample::default());
    rt.block_on(async {
        for _ in 0..1000 {
            cycle(&locks).await;
        }
    });
    for _ in 0..rounds / 10 {
        time(&mut plain, 10, 100, || rt.block_on(cycle(&locks)));
        time(&mut scoped, 10, 100, || {
            let _ = rt.block_on(locks.mutex("order:close:42").run(async |_| Ok::<_, ()>(())));
        });
        let mut inner = Sample::default();
        let _ = rt.block_on(locks.mutex("order:close:42").run(async |_| {
            for _ in 0..10 {
                let start = Instant::now();
                for _ in 0..100 {
                    let _ = locks.mutex("order:close:42").run(async |_| Ok::<_, ()>(())).await;
                }
                inner.push(start.elapsed() / 100);
            }
            Ok::<_, ()>(())
        }));
        nested.push(inner.p50());
    }
    // `block_on` is part of what is timed above; an empty one is the floor.
    let mut empty = Sample::default();
    time(&mut empty, rounds, 100, || rt.block_on(async {}));
    let p50 = plain.p50();
    let must = Duration::from_nanos(1500);
    report.row(
        "acquire + release, p50",
        format!("{:?}", empty.p50()),
        format!("{p50:?}"),
        "<= 1.5 µs",
        p50 <= must,
    );
    report.note("run, p50", format!("{:?}", scoped.p50()));
    let p50 = nested.p50();
    report.row(
        "nested run, p50",
        "",
        format!("{p50:?}"),
        "<= 200 ns",
        p50 <= Duration::from_nanos(200),
    );
}

/// With a metrics recorder and a tracing subscriber that looks at everything but prints nothing.
fn observed(report: &mut Report, rounds: usize) {
    let (locks, rt) = (client(), runtime());
    let (mut bare, mut watched) = (Sample::default(), Sample::default());
    let recorder = DebuggingRecorder::new();
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter("info")
        .with_writer(std::io::sink)
        .finish();
    let subscriber = Arc::new(subscriber);
    for _ in 0..rounds / 10 {
        time(&mut bare, 10, 100, || rt.block_on(cycle(&locks)));
        tracing_subscriber::util::SubscriberInitExt::set_default(subscriber.clone());
        let guard = tracing_subscriber::util::SubscriberInitExt::set_default(subscriber.clone());
        metrics::with_local_recorder(&recorder, || {
            time(&mut watched, 10, 100, || rt.block_on(cycle(&locks)));
        });
        drop(guard);
        // The debugging recorder keeps each histogram value; take them, as an exporter would.
        drop(recorder.snapshotter().snapshot());
    }
    let more = watched.p50().saturating_sub(bare.p50());
    report.row(
        "more with metrics-util's recorder and tracing-subscriber (info)",
        format!("{:?}", bare.p50()),
        format!("+{more:?}"),
        "<= 500 ns",
        more <= Duration::from_nanos(500),
    );
}

/// The cost of a hand-off with one and with many local waiters.
fn waiters(report: &mut Report, many: usize) {
    let rt = runtime();
    let cost = |n: usize| {
        rt.block_on(async {
            let locks = client();
            let Ok(first) = locks.mutex("k").acquire().await else {
                panic!("free")
            };
            let done = Arc::new(AtomicU32::new(0));
            let tasks: Vec<_> = (0..n)
                .map(|_| {
                    let (locks, done) = (locks.clone(), done.clone());
                    tokio::spawn(async move {
                        cycle(&locks).await;
                        done.fetch_add(1, Ordering::Relaxed);
                    })
                })
                .collect();
            for _ in 0..5 {
                tokio::task::yield_now().await;
            }
            let contenders = locks.inspect("k").await.map(|i| i.waiters.len()).unwrap_or(0);
            let start = Instant::now();
            let _ = first.release().await;
            for task in tasks {
                let _ = task.await;
            }
            (start.elapsed() / u32::try_from(n).unwrap_or(1), contenders)
        })
    };
    let (few, lots): (Vec<_>, Vec<_>) = (0..5).map(|_| (cost(100), cost(many))).unzip();
    let median = |mut v: Vec<(Duration, usize)>| {
        v.sort();
        v[v.len() / 2]
    };
    let (few, _) = median(few);
    let (lots, contenders) = median(lots);
    let flat = crate::sample::ratio(lots, few);
    report.row(
        format!("hand-off with {many} local waiters against 100"),
        format!("{few:?}"),
        format!("{lots:?} ({flat:.2} x), {contenders} contender"),
        "flat (<= 2 x), one contender",
        flat <= 2.0 && contenders <= 1,
    );
}

/// Many holds with the watchdog: memory and CPU.
fn held(report: &mut Report, n: usize, watch: Duration, gate: bool) {
    let (locks, rt) = (client(), runtime());
    let before = resident();
    let guards: Vec<Guard> = rt.block_on(async {
        let mut guards = Vec::with_capacity(n);
        for i in 0..n {
            match locks.mutex(format!("order:close:{i}")).acquire().await {
                Ok(guard) => guards.push(guard),
                Err(e) => panic!("{e}"),
            }
        }
        guards
    });
    let bytes = (resident() - before) as f64 / n as f64;
    let (cpu0, start) = (cpu(), Instant::now());
    std::thread::sleep(watch);
    let share = (cpu() - cpu0).as_secs_f64() / start.elapsed().as_secs_f64() * 100.0;
    let lost = guards.iter().filter(|g| !g.is_held()).count();
    let ours = format!("{share:.2} % of a core, {bytes:.0} B each, {lost} lost");
    let what = format!("{n} held, ttl 30 s, {watch:?} (record of the memory engine included)");
    if gate {
        report.row(
            what,
            "",
            ours,
            "< 5 % of a core, < 1.2 KB each",
            share < 5.0 && bytes < 1200.0 && lost == 0,
        );
    } else {
        report.note(what, ours);
    }
}
