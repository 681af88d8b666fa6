//! `distlock doctor`: settings and troubles that endanger locks.

use std::time::Duration;

use distlock::Locks;
use distlock_core::doctor::{self, Finding, Probe, Severity, Spread};
use distlock_core::driver::Promises;
use distlock_core::{Error, ErrorKind};
use serde_json::{Value, json};

use crate::args::{Common, DoctorArgs};
use crate::cmd::{contact, print_line};
use crate::engine::GOODBYE;
use crate::exit::Exit;
use crate::say::Say;
use crate::settings::Session;

/// Uses the engine with two clients, and asks it about itself.
pub(crate) fn doctor(common: &Common, args: &DoctorArgs) -> Exit {
    let common = common.at(args.url.as_deref());
    contact(
        &common,
        |_| Ok(()),
        async |session, locks, ()| {
            let say = &session.say;
            let url = session.engine.public_url(&locks);
            let (probe, findings) = match examine(session, &locks).await {
                Ok(seen) => seen,
                Err(e) => return say.failure(&e, Exit::of(&e)),
            };
            report(say, &url, locks.capabilities(), &probe, &findings);
            let from = if args.strict {
                Severity::Warning
            } else {
                Severity::Error
            };
            if findings.iter().any(|f| f.severity >= from) {
                Exit::FINDINGS
            } else {
                Exit::OK
            }
        },
    )
}

async fn examine(session: &Session, locks: &Locks) -> Result<(Probe, Vec<Finding>), Error> {
    let other = session.engine.connect(session.config.label.as_deref()).await?;
    let probe = doctor::probe(locks, &other).await;
    other.shutdown(GOODBYE).await;
    let probe = probe?;
    let mut findings = match locks.doctor().await {
        Ok(findings) => findings,
        Err(e) if e.kind() == ErrorKind::Unsupported => Vec::new(),
        Err(e) => return Err(e),
    };
    findings.extend(probe.findings.iter().cloned());
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
    Ok((probe, findings))
}

fn report(say: &Say, url: &str, promises: &Promises, probe: &Probe, findings: &[Finding]) {
    if say.is_json() {
        return print_line(&machine(url, probe, findings).to_string());
    }
    let times = |s: Spread| format!("{:.1?} (worst {:.1?})", s.typical, s.worst);
    print_line(&format!("engine          {url}"));
    print_line(&format!("acquire         {}", times(probe.acquire)));
    print_line(&format!("renew           {}", times(probe.renew)));
    print_line(&format!("release         {}", times(probe.release)));
    let hand_off = match probe.hand_off {
        Some(took) => format!("{took:.1?} from a release to the next client"),
        None => format!("none within {:?}", doctor::HAND_OFF_LIMIT),
    };
    print_line(&format!("hand-off        {hand_off}"));
    if let Some(offset) = probe.clock {
        print_line(&format!("engine's clock  {offset}"));
    }
    print_line(&format!("fencing tokens  {}", token_words(promises)));
    print_line(&format!("after a crash   {}", death_words(promises)));
    for finding in findings {
        print_line(&format!(
            "{:7} [{}] {}",
            finding.severity, finding.id, finding.what
        ));
        print_line(&format!("        do: {}", finding.fix));
    }
    if findings.is_empty() {
        print_line("nothing to complain of");
    }
}

fn machine(url: &str, probe: &Probe, findings: &[Finding]) -> Value {
    let micros = |d: Duration| u64::try_from(d.as_micros()).unwrap_or(u64::MAX);
    let spread = |s: Spread| json!({ "typical_us": micros(s.typical), "worst_us": micros(s.worst) });
    let findings: Vec<_> = findings
        .iter()
        .map(|f| json!({ "severity": f.severity.to_string(), "id": f.id, "what": f.what, "fix": f.fix }))
        .collect();
    json!({
        "engine": url,
        "acquire": spread(probe.acquire),
        "renew": spread(probe.renew),
        "release": spread(probe.release),
        "hand_off_us": probe.hand_off.map(micros),
        "engine_clock": probe.clock.map(|c| json!({
            "ahead": c.ahead, "by_us": micros(c.by), "within_us": micros(c.within),
        })),
        "findings": findings,
    })
}

fn token_words(promises: &Promises) -> String {
    use distlock_core::driver::TokenPromise;
    match promises.token {
        TokenPromise::None => "none".into(),
        TokenPromise::BestEffort { unless } => format!("grow, unless {unless}"),
        TokenPromise::Durable => "always grow".into(),
    }
}

fn death_words(promises: &Promises) -> &'static str {
    use distlock_core::driver::Death;
    match promises.death {
        Death::AtOnce => "the lock is free at once",
        Death::AtTtl => "the lock is free when its lease has run out",
    }
}
