//! Servers that all cases of this program share, and clients of Redlock.

use std::time::Duration;

use distlock_core::Client;
use distlock_redis::{Config, Redlock, UrlParts};
use distlock_testkit::servers::Redis;

pub(crate) const MS: Duration = Duration::from_millis(1);

/// Starts servers on a thread of their own: the cases have runtimes already.
pub(crate) fn started<T: Send + 'static>(
    start: impl FnOnce(tokio::runtime::Runtime) -> T + Send + 'static,
) -> T {
    let runtime = || {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap()
    };
    std::thread::spawn(move || start(runtime())).join().unwrap()
}

/// `host:port` of each node, as a Redlock.
pub(crate) fn redlock(nodes: &[String], parameters: &[(&str, &str)]) -> Redlock {
    let hosts = hosts(nodes);
    let url = UrlParts {
        scheme: "redlock",
        hosts: &hosts,
        ..UrlParts::default()
    };
    let mut redlock = Redlock::from_url(&url).unwrap();
    for (name, value) in parameters {
        redlock.set(name, value).unwrap();
    }
    redlock
}

/// A cluster that these nodes belong to.
pub(crate) fn cluster(nodes: &[String], parameters: &[(&str, &str)]) -> Config {
    let hosts = hosts(nodes);
    let url = UrlParts {
        scheme: "redis+cluster",
        hosts: &hosts,
        ..UrlParts::default()
    };
    let mut config = Config::from_url(&url).unwrap();
    for (name, value) in parameters {
        config.set(name, value).unwrap();
    }
    config
}

pub(crate) fn hosts(nodes: &[String]) -> Vec<(&str, Option<u16>)> {
    nodes
        .iter()
        .map(|node| node.rsplit_once(':').unwrap())
        .map(|(host, port)| (host, port.parse().ok()))
        .collect()
}

/// A client as users have it.
pub(crate) async fn client(redlock: Redlock) -> Client {
    let open = move |engine| async move { distlock_redis::open_redlock(engine, redlock).await };
    Client::builder().build(open).await.unwrap()
}

/// Asks until it is true; fails after 10 s.
pub(crate) async fn until(what: &str, mut look: impl AsyncFnMut() -> bool) {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(10);
    while !look().await {
        assert!(tokio::time::Instant::now() < deadline, "not within 10 s: {what}");
        tokio::time::sleep(10 * MS).await;
    }
}

/// How often this was called on all nodes, in scripts too.
pub(crate) async fn calls(nodes: &[Redis], command: &str) -> u64 {
    let start = format!("cmdstat_{command}:calls=");
    let mut sum = 0;
    for node in nodes {
        let stats = node.command(&["INFO", "commandstats"]).await.unwrap();
        let mut lines = stats.text().unwrap().lines();
        let line = lines
            .find_map(|line| line.strip_prefix(start.as_str()))
            .unwrap_or("0");
        sum += line.split(',').next().unwrap().parse::<u64>().unwrap();
    }
    sum
}
