//! Fencing for HTTP services: a tower layer that checks the header `Fencing-Token`.

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};

use distlock_core::FencingToken;
use futures_util::future::BoxFuture;
use http::{HeaderValue, Method, Request, Response, StatusCode};
use tower::{Layer, Service};

use crate::error::FenceError;
use crate::header;
use crate::memory::MemoryGate;

/// Names what a request writes to.
type Resource = Arc<dyn Fn(&http::request::Parts) -> String + Send + Sync>;

/// Refuses requests of clients that no longer hold their lock, by the header `Fencing-Token`. The body of the
/// service's responses must be buildable from text (axum's `Body` and `http_body_util::Full` are).
///
/// | request | answer |
/// |---|---|
/// | `GET`, `HEAD`, `OPTIONS`, `TRACE` | passed on unchecked |
/// | a token that is not stale | passed on; no other checked request of the same resource runs meanwhile |
/// | a stale token | `412 Precondition Failed`, with `Fencing-Token-Newest` |
/// | no token | `428 Precondition Required` (passed on with [`optional`](Self::optional)) |
/// | a token that is no decimal number of 64 bits, or more than one | `400 Bad Request` |
///
/// The resource is the request's path unless [`resource`](Self::resource) says otherwise.
///
/// # Limits
/// - The token is remembered by a [`MemoryGate`], by one process until its end. A service with several replicas, or
///   whose data outlive it, also checks the token where the data are: in the handler's own database transaction.
/// - The fence is open until the handler's future ends. What a handler spawns and does not await is not covered.
#[derive(Clone)]
pub struct FenceLayer {
    gate: MemoryGate,
    resource: Resource,
    required: bool,
}

impl FenceLayer {
    /// Checks against this gate. Layers of the same gate (and its clones) share what they remember.
    pub fn new(gate: MemoryGate) -> Self {
        Self {
            gate,
            resource: Arc::new(|parts| parts.uri.path().to_owned()),
            required: true,
        }
    }

    /// Names the resource of a request: what the lock's key stands for.
    #[must_use]
    pub fn resource<F>(mut self, name: F) -> Self
    where
        F: Fn(&http::request::Parts) -> String + Send + Sync + 'static,
    {
        self.resource = Arc::new(name);
        self
    }

    /// Passes requests without the header on. Such clients are not fenced; meant for a time of migration.
    #[must_use]
    pub fn optional(mut self) -> Self {
        self.required = false;
        self
    }
}

impl fmt::Debug for FenceLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FenceLayer")
            .field("gate", &self.gate)
            .field("required", &self.required)
            .finish()
    }
}

impl<S> Layer<S> for FenceLayer {
    type Service = FenceService<S>;

    fn layer(&self, inner: S) -> FenceService<S> {
        FenceService {
            inner,
            layer: self.clone(),
        }
    }
}

/// The service that [`FenceLayer`] makes.
#[derive(Debug, Clone)]
pub struct FenceService<S> {
    inner: S,
    layer: FenceLayer,
}

impl<S, B, R> Service<Request<B>> for FenceService<S>
where
    S: Service<Request<B>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send,
    B: Send + 'static,
    R: From<String>,
{
    type Response = Response<R>;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<Self::Response, S::Error>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        // The service that was polled ready must be the one that is called.
        let clone = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, clone);
        let FenceLayer {
            gate,
            resource,
            required,
        } = self.layer.clone();
        Box::pin(async move {
            let (parts, body) = request.into_parts();
            let token = match token_of(&parts) {
                Ok(token) => token,
                Err(why) => return Ok(refusal(StatusCode::BAD_REQUEST, why)),
            };
            let entry = match token {
                _ if is_safe(&parts.method) => None,
                None if !required => None,
                None => {
                    let why = format!("this request needs the header {}", header::NAME);
                    return Ok(refusal(StatusCode::PRECONDITION_REQUIRED, why));
                }
                Some(token) => match gate.enter(&resource(&parts), token).await {
                    Ok(entry) => Some(entry),
                    Err(e) => return Ok(stale(&e)),
                },
            };
            let answer = inner.call(Request::from_parts(parts, body)).await;
            drop(entry);
            answer
        })
    }
}

/// The methods that write nothing, by the definition of HTTP.
fn is_safe(method: &Method) -> bool {
    matches!(
        *method,
        Method::GET | Method::HEAD | Method::OPTIONS | Method::TRACE
    )
}

fn token_of(parts: &http::request::Parts) -> Result<Option<FencingToken>, String> {
    let mut values = parts.headers.get_all(header::NAME).iter();
    match (values.next(), values.next()) {
        (None, _) => Ok(None),
        (Some(value), None) => match header::parse(value.as_bytes()) {
            Some(token) => Ok(Some(token)),
            None => Err(format!(
                "the header {} is not a decimal number of 64 bits",
                header::NAME
            )),
        },
        (Some(_), Some(_)) => Err(format!("the header {} was given more than once", header::NAME)),
    }
}

fn stale<R: From<String>>(e: &FenceError) -> Response<R> {
    let mut response = refusal(StatusCode::PRECONDITION_FAILED, e.to_string());
    if let FenceError::Stale { newest, .. } = e {
        response
            .headers_mut()
            .insert(header::NEWEST, HeaderValue::from(newest.get()));
    }
    response
}

fn refusal<R: From<String>>(status: StatusCode, why: String) -> Response<R> {
    let mut response = Response::new(R::from(why + "\n"));
    *response.status_mut() = status;
    response
}
