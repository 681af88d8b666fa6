//! The description of the API, made from its code.

use std::sync::LazyLock;

use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityScheme};
use utoipa::{IntoResponses, Modify, OpenApi};

use crate::problem::Body;

/// What every request may be answered besides its success: `application/problem+json`.
#[derive(IntoResponses)]
#[expect(dead_code, reason = "it is a description")]
pub(crate) enum Problems {
    /// The request is not understood, or the key is not allowed.
    #[response(status = 400, content_type = "application/problem+json")]
    Malformed(Body),
    /// A token is needed, or is not known.
    #[response(status = 401, content_type = "application/problem+json")]
    Unauthenticated(Body),
    /// The token's scopes do not allow it, or the request comes from another site's page.
    #[response(status = 403, content_type = "application/problem+json")]
    Forbidden(Body),
    /// There is no such address.
    #[response(status = 404, content_type = "application/problem+json")]
    Nowhere(Body),
    /// Another method is needed.
    #[response(status = 405, content_type = "application/problem+json")]
    WrongMethod(Body),
    /// The body did not come in time.
    #[response(status = 408, content_type = "application/problem+json")]
    TooSlow(Body),
    /// Somebody else holds the lock (`busy`, `timeout`), or uses the key otherwise (`kind_mismatch`,
    /// `token_mismatch`).
    #[response(status = 409, content_type = "application/problem+json")]
    Busy(Body),
    /// The lease is over.
    #[response(status = 410, content_type = "application/problem+json")]
    Gone(Body),
    /// The body is too large.
    #[response(status = 413, content_type = "application/problem+json")]
    TooLarge(Body),
    /// A value is not allowed, or the engine cannot do it.
    #[response(status = 422, content_type = "application/problem+json")]
    NotAllowed(Body),
    /// A limit of this gateway was reached; see Retry-After.
    #[response(status = 429, content_type = "application/problem+json")]
    Limited(Body),
    /// The engine is unavailable, or the gateway is shutting down; nothing was acquired. See Retry-After.
    #[response(status = 503, content_type = "application/problem+json")]
    Unavailable(Body),
    /// It is not known whether it was done: ask again.
    #[response(status = 504, content_type = "application/problem+json")]
    Unknown(Body),
}

/// How tokens are sent.
struct Bearer;

impl Modify for Bearer {
    fn modify(&self, api: &mut utoipa::openapi::OpenApi) {
        if let Some(components) = api.components.as_mut() {
            let scheme = SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer));
            components.add_security_scheme("token", scheme);
        }
    }
}

#[derive(OpenApi)]
#[openapi(
    info(
        title = "distlock",
        description = "Locks over HTTP, kept by the engine behind the gateway. Times are asked for as strings with a unit (30s, 250ms) and told in milliseconds."
    ),
    paths(
        super::acquire::acquire,
        super::acquire::acquire_all,
        super::renew::renew_one,
        super::renew::extend,
        super::renew::renew_all,
        super::release::release,
        super::look::list,
        super::look::inspect,
        super::look::activity,
        super::break_lock::break_lock,
        super::events::of_key,
        super::events::watch,
        super::engine::engine,
        super::doctor::doctor,
    ),
    modifiers(&Bearer),
    security((), ("token" = []))
)]
struct Api;

/// The document.
pub(crate) async fn document() -> Response {
    static TEXT: LazyLock<String> = LazyLock::new(|| Api::openapi().to_json().unwrap_or_default());
    ([(CONTENT_TYPE, "application/json")], TEXT.as_str()).into_response()
}
