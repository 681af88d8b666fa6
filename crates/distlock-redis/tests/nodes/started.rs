//! Servers that all cases of this program share.

use distlock_redis::{Redlock, UrlParts};

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
    let hosts: Vec<(&str, Option<u16>)> = nodes
        .iter()
        .map(|node| node.rsplit_once(':').unwrap())
        .map(|(host, port)| (host, port.parse().ok()))
        .collect();
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
