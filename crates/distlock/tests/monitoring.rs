//! What is reported is what the dashboard, the alert rules and the guide ask for, and nothing else exists.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use distlock::driver::Break;
use distlock::observe::METRICS;
use distlock::{Locks, Prometheus, Survey};

/// Who takes locks here. `tracing` asks the subscribers once whether they want a span, at its first use in the process:
/// a thread without one must not come first while another is setting up its own.
static LOCKS: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

fn read(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// The names of metrics in a text, histograms without their suffixes.
fn names(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let ours = words.filter(|word| word.starts_with("distlock_"));
    ours.map(|name| {
        let histogram = ["_bucket", "_sum", "_count"]
            .iter()
            .find_map(|s| name.strip_suffix(s));
        histogram.unwrap_or(name).to_owned()
    })
    .collect()
}

/// The metrics of runs, which the command writes to a file; its own tests see each of them.
fn of_runs(name: &str) -> bool {
    name.starts_with("distlock_run_")
}

async fn until(what: &str, mut done: impl AsyncFnMut() -> bool) {
    let waiting = async {
        while !done().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), waiting)
        .await
        .expect(what);
}

/// Lets each metric be reported once.
async fn live(locks: &Locks, metrics: &Prometheus) {
    let held = locks
        .mutex("order:1")
        .expect(Duration::from_millis(1))
        .acquire()
        .await
        .unwrap();
    let waiter = tokio::spawn({
        let lock = locks.mutex("order:1");
        async move { lock.acquire().await.unwrap() }
    });
    until("a waiter", async || {
        metrics.render().contains("distlock_waiting{engine=\"memory\"} 1")
    })
    .await;
    held.verify().await.unwrap();
    held.release().await.unwrap();
    let second = waiter.await.unwrap();
    let lost = second.lost();
    locks.break_lock("order:1", Break::default()).await.unwrap();
    lost.await;
    drop(second);
    drop(
        locks
            .mutex("order:2")
            .ttl(Duration::from_millis(50))
            .acquire()
            .await
            .unwrap(),
    );
}

#[tokio::test]
async fn dashboard_rules_and_guide_name_the_metrics_that_exist() {
    let _alone = LOCKS.lock().await;
    let metrics = Prometheus::install().unwrap();
    assert!(Prometheus::install().is_err(), "there is one already");
    let survey = Survey::new();
    let locks = Locks::builder().survey(&survey).connect("memory:").await.unwrap();
    live(&locks, &metrics).await;
    let renewed = locks
        .mutex("order:3")
        .ttl(Duration::from_millis(60))
        .acquire()
        .await
        .unwrap();
    until("all metrics", async || {
        let seen = names(&metrics.render());
        METRICS.iter().all(|(name, _)| seen.contains(*name))
    })
    .await;
    renewed.release().await.unwrap();

    let exist: BTreeSet<String> = METRICS.iter().map(|(name, _)| (*name).to_owned()).collect();
    let reported: BTreeSet<_> = names(&metrics.render()).into_iter().collect();
    assert_eq!(reported, exist, "METRICS is what is reported");
    for (file, all) in [
        ("deploy/monitoring/alerts.yml", false),
        ("deploy/monitoring/grafana.json", true),
        ("docs/guide/monitoring.md", true),
        ("crates/distlock-core/src/observe.rs", true),
    ] {
        let named: BTreeSet<_> = names(&read(file))
            .into_iter()
            .filter(|name| !of_runs(name))
            .collect();
        let unknown: Vec<_> = named.difference(&exist).collect();
        assert!(unknown.is_empty(), "{file} names {unknown:?}");
        let missing: Vec<_> = exist.difference(&named).collect();
        assert!(!all || missing.is_empty(), "{file} lacks {missing:?}");
    }
    let report = survey.report();
    assert_eq!((report.len(), report[0].pattern.as_str()), (1, "order:*"));
}

#[tokio::test]
async fn traces_tell_the_wait_and_the_work_and_nothing_of_others() {
    use opentelemetry::Key;
    use opentelemetry::trace::TracerProvider;
    use opentelemetry_sdk::trace::{InMemorySpanExporter, SdkTracerProvider};
    use tracing_subscriber::prelude::*;

    let _alone = LOCKS.lock().await;
    let exporter = InMemorySpanExporter::default();
    let provider = SdkTracerProvider::builder()
        .with_simple_exporter(exporter.clone())
        .build();
    let traces = distlock::opentelemetry(provider.tracer("shop"));
    let _here = tracing_subscriber::registry().with(traces).set_default();
    let locks = Locks::connect("memory:").await.unwrap();
    let held = locks.mutex("traced").acquire().await.unwrap();
    held.release().await.unwrap();
    let work = async |held: distlock::Held| {
        tracing::info_span!("of the program").in_scope(|| ());
        Ok::<_, ()>(held.token().unwrap())
    };
    let token = locks.mutex("traced").run(work).await.unwrap();
    provider.force_flush().unwrap();
    let spans = exporter.get_finished_spans().unwrap();
    let value = |span: usize, name: &'static str| {
        let found = spans[span]
            .attributes
            .iter()
            .find(|a| a.key == Key::from_static_str(name));
        found.map(|a| a.value.to_string())
    };
    let names: Vec<_> = spans.iter().map(|span| span.name.as_ref()).collect();
    assert_eq!(names, ["acquire", "acquire", "run"]);
    assert_eq!(value(0, "engine").as_deref(), Some("memory"));
    assert!(
        (0..3).all(|span| value(span, "key").as_deref() == Some("traced")),
        "{spans:?}"
    );
    assert_eq!(value(2, "token"), Some(token.to_string()));
}

#[test]
fn every_panel_and_every_rule_has_what_it_needs() {
    let dashboard: serde_json::Value = serde_json::from_str(&read("deploy/monitoring/grafana.json")).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    for panel in panels {
        let exprs = panel["targets"].as_array().unwrap();
        let balanced = |e: &str| e.matches('(').count() == e.matches(')').count();
        assert!(
            !exprs.is_empty() && exprs.iter().all(|t| balanced(t["expr"].as_str().unwrap())),
            "{panel}"
        );
        assert!(
            panel["title"].is_string() && panel["description"].is_string(),
            "{panel}"
        );
    }
    let rules = read("deploy/monitoring/alerts.yml");
    let alerts: Vec<_> = rules.split("- alert: ").skip(1).collect();
    assert!(alerts.len() >= 6);
    let guide = read("docs/guide/monitoring.md");
    for alert in alerts {
        let name = alert.lines().next().unwrap();
        assert!(guide.contains(name), "the guide does not say what {name} means");
        for part in ["expr:", "severity:", "summary:"] {
            assert!(alert.contains(part), "{name} has no {part}");
        }
    }
}
