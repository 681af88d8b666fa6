//! What went wrong, as `application/problem+json` (RFC 9457).

use axum::body::Body as HttpBody;
use axum::http::header::{CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use distlock_core::driver::{LostReason, Refusal};
use distlock_core::{Error, ErrorKind};
use serde::Serialize;
use utoipa::ToSchema;

use crate::api::types::HolderView;

/// A refusal or failure, told apart by `kind`.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[schema(as = Problem)]
pub(crate) struct Body {
    /// `urn:distlock:` and the kind.
    #[serde(rename = "type")]
    pub(crate) kind_uri: String,
    /// The kind, in words.
    pub(crate) title: &'static str,
    /// The status of the answer.
    pub(crate) status: u16,
    /// A stable word for programs, such as `busy`, `not_held`, `unavailable`.
    pub(crate) kind: &'static str,
    /// What happened, for people.
    pub(crate) detail: String,
    /// The lock.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) key: Option<String>,
    /// Who holds it, of a busy lock.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) holder: Option<HolderView>,
    /// Why a lease is over: `expired`, `taken`, `broken`, …
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<&'static str>,
    /// The reason that was given for breaking it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) break_reason: Option<String>,
    /// What the key is in use as, or the present token, of a mismatch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) have: Option<String>,
    /// What was asked for, of a mismatch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) want: Option<String>,
}

/// An answer that is not a success.
#[derive(Debug, Clone)]
pub(crate) struct Problem {
    pub(crate) status: StatusCode,
    pub(crate) body: Box<Body>,
    /// Seconds after which it is worth trying again.
    pub(crate) retry_after: Option<u32>,
}

impl Problem {
    pub(crate) fn new(
        status: StatusCode,
        kind: &'static str,
        title: &'static str,
        detail: impl Into<String>,
    ) -> Self {
        Self {
            status,
            body: Box::new(Body {
                kind_uri: format!("urn:distlock:{}", kind.replace('_', "-")),
                title,
                status: status.as_u16(),
                kind,
                detail: detail.into(),
                key: None,
                holder: None,
                reason: None,
                break_reason: None,
                have: None,
                want: None,
            }),
            retry_after: None,
        }
    }

    /// The request itself is wrong.
    pub(crate) fn malformed(detail: impl Into<String>) -> Self {
        Self::new(
            StatusCode::BAD_REQUEST,
            "bad_request",
            "The request is not understood",
            detail,
        )
    }

    /// The caller may not do this.
    pub(crate) fn forbidden(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, "forbidden", "Not allowed", detail)
    }

    /// The caller is not known.
    pub(crate) fn unauthenticated(detail: impl Into<String>) -> Self {
        Self::new(
            StatusCode::UNAUTHORIZED,
            "unauthenticated",
            "A valid token is needed",
            detail,
        )
    }

    /// A limit of this gateway was reached.
    pub(crate) fn limited(detail: impl Into<String>, after: u32) -> Self {
        Self::new(
            StatusCode::TOO_MANY_REQUESTS,
            "limited",
            "A limit of this gateway was reached",
            detail,
        )
        .retry(after)
    }

    /// The gateway is on its way down.
    pub(crate) fn closing() -> Self {
        Self::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "closed",
            "This gateway is shutting down",
            "ask again, at another gateway or in a moment; leases stay as they are",
        )
        .retry(1)
    }

    pub(crate) fn retry(mut self, seconds: u32) -> Self {
        self.retry_after = Some(seconds);
        self
    }
}

impl From<Error> for Problem {
    fn from(e: Error) -> Self {
        Self::from(&e)
    }
}

impl From<&Error> for Problem {
    fn from(e: &Error) -> Self {
        let kind = e.kind();
        let (status, title) = status(e);
        let mut problem = Self::new(status, kind.word(), title, e.message());
        if status == StatusCode::SERVICE_UNAVAILABLE {
            problem = problem.retry(1);
        }
        let body = &mut problem.body;
        body.key = e.key().map(ToString::to_string);
        body.holder = e.holder().map(|h| HolderView::new(h, None));
        body.reason = e.lost_reason().map(LostReason::word);
        if let Some(LostReason::Broken { reason }) = e.lost_reason() {
            body.break_reason.clone_from(reason);
        }
        match e.refusal() {
            Some(Refusal::KindMismatch { have, want }) => {
                body.have = Some(have.clone());
                body.want = Some(want.clone());
            }
            Some(Refusal::TokenMismatch { have }) => {
                body.kind = "token_mismatch";
                body.have = have.map(|t| t.to_string());
            }
            _ => {}
        }
        problem
    }
}

fn status(e: &Error) -> (StatusCode, &'static str) {
    if let Some(Refusal::TokenMismatch { .. }) = e.refusal() {
        return (StatusCode::CONFLICT, "The present holder's token is another one");
    }
    match e.kind() {
        ErrorKind::Busy => (StatusCode::CONFLICT, "Somebody else holds the lock"),
        ErrorKind::Timeout => (
            StatusCode::CONFLICT,
            "Somebody else held the lock for all of the wait",
        ),
        ErrorKind::KindMismatch => (StatusCode::CONFLICT, "The key is in use as another kind of lock"),
        ErrorKind::Lost | ErrorKind::NotHeld => (StatusCode::GONE, "The lease is over"),
        ErrorKind::InvalidKey => (StatusCode::BAD_REQUEST, "The key is not allowed"),
        ErrorKind::InvalidConfig => (StatusCode::UNPROCESSABLE_ENTITY, "A value is not allowed"),
        ErrorKind::Unsupported => (StatusCode::UNPROCESSABLE_ENTITY, "The engine cannot do this"),
        ErrorKind::OutcomeUnknown => (StatusCode::GATEWAY_TIMEOUT, "It is not known whether it was done"),
        _ => (StatusCode::SERVICE_UNAVAILABLE, "The engine is unavailable"),
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let text = serde_json::to_vec(&self.body).unwrap_or_default();
        let mut response = Response::new(HttpBody::from(text));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if let Some(after) = self.retry_after {
            headers.insert(RETRY_AFTER, HeaderValue::from(after));
        }
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}
