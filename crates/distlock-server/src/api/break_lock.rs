//! Taking a lock away from its holders.

use std::time::Duration;

use axum::Json;
use axum::body::Body;
use distlock_core::FencingToken;
use distlock_core::driver::Break;

use crate::access::Right;
use crate::api::ask::{Ask, Named};
use crate::api::openapi::Problems;
use crate::api::types::{BreakBody, BreakView, HolderView, Time, bad};
use crate::problem::Problem;

/// How long nobody is granted a lock after its holder was told, unless said otherwise.
const GRACE: Duration = Duration::from_secs(5);

/// Take a lock away from its holders.
///
/// They are told within a second; nobody else is granted the lock during the grace. What protects data from a holder
/// that does not listen is the fencing token. Each break is written to the audit log.
#[utoipa::path(post, path = "/v1/locks/{key}/break", operation_id = "break", tag = "locks",
    params(
        ("key" = String, Path, description = "The lock's name, percent-encoded", example = "order:42"),
        ("namespace" = Option<String>, Query, description = "Default: the gateway's"),
    ),
    request_body = BreakBody,
    responses((status = 200, description = "It was taken from these", body = BreakView), Problems))]
pub(crate) async fn break_lock(ask: Ask, Named(key): Named, body: Body) -> Result<Json<BreakView>, Problem> {
    let tenant = ask.tenant(Right::Break).await?;
    let asked: BreakBody = ask.body(body).await?;
    let reason = asked.reason.trim();
    if reason.is_empty() || reason.len() > 1024 {
        return Err(bad(format!("the reason has {} bytes; it has 1 to 1024", reason.len())).into());
    }
    let how = Break {
        expect: asked.expect_token.map(FencingToken::new),
        grace: asked.grace.map_or(GRACE, |Time(grace)| grace),
        reason: Some(reason.to_owned()),
    };
    let (who, namespace) = (&ask.caller.who.name, tenant.namespace());
    let ended = ask.within(tenant.client.break_lock(&key, how)).await;
    let broken: Vec<HolderView> = match ended {
        Ok(holders) => holders.iter().map(|h| HolderView::new(h, ask.client)).collect(),
        Err(problem) => {
            let why = Err(problem.body.detail.as_str());
            ask.gateway.audit.note(who, namespace, key.as_str(), reason, why);
            return Err(problem);
        }
    };
    ask.gateway
        .audit
        .note(who, namespace, key.as_str(), reason, Ok(&broken));
    for holder in &broken {
        let (label, why) = (holder.label.clone(), Some(reason.to_owned()));
        let by = Some(who.clone());
        ask.gateway
            .chronicle
            .event(namespace, "broken", key.as_str(), label, why, by);
    }
    Ok(Json(BreakView { broken }))
}
