//! What a request says: its namespace, key, body; and whether its sender may.

use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::extract::{FromRequestParts, Path, Query};
use axum::http::StatusCode;
use axum::http::header::{ACCEPT, HeaderMap, HeaderName, HeaderValue};
use axum::http::request::Parts;
use distlock_core::{Error, ErrorKind, Key, Namespace};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use uuid::Uuid;

use crate::access::Right;
use crate::api::types::bad;
use crate::door::Caller;
use crate::gateway::Gateway;
use crate::problem::Problem;
use crate::tenants::Tenant;

/// The name of a request, under which it may be repeated.
pub(crate) const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
/// The lease that alone is followed.
pub(crate) const LEASE: HeaderName = HeaderName::from_static("distlock-lease");

/// A request to the API, with what all of them have.
#[derive(Debug)]
pub(crate) struct Ask {
    pub(crate) gateway: Arc<Gateway>,
    pub(crate) caller: Caller,
    pub(crate) namespace: Namespace,
    /// Who the client says that it is.
    pub(crate) client: Option<Uuid>,
    /// Those of the API.
    pub(crate) headers: HeaderMap,
}

#[derive(Deserialize)]
struct Where {
    namespace: Option<String>,
}

impl FromRequestParts<Arc<Gateway>> for Ask {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, gateway: &Arc<Gateway>) -> Result<Self, Problem> {
        let Query(at) = Query::<Where>::try_from_uri(&parts.uri)
            .map_err(|e| Problem::malformed(format!("the query is not understood: {e}")))?;
        let namespace = match at.namespace {
            None => gateway.namespace.clone(),
            Some(name) => Namespace::new(name)?,
        };
        let client = match parts.headers.get("distlock-client").map(HeaderValue::to_str) {
            None => None,
            Some(text) => {
                let client = text.ok().and_then(|text| text.parse().ok());
                Some(client.ok_or_else(|| Problem::malformed("Distlock-Client is not a UUID"))?)
            }
        };
        let caller = parts.extensions.get::<Caller>().cloned();
        Ok(Self {
            gateway: gateway.clone(),
            caller: caller.ok_or_else(|| Problem::unauthenticated("nobody"))?,
            namespace,
            client,
            headers: kept(&parts.headers),
        })
    }
}

/// Copies of the headers that are asked for later: all of them share one buffer with everything that was read, which
/// a request that waits would keep alive.
fn kept(headers: &HeaderMap) -> HeaderMap {
    let mut kept = HeaderMap::new();
    for name in [ACCEPT, IDEMPOTENCY_KEY, LEASE] {
        let value = headers
            .get(&name)
            .map(|value| HeaderValue::from_bytes(value.as_bytes()));
        if let Some(Ok(value)) = value {
            kept.insert(name, value);
        }
    }
    kept
}

impl Ask {
    /// The namespace, for somebody who may do this there.
    pub(crate) async fn tenant(&self, right: Right) -> Result<Arc<Tenant>, Problem> {
        if self.gateway.closing.is_cancelled() {
            return Err(Problem::closing());
        }
        if !self.caller.who.may(right, self.namespace.as_str()) {
            return Err(Problem::forbidden(format!(
                "{} may not {} in the namespace {:?}",
                self.caller.who.name,
                right.word(),
                self.namespace.as_str()
            )));
        }
        self.gateway.tenants.get(&self.namespace).await
    }

    /// What the body says. An empty one says `{}`. Its type is not looked at, so that `curl -d` will do.
    pub(crate) async fn body<T: DeserializeOwned>(&self, body: Body) -> Result<T, Problem> {
        let bytes = self.bytes(body).await?;
        let bytes = if bytes.iter().all(u8::is_ascii_whitespace) {
            Bytes::from_static(b"{}")
        } else {
            bytes
        };
        if bytes.trim_ascii_start().first() == Some(&b'[') {
            // Which would be read as the fields in their order.
            return Err(bad("the body is a list, not an object").into());
        }
        serde_json::from_slice(&bytes).map_err(|e| match e.classify() {
            serde_json::error::Category::Data => Problem::new(
                StatusCode::UNPROCESSABLE_ENTITY,
                "invalid_config",
                "A value is not allowed",
                e.to_string(),
            ),
            _ => Problem::malformed(format!("the body is not JSON: {e}")),
        })
    }

    /// The body, within the limits of size and time.
    async fn bytes(&self, body: Body) -> Result<Bytes, Problem> {
        let limits = &self.gateway.limiter.limits;
        let read = axum::body::to_bytes(body, limits.body);
        match tokio::time::timeout(limits.answer, read).await {
            Ok(Ok(bytes)) => Ok(bytes),
            Ok(Err(_)) => Err(Problem::new(
                StatusCode::PAYLOAD_TOO_LARGE,
                "too_large",
                "The body is too large",
                format!("a body may have {} bytes", limits.body),
            )),
            Err(_) => Err(Problem::new(
                StatusCode::REQUEST_TIMEOUT,
                "too_slow",
                "The body did not come",
                format!("a body may take {:?}", limits.answer),
            )),
        }
    }

    /// An answer of the engine, within the limit of time.
    pub(crate) async fn within<T>(
        &self,
        answer: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Problem> {
        let limit = self.gateway.limiter.limits.answer;
        match tokio::time::timeout(limit, answer).await {
            Ok(answer) => Ok(answer?),
            Err(_) => Err(Problem::new(
                StatusCode::GATEWAY_TIMEOUT,
                "outcome_unknown",
                "It is not known whether it was done",
                format!("the engine did not answer within {limit:?}"),
            )),
        }
    }
}

/// The key in the path.
#[derive(Debug)]
pub(crate) struct Named(pub(crate) Key);

impl FromRequestParts<Arc<Gateway>> for Named {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, gateway: &Arc<Gateway>) -> Result<Self, Problem> {
        let Path(key) = Path::<String>::from_request_parts(parts, gateway)
            .await
            .map_err(|_| Error::new(ErrorKind::InvalidKey, "the key is not UTF-8"))?;
        Ok(Self(Key::new(key)?))
    }
}
