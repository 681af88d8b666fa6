//! Giving locks back.

use axum::Json;
use axum::body::Body;
use distlock_core::{Error, ErrorKind, Lease};

use crate::access::Right;
use crate::api::ask::{Ask, Named};
use crate::api::openapi::Problems;
use crate::api::renew::is_of;
use crate::api::types::{ReleaseBody, ReleaseView, bad};
use crate::attempts::{Left, Name};
use crate::bound::Bound;
use crate::problem::Problem;
use crate::tenants::Tenant;

/// Give a lock back, or give an attempt up.
#[utoipa::path(post, path = "/v1/locks/{key}/release", operation_id = "release", tag = "leases",
    params(
        ("key" = String, Path, description = "The lock's name, percent-encoded", example = "order:42"),
        ("namespace" = Option<String>, Query, description = "Default: the gateway's"),
    ),
    request_body = ReleaseBody,
    responses((status = 200, description = "It is no longer held", body = ReleaseView), Problems))]
pub(crate) async fn release(ask: Ask, Named(key): Named, body: Body) -> Result<Json<ReleaseView>, Problem> {
    let tenant = ask.tenant(Right::Acquire).await?;
    let asked: ReleaseBody = ask.body(body).await?;
    let released = match (asked.handle, asked.idempotency_key) {
        (Some(handle), name) => {
            is_of(&ask, &handle, &key)?;
            if !of_handle(&ask, &tenant, &handle).await? {
                ask.gateway
                    .chronicle
                    .lost(tenant.namespace(), key.as_str(), &handle, None);
                let why = "there was nothing to release: the lease was over";
                return Err(Error::new(ErrorKind::NotHeld, why).with_key(&key).into());
            }
            if let Some(name) = name {
                ask.gateway.attempts.forget(&of(&ask, &tenant, name));
            }
            true
        }
        (None, Some(name)) => of_attempt(&ask, &tenant, name).await?,
        (None, None) => return Err(bad("name one of `handle` and `idempotency_key`").into()),
    };
    Ok(Json(ReleaseView { released }))
}

async fn of_handle(ask: &Ask, tenant: &Tenant, handle: &str) -> Result<bool, Problem> {
    let namespace = tenant.namespace();
    if Bound::is_handle(handle) {
        return ask.within(ask.gateway.bound.release(namespace, handle)).await;
    }
    let lease: Lease = handle.parse()?;
    let held = ask.within(tenant.client.release_lease(&lease)).await?;
    if held {
        ask.gateway
            .chronicle
            .released(namespace, lease.key().as_str(), handle);
    }
    Ok(held)
}

async fn of_attempt(ask: &Ask, tenant: &Tenant, name: String) -> Result<bool, Problem> {
    let name = of(ask, tenant, name);
    let left = ask
        .within(async { Ok(ask.gateway.attempts.give_up(&name).await) })
        .await?;
    match left {
        Left::Nothing => Ok(false),
        Left::Waiting(waiting) => match waiting.and_then(|waiting| waiting.place) {
            // Its caller was never told of a grant, so it did not hold.
            Some(place) => ask
                .within(tenant.client.release_lease(&place))
                .await
                .map(|_| false),
            None => Ok(false),
        },
        Left::Granted(leases) => {
            let mut held = false;
            for granted in leases {
                held |= of_handle(ask, tenant, &granted.handle).await?;
            }
            Ok(held)
        }
    }
}

/// An idempotency key is its caller's own.
fn of(ask: &Ask, tenant: &Tenant, name: String) -> Name {
    (tenant.namespace().to_owned(), ask.caller.who.name.clone(), name)
}
