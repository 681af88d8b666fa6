//! The table of the engines in the guide says what the engines promise.

use std::path::Path;
use std::time::Duration;

use distlock::driver::{Death, Loss, Orders, Promises, TokenPromise, Wakes};

fn yes(yes: bool) -> &'static str {
    if yes { "yes" } else { "no" }
}

fn time(d: Duration) -> String {
    match d.as_secs() {
        0 => format!("{} ms", d.as_millis()),
        s if s >= 86_400 => format!("{} days", s / 86_400),
        s => format!("{s} s"),
    }
}

fn row(p: &Promises) -> String {
    let order = match p.order {
        Orders::Any => "any",
        Orders::AnyOrFifo => "any or FIFO",
        Orders::AlwaysFifo => "always FIFO",
    };
    let tokens = match p.token {
        TokenPromise::None => "none".to_owned(),
        TokenPromise::BestEffort { unless } => format!("grow unless {unless}"),
        TokenPromise::Durable => "durable".to_owned(),
    };
    let wakes = match p.wakes {
        Wakes::Notified => "by a notice",
        Wakes::Paced => "by asking",
    };
    let loss = match p.loss {
        Loss::BeforeRegrant => "before anybody else is granted",
        Loss::OnNotice => "on notice",
    };
    let death = match p.death {
        Death::AtOnce => "free at once",
        Death::AtTtl => "free at its TTL",
    };
    let ttl = format!("{} to {}", time(*p.ttl.start()), time(*p.ttl.end()));
    let (rw, slots, leases, keep) = (yes(p.shared), yes(p.slots), yes(p.lease_records), yes(p.keep));
    format!(
        "| {} | {order} | {rw} | {slots} | {tokens} | {wakes} | {loss} | {death} | {ttl} | {leases} | {keep} |",
        p.engine
    )
}

/// A service promises what the engine behind it does, and has no row.
const ROWS: [&str; 9] = [
    "memory",
    "file",
    "redis",
    "redis-cluster",
    "redlock",
    "postgres",
    "mysql",
    "etcd",
    "zookeeper",
];

/// Fails when the guide says something else than the engine promises. `DISTLOCK_UPDATE_DOCS=1` writes it down.
pub(crate) fn check(p: &Promises) {
    if !ROWS.contains(&p.engine) {
        return;
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide/which-engine.md");
    let guide = std::fs::read_to_string(&path).unwrap();
    let (row, start) = (row(p), format!("| {} | ", p.engine));
    if guide.lines().any(|line| line == row) {
        return;
    }
    assert!(
        std::env::var_os("DISTLOCK_UPDATE_DOCS").is_some(),
        "the table in docs/guide/which-engine.md is stale; DISTLOCK_UPDATE_DOCS=1 writes\n{row}"
    );
    let mut lines: Vec<&str> = guide.lines().collect();
    match lines.iter().position(|line| line.starts_with(&start)) {
        Some(at) => lines[at] = &row,
        None => lines.push(&row),
    }
    std::fs::write(&path, lines.join("\n") + "\n").unwrap();
}
