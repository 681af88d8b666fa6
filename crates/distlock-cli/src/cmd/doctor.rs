//! `distlock doctor`: settings and troubles that endanger locks.

use distlock_core::driver::{Finding, Promises, Severity};
use distlock_core::{Error, ErrorKind, Key};
use serde_json::json;

use crate::args::Common;
use crate::cmd::{contact, print_line};
use crate::exit::Exit;
use crate::say::Say;

/// Takes and releases a lock of its own, and asks the engine about itself.
pub(crate) fn doctor(common: &Common) -> Exit {
    contact(
        common,
        |_| Ok(()),
        async |session, locks, ()| {
            let say = &session.say;
            let url = session.engine.public_url(&locks);
            let started = std::time::Instant::now();
            let worked = match round_trip(&locks).await {
                Ok(()) => started.elapsed(),
                Err(e) => return say.failure(&e, Exit::of(&e)),
            };
            let findings = match locks.doctor().await {
                Ok(findings) => findings,
                Err(e) if e.kind() == ErrorKind::Unsupported => Vec::new(),
                Err(e) => return say.failure(&e, Exit::of(&e)),
            };
            report(say, &url, locks.capabilities(), worked, &findings);
            let bad = findings.iter().any(|f| f.severity == Severity::Error);
            if bad { Exit::FINDINGS } else { Exit::OK }
        },
    )
}

async fn round_trip(client: &distlock_core::Client) -> Result<(), Error> {
    let key = Key::new(format!("distlock-doctor:{}", uuid::Uuid::new_v4()))?;
    client
        .mutex(&key)
        .wait(distlock_core::Wait::Try)
        .acquire()
        .await?
        .release()
        .await?;
    Ok(())
}

fn report(say: &Say, url: &str, promises: &Promises, worked: std::time::Duration, findings: &[Finding]) {
    if say.is_json() {
        let findings: Vec<_> = findings
            .iter()
            .map(|f| json!({ "severity": f.severity.to_string(), "id": f.id, "what": f.what, "fix": f.fix }))
            .collect();
        let line = json!({
            "engine": url,
            "acquire_and_release_us": u64::try_from(worked.as_micros()).unwrap_or(u64::MAX),
            "findings": findings,
        });
        return print_line(&line.to_string());
    }
    print_line(&format!("engine:              {url}"));
    print_line(&format!("acquire and release: {worked:.1?}"));
    print_line(&format!("fencing tokens:      {}", token_words(promises)));
    print_line(&format!("after a crash:       {}", death_words(promises)));
    for finding in findings {
        print_line(&format!(
            "{} [{}]: {}",
            finding.severity, finding.id, finding.what
        ));
        print_line(&format!("  do: {}", finding.fix));
    }
    if findings.is_empty() {
        print_line("nothing to complain of");
    }
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
