//! What is wrong with the way to the engine: the gateways, and how they are spoken to. What the engine itself has to say
//! is asked of a gateway.

use distlock_core::driver::{DriverError, Finding, Severity};

use crate::wire::EngineView;

/// What the gateways stand on, each with its address, judged together.
pub(crate) fn examine(
    gateways: &[(&str, Result<EngineView, DriverError>)],
    shows_token: bool,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut found = |severity, id: &'static str, what: String, fix: &str| {
        findings.push(Finding::new(severity, id, what, fix));
    };
    for (base, failure) in gateways
        .iter()
        .filter_map(|(base, view)| Some((base, view.as_ref().err()?)))
    {
        let fix = "start it, or take it out of the URL: each new client may ask it first";
        let what = format!("{base} does not serve requests: {failure}");
        found(Severity::Warning, "http-gateway", what, fix);
    }
    let views: Vec<_> = gateways
        .iter()
        .filter_map(|(base, view)| Some((base, view.as_ref().ok()?)))
        .collect();
    if let Some(((one, first), (other, view))) = views.first().and_then(|first| {
        let differs = views.iter().find(|(_, view)| view.engine != first.1.engine)?;
        Some((*first, *differs))
    }) {
        let same_kind = view.promises.name == first.promises.name;
        // The same servers may have several names.
        let severity = if same_kind {
            Severity::Warning
        } else {
            Severity::Error
        };
        let what = format!(
            "{one} stands on {}, {other} on {}: a lock of one does not exclude the other's",
            first.engine, view.engine
        );
        let fix = "start all gateways with the same --url";
        found(severity, "http-engines", what, fix);
    } else if let [(one, first), .., (other, _)] = views[..]
        && first.promises.name == "memory"
    {
        let what =
            format!("{one} and {other} each have a memory of their own: they do not exclude each other");
        let fix = "start all gateways with the --url of an engine that they share";
        found(Severity::Error, "http-engines", what, fix);
    }
    if gateways.len() > 1 && views.iter().any(|(_, view)| view.bound_to_gateway) {
        let what = "the engine binds a lock to the gateway that granted it: when that gateway ends, its locks do, and no \
                    other one can renew them";
        let fix = "an engine whose leases are records (redis, postgres, mysql, etcd), or holders that can lose their locks";
        found(Severity::Warning, "http-bound-to-gateway", what.into(), fix);
    }
    if shows_token {
        let what = "the token goes over the network unencrypted: whoever reads it may take and break locks";
        found(
            Severity::Error,
            "http-token-in-clear",
            what.into(),
            "https://, and TLS at the gateway",
        );
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_in_the_clear_is_found() {
        let found = |shows_token| examine(&[], shows_token);
        assert_eq!(found(false), []);
        assert_eq!(found(true)[0].id, "http-token-in-clear");
    }
}
