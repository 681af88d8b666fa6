//! What the core itself costs, on the memory engine.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use distlock::driver::{Life, Line, Mode, Order, Want};
use distlock::memory::Memory;
use distlock::{Client, Guard, Key, OwnerId};
use metrics::NoopRecorder;
use metrics_exporter_prometheus::PrometheusBuilder;
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
    client_of(&Memory::new())
}

fn client_of(memory: &Memory) -> Client {
    match Client::builder().memory(memory) {
        Ok(client) => client,
        Err(e) => panic!("no client: {e}"),
    }
}

pub(crate) fn measure(quick: bool) -> Report {
    let mut report = Report::new("core, memory engine");
    let rounds = if quick { 200 } else { 2000 };
    uncontended(&mut report, rounds);
    waiters(&mut report, if quick { 1000 } else { 10_000 });
    held(
        &mut report,
        100_000,
        Duration::from_secs(if quick { 12 } else { 40 }),
        true,
    );
    if !quick {
        held(&mut report, 1_000_000, Duration::from_secs(30), false);
    }
    // The last one: the recorder stays.
    observed(&mut report, rounds);
    report
}

async fn cycle(locks: &Client) {
    match locks.mutex("order:close:42").acquire().await {
        Ok(guard) => drop(guard.release().await),
        Err(e) => panic!("{e}"),
    }
}

/// The same on the engine alone: a claim, a look, a release.
async fn raw(locks: &Client, key: &Key) {
    let want = Want {
        key: key.clone(),
        owner: OwnerId {
            client: locks.id(),
            n: 0,
        },
        mode: Mode::Mutex,
        order: Order::Any,
        line: Line::Join,
        life: Life::Process,
        ttl: Duration::from_secs(30),
        label: None,
        reason: None,
        bell: Default::default(),
    };
    let Ok(mut claim) = locks.driver().claim(Arc::new(want)) else {
        panic!("the engine refuses")
    };
    let _ = claim.try_acquire().await;
    let _ = claim.release(None).await;
}

fn uncontended(report: &mut Report, rounds: usize) {
    let (locks, rt) = (client(), runtime());
    let (mut plain, mut scoped, mut nested) = (Sample::default(), Sample::default(), Sample::default());
    rt.block_on(async {
        for _ in 0..1000 {
            cycle(&locks).await;
        }
    });
    let Ok(key) = Key::new("order:close:42") else {
        panic!("a good key")
    };
    let (mut engine, mut clock) = (Sample::default(), Sample::default());
    for _ in 0..rounds / 10 {
        time(&mut plain, 10, 100, || rt.block_on(cycle(&locks)));
        time(&mut engine, 10, 100, || rt.block_on(raw(&locks, &key)));
        time(&mut clock, 10, 100, || {
            std::hint::black_box(locks.clock().now());
        });
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
    let p50 = plain.p50();
    let must = Duration::from_nanos(1500);
    report.row(
        "acquire + release, p50 (floor: the engine alone)",
        format!("{:?}", engine.p50()),
        format!("{p50:?}"),
        "<= 1.5 µs",
        p50 <= must,
    );
    report.note("run, p50", format!("{:?}", scoped.p50()));
    let p50 = nested.p50();
    report.row(
        "nested run, p50 (floor: one look at the clock)",
        format!("{:?}", clock.p50()),
        format!("{p50:?}"),
        "<= 200 ns",
        p50 <= Duration::from_nanos(200),
    );
}

/// With the recorder of `metrics-exporter-prometheus` for the whole process, as a service has it, and a subscriber of
/// `tracing-subscriber` that looks at everything from `info` on and prints nothing.
fn observed(report: &mut Report, rounds: usize) {
    let recorder = PrometheusBuilder::new().build_recorder();
    let scrape = recorder.handle();
    if metrics::set_global_recorder(recorder).is_err() {
        panic!("a recorder is set already")
    }
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter("info")
        .with_writer(std::io::sink)
        .finish();
    let subscriber = Arc::new(subscriber);
    let (locks, rt) = (client(), runtime());
    let (mut bare, mut watched) = (Sample::default(), Sample::default());
    for _ in 0..rounds / 10 {
        metrics::with_local_recorder(&NoopRecorder, || {
            time(&mut bare, 10, 100, || rt.block_on(cycle(&locks)));
        });
        let guard = tracing_subscriber::util::SubscriberInitExt::set_default(subscriber.clone());
        time(&mut watched, 10, 100, || rt.block_on(cycle(&locks)));
        drop(guard);
        // What was recorded is taken, as by a scrape.
        scrape.run_upkeep();
    }
    let counted = scrape.render();
    assert!(
        counted.contains("distlock_hold_seconds"),
        "the recorder was not told: {counted}"
    );
    let more = watched.p50().saturating_sub(bare.p50());
    report.row(
        "more with metrics-exporter-prometheus and tracing-subscriber (info)",
        format!("{:?}", bare.p50()),
        format!("+{more:?}"),
        "<= 500 ns",
        more <= Duration::from_nanos(500),
    );
}

/// The cost of a hand-off with some and with many local waiters.
fn waiters(report: &mut Report, many: usize) {
    let rt = runtime();
    let cost = |n: usize| {
        rt.block_on(async {
            let memory = Memory::new();
            let (locks, other) = (client_of(&memory), client_of(&memory));
            // As another process holds it: the one in front here waits at the engine, the others behind it.
            let Ok(first) = other.mutex("k").acquire().await else {
                panic!("free")
            };
            let (begun, done) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
            let tasks: Vec<_> = (0..n)
                .map(|_| {
                    let (locks, begun, done) = (locks.clone(), begun.clone(), done.clone());
                    tokio::spawn(async move {
                        begun.fetch_add(1, Ordering::Relaxed);
                        if let Ok(guard) = locks.mutex("k").acquire().await {
                            let _ = guard.release().await;
                            done.fetch_add(1, Ordering::Relaxed);
                        }
                    })
                })
                .collect();
            // Once a task has begun, it is in line when it next yields.
            while begun.load(Ordering::Relaxed) < n {
                tokio::task::yield_now().await;
            }
            let contenders = locks.inspect("k").await.map(|i| i.waiters.len()).unwrap_or(0);
            let start = Instant::now();
            let _ = first.release().await;
            for task in tasks {
                let _ = task.await;
            }
            assert_eq!(done.load(Ordering::Relaxed), n, "all had their turn");
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
        flat <= 2.0 && contenders == 1,
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
