//! What the doctor finds through a gateway: of the engine behind it, and of the gateways themselves.

use std::time::Duration;

use distlock::Locks;
use distlock::driver::Severity;
use distlock_testkit::servers::{Redis, or_skip};

use crate::gateway::Gateway;

async fn found(url: &str) -> Vec<(String, Severity)> {
    let locks = Locks::connect(url).await.unwrap();
    let findings = locks.doctor().await.unwrap();
    assert!(locks.shutdown(Duration::from_secs(10)).await);
    let serious = findings.into_iter().filter(|f| f.severity > Severity::Info);
    serious.map(|f| (f.id.into_owned(), f.severity)).collect()
}

fn ids(found: &[(String, Severity)]) -> Vec<(&str, Severity)> {
    found.iter().map(|(id, severity)| (&**id, *severity)).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_good_service_is_not_complained_of_and_the_engine_is_examined_through_it() {
    let Some(server) = or_skip(Redis::options().durable().start().await) else {
        return;
    };
    let name = |config: &mut distlock_server::Config| config.engine = "redis://one".into();
    let (a, b) = (
        Gateway::with(&server.url(), name).await,
        Gateway::with(&server.url(), name).await,
    );
    let both = format!("{},{}", a.url(), b.at);
    assert_eq!(found(&both).await, []);
    let set = ["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"];
    server.command(&set).await.unwrap();
    assert_eq!(ids(&found(&both).await), [("redis-eviction", Severity::Warning)]);
    b.stop().await;
    assert_eq!(
        ids(&found(&both).await),
        [
            ("redis-eviction", Severity::Warning),
            ("http-gateway", Severity::Warning)
        ]
    );
    a.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gateways_that_do_not_stand_on_one_engine_are_found() {
    let dir = tempfile::tempdir().unwrap();
    let file = |n: usize| format!("file://{}/{n}", dir.path().display());
    let on = async |engine: String| Gateway::with(&engine, |config| config.engine = engine.clone()).await;
    let (one, two) = (on(file(1)).await, on(file(2)).await);
    let (memory, another) = (on("memory:".into()).await, on("memory:".into()).await);
    let pairs = [
        (&one, &two, Severity::Warning),
        (&one, &memory, Severity::Error),
        (&memory, &another, Severity::Error),
    ];
    for (a, b, severity) in pairs {
        let found = found(&format!("{},{}", a.url(), b.at)).await;
        let of_gateways: Vec<_> = ids(&found)
            .into_iter()
            .filter(|(id, _)| id.starts_with("http"))
            .collect();
        assert_eq!(of_gateways, [("http-engines", severity)]);
    }
    for gateway in [one, two, memory, another] {
        gateway.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locks_that_end_with_a_gateway_are_told_of() {
    use distlock_testkit::servers::ZooKeeper;
    let Some(server) = or_skip(ZooKeeper::start(1).await) else {
        return;
    };
    let url = server.url();
    let (a, b) = (Gateway::on(&url).await, Gateway::on(&url).await);
    let found = found(&format!("{},{}", a.url(), b.at)).await;
    assert!(
        ids(&found).contains(&("http-bound-to-gateway", Severity::Warning)),
        "{found:?}"
    );
    a.stop().await;
    b.stop().await;
}
