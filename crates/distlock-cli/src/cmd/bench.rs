//! `distlock bench`: how fast the engine is from here.

use std::time::{Duration, Instant};

use distlock_core::{Client, Error, Key, Wait};
use hdrhistogram::Histogram;
use serde_json::json;

use crate::args::{BenchArgs, Common};
use crate::cmd::{contact, print_line};
use crate::exit::Exit;

/// Acquires and releases, each task a free lock of its own.
pub(crate) fn bench(common: &Common, args: &BenchArgs) -> Exit {
    let common = common.at(args.url.as_deref());
    contact(
        &common,
        |_| Ok(()),
        async |session, locks, ()| {
            let say = &session.say;
            let started = Instant::now();
            let until = started + args.time;
            let run = uuid::Uuid::new_v4();
            let tasks: Vec<_> = (0..args.tasks)
                .map(|n| tokio::spawn(one((*locks).clone(), format!("distlock-bench:{run}:{n}"), until)))
                .collect();
            let mut micros = empty();
            for task in tasks {
                match task.await {
                    Ok(Ok(times)) => drop(micros.add(times)),
                    Ok(Err(e)) => return say.failure(&e, Exit::of(&e)),
                    Err(e) => return say.error(Exit::ENGINE, e, None),
                }
            }
            let per_second = micros.len() as f64 / started.elapsed().as_secs_f64();
            let at = |q: f64| micros.value_at_quantile(q) as f64 / 1000.0;
            let (p50, p99, p999) = (at(0.5), at(0.99), at(0.999));
            if say.is_json() {
                let line = json!({
                    "engine": session.engine.public_url(&locks), "tasks": args.tasks, "operations": micros.len(),
                    "per_second": per_second.round(), "p50_us": p50, "p99_us": p99, "p999_us": p999,
                });
                print_line(&line.to_string());
            } else {
                print_line(&format!(
                    "{} acquire + release, {} at a time: {per_second:.0} per second",
                    micros.len(),
                    args.tasks
                ));
                print_line(&format!("p50 {p50:.1} µs   p99 {p99:.1} µs   p99.9 {p999:.1} µs"));
            }
            Exit::OK
        },
    )
}

/// Nanoseconds up to a minute, with three digits.
fn empty() -> Histogram<u64> {
    let mut histogram = Histogram::new(3).unwrap_or_else(|_| unreachable!("3 is a valid number of digits"));
    histogram.auto(true);
    histogram
}

async fn one(client: Client, key: String, until: Instant) -> Result<Histogram<u64>, Error> {
    let key = Key::new(key)?;
    let mut times = empty();
    while Instant::now() < until {
        let start = Instant::now();
        client
            .mutex(&key)
            .wait(Wait::For(Duration::from_secs(10)))
            .acquire()
            .await?
            .release()
            .await?;
        let _ = times.record(u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX));
        tokio::task::yield_now().await;
    }
    Ok(times)
}
