//! `distlock conformance`: the public suite, against the deployment that a URL names.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use distlock_core::{Error, ErrorKind};
use distlock_testkit::conformance::{Client, Connected, Deployment, Outcome, Report, cases, prove};
use serde_json::json;

use crate::args::{Common, ConformanceArgs};
use crate::cmd::{contact, print_line};
use crate::engine::Engine;
use crate::exit::Exit;

/// Clients of the engine that was chosen.
struct ByUrl {
    engine: Engine,
    /// A short lease that the engine can keep.
    ttl: Duration,
}

#[async_trait]
impl Deployment for ByUrl {
    async fn client(&self) -> Connected {
        let locks = self.engine.connect(Some("conformance")).await?;
        let parts = locks.into_parts();
        let closed = || Error::new(ErrorKind::Closed, "the client has ended");
        let (driver, engine, thread) = parts.ok_or_else(closed)?;
        Ok(Client::new(driver, engine, thread))
    }

    fn ttl(&self) -> Duration {
        self.ttl
    }
}

/// Runs the cases, prints a line for each, and what they say together about each criterion.
pub(crate) fn conformance(common: &Common, args: &ConformanceArgs) -> Exit {
    let common = common.at(args.url.as_deref());
    contact(
        &common,
        |_| Ok(()),
        async |session, locks, ()| {
            let say = &session.say;
            let deployment: Arc<dyn Deployment> = Arc::new(ByUrl {
                engine: session.engine.clone(),
                ttl: Duration::from_secs(1)
                    .clamp(*locks.capabilities().ttl.start(), *locks.capabilities().ttl.end()),
            });
            let mut report = Report::default();
            let wanted = |name: &str| args.only.as_deref().is_none_or(|only| name.contains(only));
            for case in cases().filter(|case| wanted(case.name)) {
                let start = std::time::Instant::now();
                let outcome = prove(&case, deployment.clone()).await;
                let took = start.elapsed();
                let (word, why) = match &outcome {
                    Outcome::Proven => ("ok", None),
                    Outcome::Skipped(why) => ("skipped", Some((*why).to_owned())),
                    Outcome::Failed(why) => ("failed", Some(why.to_string())),
                };
                if say.is_json() {
                    let line = json!({
                        "case": case.name, "criterion": case.criterion.to_string(), "outcome": word, "why": why,
                        "ms": u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
                    });
                    print_line(&line.to_string());
                } else {
                    let why = why.map_or(String::new(), |why| format!(": {why}"));
                    print_line(&format!("{word:8}{}{why}", case.name));
                }
                report.add(case, outcome, took);
            }
            if report.cases.is_empty() {
                let text = format!("no case has {:?} in its name", args.only.as_deref().unwrap_or(""));
                return say.error(Exit::USAGE, text, None);
            }
            if !say.is_json() {
                print_line("");
                for (criterion, verdict) in report.criteria() {
                    print_line(&format!("{criterion:26}{verdict}"));
                }
            }
            if report.failures().next().is_none() {
                Exit::OK
            } else {
                Exit::FINDINGS
            }
        },
    )
}
