//! What the engine promises, and whether this gateway is ready.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use distlock_core::driver::{Death, Loss, Orders, Promises, TokenPromise, Wakes};
use serde::Serialize;
use utoipa::ToSchema;

use crate::access::Right;
use crate::api::ask::Ask;
use crate::api::openapi::Problems;
use crate::api::types::millis;
use crate::gateway::Gateway;
use crate::problem::Problem;

/// How long the engine may take to prove that it is there.
const READY: Duration = Duration::from_secs(3);

/// What this gateway stands on, and what its caller may do.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct EngineView {
    /// The version of the service.
    version: &'static str,
    /// This run of this gateway.
    gateway: String,
    /// The engine's URL without secrets.
    engine: String,
    /// The namespace that the request names, or the default one.
    namespace: String,
    /// Who the caller is.
    caller: String,
    /// What the caller may do in this namespace: `read`, `acquire`, `break`.
    may: Vec<&'static str>,
    /// Whether locks end with this gateway.
    bound_to_gateway: bool,
    /// What the engine promises.
    promises: PromisesView,
}

/// What an engine promises.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PromisesView {
    /// `file`, `redis`, …
    name: &'static str,
    /// `any`, `any_or_fifo` or `always_fifo`.
    order: &'static str,
    /// Whether there are read/write locks.
    shared: bool,
    /// Whether there are semaphores.
    slots: bool,
    /// `none`, `best_effort` or `durable`: whether fencing tokens grow.
    token: &'static str,
    /// What would have to happen for a token to step back.
    token_unless: Option<&'static str>,
    /// The least TTL.
    ttl_min_ms: u64,
    /// The largest TTL.
    ttl_max_ms: u64,
    /// Whether waiters are notified, not asking at intervals.
    notified: bool,
    /// Whether a loss by time is told before anybody else can be granted.
    loss_before_regrant: bool,
    /// Whether the lock of a holder that died is free at once.
    death_at_once: bool,
}

impl PromisesView {
    fn new(p: &Promises) -> Self {
        let (token, token_unless) = match p.token {
            TokenPromise::None => ("none", None),
            TokenPromise::BestEffort { unless } => ("best_effort", Some(unless)),
            TokenPromise::Durable => ("durable", None),
        };
        Self {
            name: p.engine,
            order: match p.order {
                Orders::Any => "any",
                Orders::AnyOrFifo => "any_or_fifo",
                Orders::AlwaysFifo => "always_fifo",
            },
            shared: p.shared,
            slots: p.slots,
            token,
            token_unless,
            ttl_min_ms: millis(*p.ttl.start()).max(1),
            ttl_max_ms: millis(*p.ttl.end()),
            notified: p.wakes == Wakes::Notified,
            loss_before_regrant: p.loss == Loss::BeforeRegrant,
            death_at_once: p.death == Death::AtOnce,
        }
    }
}

/// Show what the engine promises, and what the caller may do.
#[utoipa::path(get, path = "/v1/engine", operation_id = "engine", tag = "service",
    params(("namespace" = Option<String>, Query, description = "Default: the gateway's")),
    responses((status = 200, description = "What this gateway stands on", body = EngineView), Problems))]
pub(crate) async fn engine(ask: Ask) -> Result<Json<EngineView>, Problem> {
    let namespace = ask.namespace.as_str();
    let who = &ask.caller.who;
    let right = [Right::Acquire, Right::Break]
        .into_iter()
        .find(|right| who.may(*right, namespace))
        .unwrap_or(Right::Read);
    let tenant = ask.tenant(right).await?;
    let promises = tenant.client.capabilities();
    Ok(Json(EngineView {
        version: env!("CARGO_PKG_VERSION"),
        gateway: ask.gateway.id.to_string(),
        engine: ask.gateway.engine.clone(),
        namespace: namespace.to_owned(),
        caller: who.name.clone(),
        may: who.rights(namespace),
        bound_to_gateway: !promises.lease_records,
        promises: PromisesView::new(promises),
    }))
}

/// Whether requests can be served now: the engine answers, and no shutdown has begun.
pub(crate) async fn ready(State(gateway): State<Arc<Gateway>>) -> Result<&'static str, (StatusCode, String)> {
    let no = |why: String| (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n"));
    if gateway.closing.is_cancelled() {
        return Err(no("shutting down".into()));
    }
    let asked = async {
        let tenant = gateway.tenants.get(&gateway.namespace).await;
        let tenant = tenant.map_err(|problem| problem.body.detail.clone())?;
        let listed = tenant.client.inspect("distlock:ready").await;
        listed.map(drop).map_err(|e| e.to_string())
    };
    match tokio::time::timeout(READY, asked).await {
        Ok(Ok(())) => Ok("ready\n"),
        Ok(Err(why)) => Err(no(why)),
        Err(_) => Err(no(format!("the engine did not answer within {READY:?}"))),
    }
}
