//! What every request passes first: where it comes from, who sent it, how many came before, and what came of it.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use axum::extract::{Request, State};
use axum::http::header::{AUTHORIZATION, HOST, HeaderName, HeaderValue, ORIGIN};
use axum::http::{HeaderMap, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use distlock_core::Key;
use futures_util::FutureExt;
use futures_util::future::{Either, ready};

use crate::access::{Principal, bearer};
use crate::gateway::Gateway;
use crate::observe;
use crate::problem::Problem;

/// Who asks: known by the token, or by the address.
#[derive(Debug, Clone)]
pub(crate) struct Caller {
    pub(crate) who: Arc<Principal>,
    /// What the limits are counted by.
    pub(crate) client: String,
}

/// Where a connection comes from: none for a unix socket.
#[derive(Debug, Clone, Copy)]
pub(crate) struct From(pub(crate) Option<IpAddr>);

/// Headers of every answer: nothing of it is to be framed, guessed at, or kept.
const HEADERS: [(&str, &str); 5] = [
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "no-referrer"),
    ("x-frame-options", "DENY"),
    ("cache-control", "no-store"),
    ("cross-origin-resource-policy", "same-origin"),
];

/// The door of everything: the log, and the headers.
///
/// Neither door is an async function: that would have room for the request beside the answer, as long as it waits.
pub(crate) fn log(request: Request, next: Next) -> impl Future<Output = Response> + Send {
    let start = Instant::now();
    let method = request.method().clone();
    // Without the query: nothing secret belongs there, but strangers do what they like.
    let path = request.uri().path().to_owned();
    let from = request.extensions().get::<From>().and_then(|from| from.0);
    next.run(request).map(move |mut response| {
        let status = response.status().as_u16();
        let who = response.extensions().get::<Caller>().map(|c| &*c.who.name);
        observe::answered(status);
        tracing::info!(target: "distlock::access", %method, path, status, who, from = from.map(|f| f.to_string()),
            took_us = u64::try_from(start.elapsed().as_micros()).unwrap_or(u64::MAX), "answered");
        let headers = response.headers_mut();
        for (name, value) in HEADERS {
            headers
                .entry(HeaderName::from_static(name))
                .or_insert(HeaderValue::from_static(value));
        }
        response
    })
}

/// The door of the API: pages of other sites, strangers, and those who ask too much stay out.
pub(crate) fn enter(
    State(gateway): State<Arc<Gateway>>,
    mut request: Request,
    next: Next,
) -> impl Future<Output = Response> + Send {
    match admit(&gateway, &request) {
        Ok(caller) => {
            request.extensions_mut().insert(caller.clone());
            Either::Left(next.run(request).map(|mut response| {
                response.extensions_mut().insert(caller);
                response
            }))
        }
        Err(problem) => Either::Right(ready(problem.into_response())),
    }
}

fn admit(gateway: &Gateway, request: &Request) -> Result<Caller, Problem> {
    let headers = request.headers();
    from_own_page(headers)?;
    let from = request.extensions().get::<From>().and_then(|from| from.0);
    if !gateway.access.is_guarded() {
        from_this_host(headers, from)?;
    }
    let token = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    let address = from.map_or_else(|| String::from("unix"), |from| from.to_string());
    let Some(who) = gateway.access.recognise(bearer(token)) else {
        gateway.limiter.request(&address)?;
        return Err(Problem::unauthenticated(match token {
            None => "send a token: Authorization: Bearer …",
            Some(_) => "the token is not known (or was withdrawn)",
        }));
    };
    let client = if gateway.access.is_guarded() {
        format!("token {}", who.name)
    } else {
        address
    };
    gateway.limiter.request(&client)?;
    Ok(Caller { who, client })
}

/// A browser says where a request comes from; only this gateway's own page may send any.
fn from_own_page(headers: &HeaderMap) -> Result<(), Problem> {
    let foreign =
        |what: &str| Problem::forbidden(format!("{what}: requests of other sites' pages are not served"));
    if let Some(origin) = headers.get(ORIGIN) {
        let origin = origin.to_str().unwrap_or_default();
        let host = headers
            .get(HOST)
            .and_then(|h| h.to_str().ok())
            .unwrap_or_default();
        let own = origin
            .split_once("://")
            .is_some_and(|(_, authority)| !host.is_empty() && authority.eq_ignore_ascii_case(host));
        if !own {
            return Err(foreign("the Origin is another one"));
        }
    }
    match headers.get("sec-fetch-site").and_then(|site| site.to_str().ok()) {
        None | Some("same-origin" | "none") => Ok(()),
        Some(_) => Err(foreign("Sec-Fetch-Site says cross-site")),
    }
}

/// Without tokens, a name that was made to point here (DNS rebinding) must not open the door to a page of its owner.
fn from_this_host(headers: &HeaderMap, from: Option<IpAddr>) -> Result<(), Problem> {
    if !from.is_some_and(|from| from.is_loopback()) || !headers.contains_key(ORIGIN) {
        return Ok(());
    }
    let host = headers
        .get(HOST)
        .and_then(|h| h.to_str().ok())
        .unwrap_or_default();
    let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
    let name = name.trim_start_matches('[').trim_end_matches(']');
    let local =
        name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback());
    if local {
        return Ok(());
    }
    Err(Problem::forbidden(format!(
        "without tokens, pages are served under localhost alone, not {name:?}"
    )))
}

/// An answer for what is nowhere. No route has a place for a key that is empty.
pub(crate) fn nowhere(path: &str) -> Problem {
    if let Some(key) = path.strip_prefix("/v1/locks/")
        && (key.is_empty() || key.starts_with('/'))
        && let Err(e) = Key::new("")
    {
        return Problem::from(&e);
    }
    Problem::new(
        StatusCode::NOT_FOUND,
        "not_found",
        "There is nothing here",
        format!("{path:?} is no address of this API; see /v1/openapi.json"),
    )
}

/// An answer for a method that does not fit.
pub(crate) async fn wrong_method(request: Request) -> Problem {
    Problem::new(
        StatusCode::METHOD_NOT_ALLOWED,
        "method_not_allowed",
        "Another method is needed",
        format!("{} does not fit here; see /v1/openapi.json", request.method()),
    )
}
