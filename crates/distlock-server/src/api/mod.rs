//! The HTTP API, version 1.

mod acquire;
mod ask;
mod break_lock;
mod doctor;
mod engine;
mod events;
mod look;
mod openapi;
mod release;
mod renew;
pub(crate) mod types;

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::Uri;
use axum::http::header::{CONTENT_SECURITY_POLICY, CONTENT_TYPE};
use axum::middleware::{from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};

use crate::dashboard;
use crate::door;
use crate::gateway::Gateway;
use crate::observe;

/// Everything that a gateway answers.
pub(crate) fn router(gateway: &Arc<Gateway>) -> Router {
    let v1 = Router::new()
        .route("/engine", get(engine::engine))
        .route("/doctor", get(doctor::doctor))
        .route("/locks", get(look::list))
        .route("/locks/{key}", get(look::inspect))
        .route("/locks/{key}/acquire", post(acquire::acquire))
        .route("/locks/{key}/renew", post(renew::renew_one))
        .route("/locks/{key}/extend", post(renew::extend))
        .route("/locks/{key}/release", post(release::release))
        .route("/locks/{key}/break", post(break_lock::break_lock))
        .route("/locks/{key}/events", get(events::of_key))
        .route("/acquire", post(acquire::acquire_all))
        .route("/renew", post(renew::renew_all))
        .route("/watch", get(events::watch))
        .route("/activity", get(look::activity))
        .fallback(async |uri: Uri| door::nowhere(&format!("/v1{}", uri.path())))
        .method_not_allowed_fallback(door::wrong_method)
        .layer(from_fn_with_state(gateway.clone(), door::enter));
    Router::new()
        .nest("/v1", v1)
        .route("/v1/openapi.json", get(openapi::document))
        .route("/healthz", get(async || "ok\n"))
        .route("/readyz", get(engine::ready))
        .route("/metrics", get(metrics))
        .route(
            "/",
            get(async || page("text/html; charset=utf-8", dashboard::PAGE).await),
        )
        .route(
            "/page.css",
            get(async || page("text/css", dashboard::STYLE).await),
        )
        .route(
            "/page.js",
            get(async || page("text/javascript", dashboard::SCRIPT).await),
        )
        .fallback(async |uri: Uri| door::nowhere(uri.path()))
        .method_not_allowed_fallback(door::wrong_method)
        .layer(from_fn(door::log))
        .with_state(gateway.clone())
}

async fn metrics(State(gateway): State<Arc<Gateway>>) -> Response {
    observe::waiting(gateway.limiter.waiting());
    let text = gateway.metrics.as_ref().map(|render| render());
    let kind = [(CONTENT_TYPE, "text/plain; version=0.0.4")];
    (kind, text.unwrap_or_default()).into_response()
}

/// A part of the page.
async fn page(kind: &'static str, text: &'static str) -> Response {
    let headers = [(CONTENT_TYPE, kind), (CONTENT_SECURITY_POLICY, dashboard::POLICY)];
    (headers, text).into_response()
}
