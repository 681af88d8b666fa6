//! The lock service before Redis against the same calls made directly.

mod gateway;

use std::time::{Duration, Instant};

use distlock::Locks;
use distlock_testkit::servers::Redis;
use futures_util::future::{join_all, select_all};
use tokio::runtime::Runtime;

use self::gateway::{Gateway, Http, handle};
use crate::children::runtime;
use crate::report::Report;
use crate::sample::{Sample, ratio};

const TTL: Duration = Duration::from_secs(60);
/// No limit that a measurement could reach.
const UNLIMITED: &str = "100000000";
/// A limit that it reaches at once.
const LIMITED: &str = "3000";

pub(crate) fn measure(quick: bool) -> Report {
    let mut report = Report::new("service, on redis");
    // The thousands of connections of this process: as many as the system allows.
    let mut limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    limit.current = limit.maximum;
    let _ = rustix::process::setrlimit(rustix::process::Resource::Nofile, limit);
    let rt = runtime();
    let server = match rt.block_on(Redis::start()) {
        Ok(server) => server,
        Err(e) => {
            report.note("skipped", e);
            return report;
        }
    };
    let gateway = Gateway::start(&server.url(), UNLIMITED);
    let locks = rt.block_on(connect(&server));
    one_client(&mut report, &rt, &gateway, &locks, if quick { 300 } else { 3000 });
    many_clients(&mut report, &rt, &gateway, &locks, if quick { 5 } else { 21 });
    drop(gateway);
    let gateway = Gateway::start(&server.url(), UNLIMITED);
    waiting(&mut report, &rt, &gateway, &server, quick);
    drop(gateway);
    let time = Duration::from_secs(if quick { 6 } else { 60 });
    for limit in [UNLIMITED, LIMITED] {
        let gateway = Gateway::start(&server.url(), limit);
        load(&mut report, &rt, &gateway, limit, time);
    }
    report
}

async fn connect(server: &Redis) -> Locks {
    good(Locks::connect(&server.url()).await)
}

fn good<T, E: std::fmt::Display>(result: Result<T, E>) -> T {
    match result {
        Ok(value) => value,
        Err(e) => panic!("{e}"),
    }
}

async fn direct(locks: &Locks, key: &str) {
    let guard = good(locks.mutex(key).ttl(TTL).acquire().await);
    drop(guard.release().await);
}

fn one_client(report: &mut Report, rt: &Runtime, gateway: &Gateway, locks: &Locks, rounds: usize) {
    let (mut ours, mut floor) = <(Sample, Sample)>::default();
    rt.block_on(async {
        let mut http = Http::connect(gateway).await;
        for round in 0..rounds {
            let start = Instant::now();
            direct(locks, "one").await;
            let between = Instant::now();
            http.cycle("one").await;
            // The first rounds warm up.
            if round >= rounds / 20 {
                floor.push(between - start);
                ours.push(between.elapsed());
            }
        }
    });
    let r = ratio(ours.p50(), floor.p50());
    report.row(
        "acquire + release, 1 keep-alive client, p50 (floor: direct)",
        format!("{:?}", floor.p50()),
        format!("{:?} ({r:.2} x)", ours.p50()),
        "<= 2.5 x",
        r <= 2.5,
    );
}

fn many_clients(report: &mut Report, rt: &Runtime, gateway: &Gateway, locks: &Locks, rounds: usize) {
    const CLIENTS: usize = 64;
    const EACH: u32 = 20;
    let (mut ours, mut floor) = <(Sample, Sample)>::default();
    rt.block_on(async {
        let names: Vec<String> = (0..CLIENTS).map(|i| format!("many:{i}")).collect();
        let mut clients = join_all(names.iter().map(|_| Http::connect(gateway))).await;
        for round in 0..=rounds {
            let start = Instant::now();
            join_all(names.iter().map(async |key| {
                for _ in 0..EACH {
                    direct(locks, key).await;
                }
            }))
            .await;
            let between = Instant::now();
            join_all(clients.iter_mut().zip(&names).map(async |(http, key)| {
                for _ in 0..EACH {
                    http.cycle(key).await;
                }
            }))
            .await;
            if round > 0 {
                floor.push((between - start) / (EACH * 64));
                ours.push(between.elapsed() / (EACH * 64));
            }
        }
    });
    let rate = |each: Duration| format!("{:.0} pairs/s", 1.0 / each.as_secs_f64());
    let r = ratio(floor.p50(), ours.p50());
    report.row(
        format!("64 keep-alive clients on 64 keys, median of {rounds} (floor: direct)"),
        rate(floor.p50()),
        format!("{} ({r:.2} x)", rate(ours.p50())),
        ">= 0.3 x",
        r >= 0.3,
    );
}

/// 5,000 clients that wait by long poll on 50 keys.
fn waiting(report: &mut Report, rt: &Runtime, gateway: &Gateway, server: &Redis, quick: bool) {
    const CLIENTS: usize = 5000;
    const KEYS: usize = 50;
    let (before, _) = gateway.usage();
    rt.block_on(async {
        let mut holder = Http::connect(gateway).await;
        let names: Vec<String> = (0..KEYS).map(|i| format!("wait:{i}")).collect();
        let mut handles = Vec::new();
        for key in &names {
            handles.push(holder.acquire(key).await);
        }
        let mut waiters = Vec::new();
        for at in 0..CLIENTS {
            let mut http = Http::connect(gateway).await;
            http.send(&names[at % KEYS], "acquire", r#"{"ttl":"60s","wait":"60s"}"#)
                .await;
            waiters.push(http);
        }
        tokio::time::sleep(Duration::from_secs(2)).await;
        let (after, used) = gateway.usage();
        let watch = Duration::from_secs(if quick { 3 } else { 15 });
        tokio::time::sleep(watch).await;
        let share = (gateway.usage().1 - used).as_secs_f64() / watch.as_secs_f64() * 100.0;
        let each = after.saturating_sub(before) as f64 / CLIENTS as f64 / 1024.0;
        report.row(
            format!("{CLIENTS} long polls on {KEYS} keys: memory of each"),
            "",
            format!("{each:.1} KB"),
            "< 20 KB",
            each < 20.0,
        );
        report.row(
            format!("{CLIENTS} long polls on {KEYS} keys: CPU in {watch:?} in which nothing moves"),
            "",
            format!("{share:.1} % of a core"),
            "< 5 %",
            share < 5.0,
        );
        // Who is next is not known before: each release is timed until the first of the key's waiters is answered.
        let (mut ours, mut floor) = <(Sample, Sample)>::default();
        let (a, b) = (connect(server).await, connect(server).await);
        for (at, key) in names.iter().enumerate() {
            let lease = format!(r#"{{"handle":"{}"}}"#, handles[at]);
            let mut answers = Vec::new();
            for http in waiters.iter_mut().skip(at).step_by(KEYS) {
                answers.push(Box::pin(http.answer()));
            }
            let start = Instant::now();
            holder.send(key, "release", &lease).await;
            let ((status, body), ..) = select_all(answers).await;
            ours.push(start.elapsed());
            assert_eq!(status, 200, "{body}");
            assert_eq!(holder.answer().await.0, 200);
            floor.push(handoff(&a, &b).await);
        }
        let r = ratio(ours.p50(), floor.p50());
        report.row(
            "a release reaches the next of 100 clients, p50 (floor: two direct clients)",
            format!("{:?}", floor.p50()),
            format!("{:?} ({r:.2} x)", ours.p50()),
            "<= 3 x",
            r <= 3.0,
        );
    });
}

/// From the release of one direct client to the grant of another one.
async fn handoff(a: &Locks, b: &Locks) -> Duration {
    let held = good(a.mutex("handoff").ttl(TTL).acquire().await);
    let b = b.clone();
    let waiter = tokio::spawn(async move {
        let next = good(b.mutex("handoff").ttl(TTL).acquire().await);
        (Instant::now(), next)
    });
    tokio::time::sleep(Duration::from_millis(30)).await;
    let start = Instant::now();
    drop(held.release().await);
    let (granted, next) = good(waiter.await);
    drop(next.release().await);
    granted - start
}

/// 64 clients on 16 keys that ask without a pause, for as much as there is or as is allowed.
fn load(report: &mut Report, rt: &Runtime, gateway: &Gateway, limit: &str, time: Duration) {
    let start = Instant::now();
    // What a gateway keeps of the past is full by then.
    let settled = start + time / 4;
    let end = start + time;
    let watched = async {
        tokio::time::sleep_until(settled.into()).await;
        let settled = gateway.usage().0;
        tokio::time::sleep_until(end.into()).await;
        (settled, gateway.usage().0)
    };
    let clients = join_all((0..64).map(async |i| {
        let key = format!("load:{}", i % 16);
        let mut http = Http::connect(gateway).await;
        let mut counts = Counts::default();
        while Instant::now() < end {
            let acquired = http.post(&key, "acquire", r#"{"ttl":"60s"}"#).await;
            counts.count(acquired.0);
            if acquired.0 == 200 {
                let body = format!(r#"{{"handle":"{}"}}"#, handle(&acquired.1));
                // What was refused by the limit is asked for again, or the key would be lost for this client.
                loop {
                    let status = http.post(&key, "release", &body).await.0;
                    counts.count(status);
                    if status != 429 {
                        break;
                    }
                }
            }
        }
        counts
    }));
    let (counts, (settled, after)) = rt.block_on(async { tokio::join!(clients, watched) });
    let sum = |f: fn(&Counts) -> u64| counts.iter().map(f).sum::<u64>();
    let (done, busy, limited, wrong) = (
        sum(|c| c.done),
        sum(|c| c.busy),
        sum(|c| c.limited),
        sum(|c| c.wrong),
    );
    let rate = |n: u64| n as f64 / time.as_secs_f64();
    let bounded = limit == LIMITED;
    let what = if bounded {
        format!("--max-rate {limit}")
    } else {
        "no limit".to_owned()
    };
    let grown = after as f64 / settled as f64;
    report.row(
        format!("64 clients without a pause on 16 keys, {time:?}, {what}"),
        format!("{} MB after {:?}", settled >> 20, time / 4),
        format!(
            "{:.0} done, {:.0} busy, {:.0} limited a second, {wrong} other answers; {} MB ({grown:.2} x)",
            rate(done),
            rate(busy),
            rate(limited),
            after >> 20
        ),
        "no other answers, <= 1.10 x",
        wrong == 0 && bounded == (limited > 0) && grown <= 1.1,
    );
}

#[derive(Default)]
struct Counts {
    done: u64,
    busy: u64,
    limited: u64,
    wrong: u64,
}

impl Counts {
    fn count(&mut self, status: u16) {
        match status {
            200 => self.done += 1,
            409 => self.busy += 1,
            429 => self.limited += 1,
            _ => self.wrong += 1,
        }
    }
}
