//! Renewing leases.

use std::time::Duration;

use axum::Json;
use axum::body::Body;
use distlock_core::{Error, ErrorKind, Key, Lease};

use crate::access::Right;
use crate::api::ask::{Ask, Named};
use crate::api::openapi::Problems;
use crate::api::types::{
    ExtendBody, Granted, LeaseView, RenewAllBody, RenewAllView, RenewBody, Renewed, Time, bad,
};
use crate::bound::Bound;
use crate::problem::Problem;
use crate::tenants::Tenant;

/// How many leases one request may renew.
const TOGETHER: usize = 256;

/// A handle, and another length of the lease from now on.
type Asked = (String, Option<Duration>);

/// Renew a lease for its TTL, counted from now.
#[utoipa::path(post, path = "/v1/locks/{key}/renew", operation_id = "renew", tag = "leases",
    params(
        ("key" = String, Path, description = "The lock's name, percent-encoded", example = "order:42"),
        ("namespace" = Option<String>, Query, description = "Default: the gateway's"),
    ),
    request_body = RenewBody,
    responses((status = 200, description = "It is held", body = LeaseView), Problems))]
pub(crate) async fn renew_one(ask: Ask, Named(key): Named, body: Body) -> Result<Json<LeaseView>, Problem> {
    let tenant = ask.tenant(Right::Acquire).await?;
    let asked: RenewBody = ask.body(body).await?;
    one(&ask, &tenant, &key, (asked.handle, None)).await
}

/// Make a lease end this long from now, and renew it for that long later on.
#[utoipa::path(post, path = "/v1/locks/{key}/extend", operation_id = "extend", tag = "leases",
    params(
        ("key" = String, Path, description = "The lock's name, percent-encoded", example = "order:42"),
        ("namespace" = Option<String>, Query, description = "Default: the gateway's"),
    ),
    request_body = ExtendBody,
    responses((status = 200, description = "It is held; the handle is a new one", body = LeaseView), Problems))]
pub(crate) async fn extend(ask: Ask, Named(key): Named, body: Body) -> Result<Json<LeaseView>, Problem> {
    let tenant = ask.tenant(Right::Acquire).await?;
    let asked: ExtendBody = ask.body(body).await?;
    let Time(ttl) = asked.ttl;
    one(&ask, &tenant, &key, (asked.handle, Some(ttl))).await
}

/// Renew several leases in one round trip.
#[utoipa::path(post, path = "/v1/renew", operation_id = "renew_all", tag = "leases",
    params(("namespace" = Option<String>, Query, description = "Default: the gateway's")),
    request_body = RenewAllBody,
    responses((status = 200, description = "An answer for each", body = RenewAllView), Problems))]
pub(crate) async fn renew_all(ask: Ask, body: Body) -> Result<Json<RenewAllView>, Problem> {
    let tenant = ask.tenant(Right::Acquire).await?;
    let asked: RenewAllBody = ask.body(body).await?;
    if asked.leases.len() > TOGETHER {
        let why = format!(
            "{} leases are named; at most {TOGETHER} are renewed together",
            asked.leases.len()
        );
        return Err(bad(why).into());
    }
    let received = tenant.client.clock().now();
    let asked = asked
        .leases
        .into_iter()
        .map(|part| (part.handle, part.ttl.map(|Time(ttl)| ttl)));
    let answers = renew(&ask, &tenant, asked.collect()).await;
    let now = tenant.client.clock().now();
    let renewed = answers.into_iter().map(|answer| match answer {
        Ok(granted) => Renewed::Lease(granted.view(received, now)),
        Err(problem) => Renewed::Problem(problem.body),
    });
    Ok(Json(RenewAllView {
        renewed: renewed.collect(),
    }))
}

async fn one(ask: &Ask, tenant: &Tenant, key: &Key, asked: Asked) -> Result<Json<LeaseView>, Problem> {
    let received = tenant.client.clock().now();
    is_of(ask, &asked.0, key)?;
    let answer = renew(ask, tenant, vec![asked]).await.pop();
    let granted = answer.unwrap_or_else(|| Err(Problem::closing()))?;
    Ok(Json(granted.view(received, tenant.client.clock().now())))
}

/// Whether a handle is of this key.
pub(crate) fn is_of(ask: &Ask, handle: &str, key: &Key) -> Result<(), Problem> {
    let of = match Bound::is_handle(handle) {
        true => ask.gateway.bound.key(handle)?,
        false => handle.parse::<Lease>()?.key().clone(),
    };
    if of == *key {
        return Ok(());
    }
    Err(Problem::malformed(format!(
        "the handle is of the key {of:?}, not {key:?}"
    )))
}

/// Renews these; the answers are in the same order.
pub(crate) async fn renew(ask: &Ask, tenant: &Tenant, asked: Vec<Asked>) -> Vec<Result<Granted, Problem>> {
    let mut answers: Vec<Option<Result<Granted, Problem>>> = Vec::with_capacity(asked.len());
    let mut leases = Vec::new();
    for (handle, ttl) in &asked {
        answers.push(if Bound::is_handle(handle) {
            let renewed = ask.gateway.bound.renew(tenant.namespace(), handle, *ttl);
            Some(ask.within(renewed).await)
        } else {
            match handle.parse::<Lease>() {
                Ok(lease) => {
                    let ttl = ttl.unwrap_or(lease.ttl());
                    leases.push(lease.with_ttl(ttl));
                    None
                }
                Err(e) => Some(Err(e.into())),
            }
        });
    }
    let now = tenant.client.clock().now();
    let renewed = async { Ok(tenant.client.renew_leases(&leases).await) };
    let renewed = match ask.within(renewed).await {
        Ok(renewed) => renewed,
        Err(late) => {
            let late = |_: &Lease| Error::new(ErrorKind::OutcomeUnknown, late.body.detail.clone());
            leases.iter().map(late).map(Err).collect()
        }
    };
    let mut renewed = leases.into_iter().zip(renewed);
    asked
        .into_iter()
        .zip(answers)
        .map(|((handle, _), answer)| match answer {
            Some(answer) => answer,
            None => match renewed.next() {
                Some((lease, Ok(left))) => {
                    // Counted from before the renewal: never more than what is left.
                    let granted = Granted::of(&lease, now + left);
                    ask.gateway.chronicle.renewed(tenant.namespace(), &granted);
                    Ok(granted)
                }
                Some((lease, Err(e))) => {
                    if e.kind() == ErrorKind::NotHeld {
                        let reason = e.lost_reason().map(|reason| reason.word());
                        let key = lease.key().as_str();
                        ask.gateway
                            .chronicle
                            .lost(tenant.namespace(), key, &handle, reason);
                    }
                    Err(e.into())
                }
                None => Err(Problem::closing()),
            },
        })
        .collect()
}
