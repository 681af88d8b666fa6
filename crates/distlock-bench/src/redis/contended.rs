//! One key that many want, through a network that delays.

use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use distlock::{Locks, Order};
use distlock_testkit::proxy::{Fault, Proxy};
use distlock_testkit::servers::Redis;
use redis::Value;
use tokio::runtime::Runtime;

use super::peer::{Peers, contend};
use super::{connect, scripts_run};
use crate::children::{Helper, now, runtime};
use crate::report::{Report, good};
use crate::sample::Sample;

const PROCESSES: usize = 16;
const KEY: &str = "contended";
/// How long a message is on its way, in one direction.
const DELAY: Duration = Duration::from_millis(5);
const POLL: Duration = Duration::from_millis(50);

/// One time that somebody held the key: whose, from when, and when the release began. In nanoseconds.
pub(super) struct Turn {
    pub(super) of: u64,
    pub(super) granted: u64,
    pub(super) left: u64,
}

/// From the beginning of each release to the grant of the next holder, if that is another one.
fn hand_offs(mut turns: Vec<Turn>) -> Sample {
    turns.sort_by_key(|turn| turn.granted);
    let mut sample = Sample::default();
    for pair in turns.windows(2) {
        if pair[0].of != pair[1].of {
            sample.push(Duration::from_nanos(pair[1].granted.saturating_sub(pair[0].left)));
        }
    }
    sample
}

pub(super) fn measure(
    report: &mut Report,
    background: &Runtime,
    server: &Redis,
    peers: &mut Peers,
    seconds: u64,
) {
    let proxy = good(background.block_on(Proxy::start(server.address())));
    proxy.both(Fault::Delay {
        by: DELAY,
        jitter: Duration::ZERO,
    });
    let rt = runtime();
    let trip = rt.block_on(round_trip(&proxy.address()));
    let trips = |sample: &Sample| sample.p50().as_secs_f64() / trip.as_secs_f64();
    let mut ours = Vec::new();
    for (order, most) in [("any", 1.0 + PROCESSES as f64), ("fifo", 5.0)] {
        let before = scripts_run(&rt, server);
        let turns = processes(order, seconds, &proxy.address());
        let each = (scripts_run(&rt, server) - before) as f64 / turns.len().max(1) as f64;
        let sample = hand_offs(turns);
        let r = trips(&sample);
        report.row(
            format!(
                "{PROCESSES} processes on one key, {order}, {} hand-offs, p50 (floor: round trip)",
                sample.len()
            ),
            format!("{trip:.1?}"),
            format!("{:.1?} ({r:.2} x)", sample.p50()),
            "<= 2.20 x",
            r <= 2.2,
        );
        report.row(
            format!("scripts for a hand-off, {order}"),
            "",
            format!("{each:.1}"),
            format!("<= {most:.0}"),
            each <= most,
        );
        ours.push(sample.p50());
    }
    let sample = hand_offs(rt.block_on(inside(&proxy.address(), seconds)));
    let r = trips(&sample);
    report.row(
        format!(
            "{PROCESSES} tasks of one process on one key, {} hand-offs, p50",
            sample.len()
        ),
        format!("{trip:.1?}"),
        format!("{:.1?} ({r:.2} x)", sample.p50()),
        "<= 1.10 x",
        r <= 1.1,
    );
    let mut others = vec![(
        "a poller of 50 ms",
        ours[0],
        processes("poll", seconds, &proxy.address()),
    )];
    if let Some(redisson) = peers.redisson() {
        for (name, fair, ours) in [("Redisson", false, ours[0]), ("Redisson, fair", true, ours[1])] {
            others.push((
                name,
                ours,
                contend(redisson, &proxy.address(), PROCESSES, seconds, fair),
            ));
        }
    }
    for (name, ours, turns) in others {
        let sample = hand_offs(turns);
        report.row(
            format!(
                "hand-off p50 of {PROCESSES} clients (floor: {name}, {} hand-offs)",
                sample.len()
            ),
            format!("{:.1?}", sample.p50()),
            format!("{ours:.1?}"),
            "ahead",
            ours <= sample.p50() || sample.len() == 0,
        );
    }
}

async fn round_trip(address: &str) -> Duration {
    let mut connection = connect(&format!("redis://{address}/")).await;
    let mut sample = Sample::default();
    for _ in 0..50 {
        let start = Instant::now();
        let _: String = good(redis::cmd("PING").query_async(&mut connection).await);
        sample.push(start.elapsed());
    }
    sample.p50()
}

fn processes(order: &str, seconds: u64, address: &str) -> Vec<Turn> {
    let role = format!("{order} {seconds} {address}");
    let mut helpers: Vec<Helper> = (0..PROCESSES)
        .map(|_| Helper::start("redis-turns", Path::new(&role)))
        .collect();
    for helper in &mut helpers {
        assert_eq!(helper.line(), "ready", "a process did not start");
    }
    for helper in &mut helpers {
        good(helper.tell("go"));
    }
    let mut turns = Vec::new();
    for (of, helper) in (0..).zip(&mut helpers) {
        loop {
            let line = helper.line();
            let Some((granted, left)) = line.split_once(' ') else {
                break;
            };
            turns.push(Turn {
                of,
                granted: good(granted.parse()),
                left: good(left.parse()),
            });
        }
    }
    turns
}

/// The role of one process: `<any|fifo|poll> <seconds> <address>`.
#[allow(clippy::print_stdout, reason = "the parent reads it")]
pub(crate) fn take_turns(role: &str) {
    let words: Vec<&str> = role.split(' ').collect();
    let [order, seconds, address] = words[..] else {
        panic!("not a role: {role}")
    };
    let time = Duration::from_secs(good(seconds.parse()));
    let url = format!("redis://{address}/");
    let turns = runtime().block_on(async {
        match order {
            "poll" => poll(&url, time).await,
            _ => ours(&url, order, time).await,
        }
    });
    let mut text = String::new();
    for turn in turns {
        text.push_str(&format!("{} {}\n", turn.granted, turn.left));
    }
    println!("{text}end");
}

/// Tells the parent that all is set up, and waits for its word.
#[allow(clippy::print_stdout, reason = "the parent reads it")]
fn ready() {
    println!("ready");
    let _ = std::io::stdout().flush();
    let _ = std::io::stdin().read_line(&mut String::new());
}

async fn ours(url: &str, order: &str, time: Duration) -> Vec<Turn> {
    let locks = good(Locks::connect(url).await);
    let order = if order == "fifo" { Order::Fifo } else { Order::Any };
    ready();
    turns(&locks, order, time, 0).await
}

async fn turns(locks: &Locks, order: Order, time: Duration, of: u64) -> Vec<Turn> {
    let end = Instant::now() + time;
    let mut turns = Vec::new();
    while Instant::now() < end {
        let guard = good(locks.mutex(KEY).order(order).acquire().await);
        let granted = now();
        turns.push(Turn {
            of,
            granted,
            left: now(),
        });
        drop(guard.release().await);
    }
    turns
}

async fn inside(address: &str, seconds: u64) -> Vec<Turn> {
    let locks = good(Locks::connect(&format!("redis://{address}/")).await);
    let time = Duration::from_secs(seconds);
    let all = (0..PROCESSES as u64).map(|of| turns(&locks, Order::Any, time, of));
    futures_util::future::join_all(all)
        .await
        .into_iter()
        .flatten()
        .collect()
}

/// What people write who do not want to be told: try, sleep, try again.
async fn poll(url: &str, time: Duration) -> Vec<Turn> {
    let mut connection = connect(url).await;
    let owner = std::process::id();
    let compare =
        "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) else return 0 end";
    let take = redis::cmd("SET")
        .arg(KEY)
        .arg(owner)
        .arg("NX")
        .arg("PX")
        .arg(30_000)
        .to_owned();
    let give = redis::cmd("EVAL")
        .arg(compare)
        .arg(1)
        .arg(KEY)
        .arg(owner)
        .to_owned();
    ready();
    let end = Instant::now() + time;
    let mut turns = Vec::new();
    while Instant::now() < end {
        match good(connection.send_packed_command(&take).await) {
            Value::Okay => {
                let granted = now();
                turns.push(Turn {
                    of: 0,
                    granted,
                    left: now(),
                });
                good(connection.send_packed_command(&give).await);
            }
            _ => tokio::time::sleep(POLL).await,
        }
    }
    turns
}
