//! Benchmarks: a floor, distlock and its peers, side by side in one run.
//!
//! Machines are shared and noisy: every figure is a median of interleaved rounds, and what counts is the ratio to
//! the floor measured in the same rounds.
#![forbid(unsafe_code)]

mod children;
mod command;
mod core;
mod etcd;
mod file;
mod line;
mod peer;
mod redis;
mod report;
mod sample;
mod service;
mod sql;
mod zookeeper;

use clap::Parser;

const PARTS: [&str; 11] = [
    "core",
    "file",
    "command",
    "redis",
    "redis-cluster",
    "redlock",
    "mysql",
    "postgres",
    "etcd",
    "zookeeper",
    "service",
];

/// Prints the tables of these parts: `core`, `file`, `command`, `redis`, `redis-cluster`, `redlock`, `mysql`,
/// `postgres`, `etcd`, `zookeeper`, `service`.
#[derive(Debug, Parser)]
struct Arguments {
    /// What to measure.
    #[arg(default_values_t = PARTS.map(String::from))]
    parts: Vec<String>,
    /// Shorter rounds, for a first look.
    #[arg(long)]
    quick: bool,
    #[command(flatten)]
    peers: peer::PeerPrograms,
}

#[allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a table on the terminal is the purpose"
)]
fn main() {
    if children::is_child() {
        children::run();
        return;
    }
    let arguments = Arguments::parse();
    let mut red = 0;
    for part in &arguments.parts {
        let report = match part.as_str() {
            "core" | "memory" => core::measure(arguments.quick),
            "file" => file::measure(arguments.quick),
            "command" => command::measure(arguments.quick),
            "redis" => redis::measure(arguments.quick, &arguments.peers),
            "redis-cluster" => redis::cluster::measure(arguments.quick),
            "redlock" => redis::redlock::measure(arguments.quick, &arguments.peers),
            "mysql" => sql::measure(sql::Dialect::Mysql, arguments.quick, &arguments.peers),
            "postgres" => sql::measure(sql::Dialect::Postgres, arguments.quick, &arguments.peers),
            "etcd" => etcd::measure(arguments.quick),
            "zookeeper" => zookeeper::measure(arguments.quick),
            "service" => service::measure(arguments.quick),
            other => {
                eprintln!("unknown part {other}: {}", PARTS.join(", "));
                std::process::exit(64);
            }
        };
        red += report.red();
        println!("{report}");
    }
    println!("{red} rows missed their figure");
}
