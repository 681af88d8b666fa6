//! Requests to the gateway, or to the next one if it cannot be reached.

use std::fmt;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use distlock_core::Secret;
use distlock_core::clock::{Clock, Moment};
use distlock_core::driver::{DriverError, Reached};
use distlock_core::engine::Engine;
use futures_util::future::join_all;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderValue, USER_AGENT};
use hyper::{Method, Request, Response, StatusCode};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};
use serde::Serialize;
use serde::de::DeserializeOwned;
use uuid::Uuid;

use crate::config::{Config, invalid};
use crate::failure::{is_unreached, of_problem, of_status};
use crate::wire::{EngineView, Problem};

/// The largest answer that is read.
const LARGEST: usize = 64 << 20;
/// What stays as it is in a path or query: `.` does not, so that no part is `..`.
const PLAIN: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'~');

/// A part of a path or query.
pub(crate) fn part(text: &str) -> String {
    utf8_percent_encode(text, PLAIN).to_string()
}

/// An answer that began to arrive.
pub(crate) struct Answer {
    pub(crate) body: Response<Incoming>,
    /// Before the request was sent.
    pub(crate) sent: Moment,
}

/// The gateways of one service.
pub(crate) struct Gateway {
    http: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    engine: Engine,
    clock: Clock,
    /// `https://host:port/path`, one for each.
    bases: Vec<String>,
    /// Which one is asked.
    current: AtomicUsize,
    namespace: String,
    client: Uuid,
    token: Option<HeaderValue>,
    timeout: Duration,
}

impl fmt::Debug for Gateway {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gateway")
            .field("bases", &self.bases)
            .finish_non_exhaustive()
    }
}

impl Gateway {
    pub(crate) fn new(engine: &Engine, config: &Config) -> Result<Arc<Self>, DriverError> {
        if config.hosts.is_empty() {
            return Err(invalid("http: names no host"));
        }
        let scheme = if config.tls { "https" } else { "http" };
        let bases = config.hosts.iter().map(|host| {
            let base = match has_port(host) {
                true => format!("{scheme}://{host}{}", config.path),
                false if config.tls => format!("{scheme}://{host}:443{}", config.path),
                false => format!("{scheme}://{host}:7466{}", config.path),
            };
            let parsed = base
                .parse::<hyper::Uri>()
                .map_err(|_| invalid(format!("{host:?} is not a host")));
            parsed.map(|_| base)
        });
        let mut tcp = HttpConnector::new();
        tcp.set_nodelay(true);
        tcp.set_connect_timeout(Some(config.connect_timeout));
        tcp.set_keepalive(Some(Duration::from_secs(15)));
        tcp.enforce_http(false);
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(tls(config)?)
            .https_or_http()
            .enable_http1()
            .wrap_connector(tcp);
        let http = Client::builder(TokioExecutor::new())
            .pool_idle_timeout(Duration::from_secs(20))
            .pool_timer(TokioTimer::new())
            .build(connector);
        Ok(Arc::new(Self {
            http,
            clock: engine.clock().clone(),
            bases: bases.collect::<Result<_, _>>()?,
            // Clients spread over the gateways.
            current: AtomicUsize::new(engine.owners().client().as_u64_pair().1 as usize),
            namespace: part(engine.namespace().as_str()),
            client: engine.owners().client(),
            token: token(config)?,
            timeout: config.timeout,
            engine: engine.clone(),
        }))
    }

    /// Asks; the answer is read as JSON.
    pub(crate) async fn get<T: DeserializeOwned + Send + 'static>(
        self: &Arc<Self>,
        path: &str,
        query: &[(&str, &str)],
    ) -> Result<T, DriverError> {
        let query: String = query
            .iter()
            .map(|(name, value)| format!("&{name}={}", part(value)))
            .collect();
        let path = format!("{path}?namespace={}{query}", self.namespace);
        let gateway = self.clone();
        self.on_engine(async move {
            let request = gateway.request(Method::GET, Bytes::new());
            let answer = gateway.send(&path, request);
            let read = async { read(answer.await?).await.map(|(value, _)| value) };
            gateway.in_time(read).await
        })
        .await
    }

    /// Asks every gateway what it stands on.
    pub(crate) async fn engines(self: &Arc<Self>) -> Vec<(&str, Result<EngineView, DriverError>)> {
        let path = format!("/v1/engine?namespace={}", self.namespace);
        let asked = self.bases.iter().map(|base| {
            let (gateway, to, path) = (self.clone(), base.clone(), path.clone());
            let view = self.on_engine(async move {
                let request = gateway.request(Method::GET, Bytes::new());
                let read = async { read(gateway.send_to(&to, &path, request).await?).await };
                gateway.in_time(read).await.map(|(view, _)| view)
            });
            async move { (base.as_str(), view.await) }
        });
        join_all(asked).await
    }

    /// Whether the token, if there is one, goes over the network as it is.
    pub(crate) fn shows_token(&self) -> bool {
        self.token.is_some() && self.bases.iter().any(|base| is_in_clear(base))
    }

    /// Asks for something to be done; the answer is read as JSON, with the moment before the request was sent.
    pub(crate) async fn post<T: DeserializeOwned + Send + 'static>(
        self: &Arc<Self>,
        path: &str,
        body: &impl Serialize,
    ) -> Result<(T, Moment), DriverError> {
        let path = format!("{path}?namespace={}", self.namespace);
        let body = json(body)?;
        let gateway = self.clone();
        self.on_engine(async move {
            let request = gateway.request(Method::POST, body);
            let answer = gateway.send(&path, request);
            gateway.in_time(async { read(answer.await?).await }).await
        })
        .await
    }

    /// Asks for a lock; the answer may go on for as long as it takes. To be called on the engine thread.
    pub(crate) async fn acquire(
        &self,
        path: &str,
        name: &str,
        body: &impl Serialize,
        streams: bool,
    ) -> Result<Answer, DriverError> {
        let path = format!("{path}?namespace={}", self.namespace);
        let mut request = self.request(Method::POST, json(body)?);
        let headers = request.headers_mut();
        if let Ok(name) = HeaderValue::from_str(name) {
            headers.insert("idempotency-key", name);
        }
        if streams {
            headers.insert(ACCEPT, HeaderValue::from_static("application/x-ndjson"));
        }
        self.in_time(self.send(&path, request)).await
    }

    /// Runs a request on the engine thread, to its end also if nobody waits for it any more.
    async fn on_engine<T: Send + 'static>(
        &self,
        request: impl Future<Output = Result<T, DriverError>> + Send + 'static,
    ) -> Result<T, DriverError> {
        match self.engine.spawn(request).await {
            Ok(answer) => answer,
            Err(_) => Err(DriverError::closed()),
        }
    }

    async fn in_time<T>(
        &self,
        answer: impl Future<Output = Result<T, DriverError>>,
    ) -> Result<T, DriverError> {
        match tokio::time::timeout(self.timeout, answer).await {
            Ok(answer) => answer,
            Err(_) => {
                let why = format!("the gateway did not answer within {:?}", self.timeout);
                Err(DriverError::unavailable(Reached::Maybe, why))
            }
        }
    }

    fn request(&self, method: Method, body: Bytes) -> Request<Full<Bytes>> {
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = method;
        let headers = request.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(
            USER_AGENT,
            HeaderValue::from_static(concat!("distlock/", env!("CARGO_PKG_VERSION"))),
        );
        if let Ok(client) = HeaderValue::from_str(&self.client.to_string()) {
            headers.insert("distlock-client", client);
        }
        if let Some(token) = &self.token {
            headers.insert(AUTHORIZATION, token.clone());
        }
        request
    }

    /// Sends a request; to each gateway in turn, as long as none is reached, or says that it cannot serve it now: then it
    /// has done nothing.
    async fn send(&self, path: &str, request: Request<Full<Bytes>>) -> Result<Answer, DriverError> {
        let mut left = self.bases.len();
        loop {
            let at = self.current.load(Ordering::Acquire);
            let base = &self.bases[at % self.bases.len()];
            left -= 1;
            match self.send_to(base, path, request.clone()).await {
                Ok(answer) if answer.body.status() == StatusCode::SERVICE_UNAVAILABLE && left > 0 => {}
                Err(e) if is_unreached(&e) && left > 0 => {}
                done => return done,
            }
            let next = at.wrapping_add(1);
            // Somebody else may have moved on already.
            let _ = self
                .current
                .compare_exchange(at, next, Ordering::AcqRel, Ordering::Acquire);
        }
    }

    /// Sends a request to one gateway.
    async fn send_to(
        &self,
        base: &str,
        path: &str,
        mut request: Request<Full<Bytes>>,
    ) -> Result<Answer, DriverError> {
        *request.uri_mut() = format!("{base}{path}")
            .parse()
            .map_err(|e| invalid(format!("the address cannot be written: {e}")))?;
        let sent = self.clock.now();
        match self.http.request(request).await {
            Ok(body) => Ok(Answer { body, sent }),
            Err(e) => {
                let reached = if e.is_connect() {
                    Reached::No
                } else {
                    Reached::Maybe
                };
                Err(DriverError::unavailable(
                    reached,
                    format!("{base}: {}", causes(&e)),
                ))
            }
        }
    }
}

/// Whether what is sent to this address can be read on a network.
fn is_in_clear(base: &str) -> bool {
    let Some(rest) = base.strip_prefix("http://") else {
        return false;
    };
    let authority = rest.split('/').next().unwrap_or(rest);
    let host = authority.rsplit_once(':').map_or(authority, |(host, _)| host);
    let address = host.trim_matches(['[', ']']).parse::<IpAddr>();
    host != "localhost" && !address.is_ok_and(|address| address.is_loopback())
}

fn json(body: &impl Serialize) -> Result<Bytes, DriverError> {
    let text = serde_json::to_vec(body).map_err(|e| invalid(e.to_string()))?;
    Ok(text.into())
}

/// Reads an answer to its end.
pub(crate) async fn read<T: DeserializeOwned>(answer: Answer) -> Result<(T, Moment), DriverError> {
    let Answer { body, sent } = answer;
    let status = body.status();
    let bytes = Limited::new(body.into_body(), LARGEST).collect().await;
    let bytes = bytes
        .map_err(|e| DriverError::unavailable(Reached::Maybe, format!("the answer was cut off: {e}")))?
        .to_bytes();
    if status.is_success() {
        let value = serde_json::from_slice(&bytes).map_err(|e| {
            let why = format!("an answer is not understood ({e}); is a distlock service there?");
            DriverError::unavailable(Reached::Maybe, why)
        })?;
        return Ok((value, sent));
    }
    Err(match serde_json::from_slice::<Problem>(&bytes) {
        Ok(problem) => DriverError {
            source: problem.lost().map(|_| Over.into()),
            ..of_problem(status.as_u16(), problem)
        },
        Err(_) => of_status(status.as_u16()),
    })
}

/// Marks the error of a lease that is over.
#[derive(Debug)]
pub(crate) struct Over;

impl fmt::Display for Over {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the lease is over")
    }
}

impl std::error::Error for Over {}

fn causes(e: &(dyn std::error::Error + 'static)) -> String {
    let mut text = e.to_string();
    let mut cause = e.source();
    while let Some(e) = cause {
        text.push_str(&format!(": {e}"));
        cause = e.source();
    }
    text
}

/// Whether a host is written with its port; the colons of a bare IPv6 address are in brackets.
fn has_port(host: &str) -> bool {
    let end = host.rfind(']').map_or(0, |at| at + 1);
    host[end..].contains(':')
}

fn token(config: &Config) -> Result<Option<HeaderValue>, DriverError> {
    let token = match (&config.token, &config.token_file) {
        (Some(token), _) => token.clone(),
        (None, Some(path)) => {
            let text = std::fs::read_to_string(path).map_err(|e| of(path, &e))?;
            Secret::new(text.trim())
        }
        (None, None) => return Ok(None),
    };
    let header = HeaderValue::from_str(&format!("Bearer {}", token.reveal()));
    let mut header = header.map_err(|_| invalid("the token has characters that no header can carry"))?;
    header.set_sensitive(true);
    Ok(Some(header))
}

fn of(path: &Path, e: &dyn fmt::Display) -> DriverError {
    invalid(format!("{}: {e}", path.display()))
}

fn tls(config: &Config) -> Result<ClientConfig, DriverError> {
    let mut roots = RootCertStore::empty();
    match &config.ca {
        Some(path) => {
            let certificates =
                CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
            for certificate in certificates.map_err(|e| of(path, &e))? {
                roots.add(certificate).map_err(|e| of(path, &e))?;
            }
        }
        None if config.tls => {
            let native = rustls_native_certs::load_native_certs();
            roots.add_parsable_certificates(native.certs);
        }
        None => {}
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|e| invalid(e.to_string()))?
        .with_root_certificates(roots);
    match (&config.cert, &config.key) {
        (None, None) => Ok(builder.with_no_client_auth()),
        (Some(cert), Some(key)) => {
            let chain = CertificateDer::pem_file_iter(cert).and_then(Iterator::collect::<Result<Vec<_>, _>>);
            let chain = chain.map_err(|e| of(cert, &e))?;
            let own = PrivateKeyDer::from_pem_file(key).map_err(|e| of(key, &e))?;
            builder
                .with_client_auth_cert(chain, own)
                .map_err(|e| of(cert, &e))
        }
        _ => Err(invalid("cert= and key= go together")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_can_be_read_on_a_network_is_known() {
        for base in [
            "http://gateway:7466",
            "http://10.0.0.1:7466/locks",
            "http://[2001:db8::1]:7466",
        ] {
            assert!(is_in_clear(base), "{base}");
        }
        for base in [
            "https://gateway:443",
            "http://localhost:7466",
            "http://127.0.0.2:7466/locks",
            "http://[::1]:7466",
        ] {
            assert!(!is_in_clear(base), "{base}");
        }
    }
}
