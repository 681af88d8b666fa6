//! Requests to the cluster: one endpoint at a time, another one when it does not answer.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use distlock_core::clock::Clock;
use distlock_core::driver::{DriverError, Reached, Refusal};
use distlock_core::per_runtime::PerRuntime;
use std::time::Duration;
use tokio::sync::watch;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Request, Status};

use crate::auth::Auth;
use crate::config::Config;
use crate::failure::{Failure, Why};
use crate::wire::{self, Call, Reply};

/// The interval of HTTP/2 pings; etcd closes connections that ping more often than every 5 s.
const PING: Duration = Duration::from_secs(10);

/// A client of one cluster.
///
/// Requests go to the *current* endpoint. One that does not answer, or has no leader, is left for the next one;
/// streams follow (see [`moved`](Self::moved)).
pub(crate) struct Client {
    endpoints: Vec<Endpoint>,
    names: Vec<String>,
    channels: PerRuntime<Arc<[Channel]>>,
    current: watch::Sender<usize>,
    /// The highest raft term that was seen: what a deposed leader says has a lower one.
    term: AtomicU64,
    auth: Option<Auth>,
    clock: Clock,
    timeout: Duration,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("endpoints", &self.names)
            .field("current", &self.current())
            .field("auth", &self.auth)
            .finish_non_exhaustive()
    }
}

/// The endpoint that was current when a request or stream was started.
#[derive(Debug, Clone)]
pub(crate) struct Peer {
    pub(crate) index: usize,
    pub(crate) channel: Channel,
}

impl Client {
    /// No I/O but reading the TLS files.
    pub(crate) fn new(config: &Config, clock: Clock) -> Result<Self, DriverError> {
        config.check()?;
        let tls = config.tls.then(|| tls(config)).transpose()?;
        let mut endpoints = Vec::new();
        let mut names = Vec::new();
        for address in config.addresses() {
            let bad = |e: tonic::transport::Error| {
                DriverError::refused(Refusal::InvalidConfig(format!(
                    "{address} is not an address: {e}"
                )))
            };
            let mut endpoint = Endpoint::from_shared(address.clone())
                .map_err(bad)?
                .connect_timeout(config.connect_timeout)
                .http2_keep_alive_interval(PING)
                .keep_alive_timeout(config.timeout)
                .tcp_nodelay(true);
            if let Some(tls) = &tls {
                endpoint = endpoint.tls_config(tls.clone()).map_err(bad)?;
            }
            endpoints.push(endpoint);
            names.push(address);
        }
        Ok(Self {
            endpoints,
            names,
            channels: PerRuntime::new(),
            current: watch::Sender::new(0),
            term: AtomicU64::new(0),
            auth: config
                .account
                .clone()
                .map(|(name, password)| Auth::new(name, password)),
            clock,
            timeout: config.timeout,
        })
    }

    pub(crate) fn clock(&self) -> &Clock {
        &self.clock
    }

    /// How long one request may take.
    pub(crate) fn timeout(&self) -> Duration {
        self.timeout
    }

    /// The endpoints' addresses.
    pub(crate) fn names(&self) -> &[String] {
        &self.names
    }

    /// The index of the endpoint that is asked.
    pub(crate) fn current(&self) -> usize {
        *self.current.borrow()
    }

    /// Tells when another endpoint becomes the current one.
    pub(crate) fn moved(&self) -> watch::Receiver<usize> {
        self.current.subscribe()
    }

    /// This endpoint did not answer: the next one is asked from now on, unless somebody has left it already.
    pub(crate) fn leave(&self, index: usize) {
        self.current.send_if_modified(|current| {
            let leave = *current == index && self.endpoints.len() > 1;
            if leave {
                *current = (index + 1) % self.endpoints.len();
                tracing::debug!(target: "distlock", from = self.names[index], to = self.names[*current],
                    "another etcd endpoint is asked");
            }
            leave
        });
    }

    /// A channel of the present runtime to this endpoint.
    pub(crate) async fn peer(&self, index: usize) -> Peer {
        let make = || async {
            let channels = self.endpoints.iter().map(Endpoint::connect_lazy).collect();
            Ok::<_, std::convert::Infallible>(channels)
        };
        let channel = match self.channels.get(make).await {
            Ok((_, channels)) => channels[index].clone(),
            Err(never) => match never {},
        };
        Peer { index, channel }
    }

    /// Whether an answer may be believed: one of a raft term older than one already seen comes from a member that
    /// was cut off.
    pub(crate) fn is_recent(&self, term: u64) -> bool {
        self.term.fetch_max(term, Ordering::AcqRel) <= term
    }

    /// Prepares a request: a member without a leader refuses it at once instead of letting it hang.
    pub(crate) async fn request<T>(&self, message: T, peer: &Peer) -> Result<Request<T>, Failure> {
        let mut request = Request::new(message);
        request
            .metadata_mut()
            .insert("hasleader", MetadataValue::from_static("true"));
        if let Some(auth) = &self.auth {
            let token: MetadataValue<Ascii> = auth
                .token(peer.channel.clone())
                .await
                .map_err(|status| self.sign_in_failed(&status, peer))?;
            request.metadata_mut().insert("token", token);
        }
        Ok(request)
    }

    fn sign_in_failed(&self, status: &Status, peer: &Peer) -> Failure {
        let mut failure = Failure::from_status(status, &self.names[peer.index]);
        // The request that needed the token was not sent.
        failure.reached = Reached::No;
        failure
    }

    /// The token of this request is no longer accepted.
    pub(crate) fn sign_in_again(&self) {
        if let Some(auth) = &self.auth {
            auth.forget();
        }
    }

    /// Sends a request, to each endpoint at most once, until one takes it.
    ///
    /// A request that may have been applied is never sent again from here.
    ///
    /// # Cancel safety
    /// The request may be applied although the future was dropped.
    pub(crate) async fn call<C: Call>(&self, message: C) -> Result<C::Reply, Failure> {
        let mut signed_in_again = false;
        let mut tried = 0;
        loop {
            let index = self.current();
            match self.call_at(index, message.clone()).await {
                Ok(reply) => return Ok(reply),
                Err(failure) if failure.why == Why::SignIn && self.auth.is_some() && !signed_in_again => {
                    signed_in_again = true;
                    self.sign_in_again();
                }
                Err(failure) if failure.why == Why::Member => {
                    self.leave(index);
                    tried += 1;
                    if failure.reached != Reached::No || tried >= self.endpoints.len() {
                        return Err(failure);
                    }
                }
                Err(failure) => return Err(failure),
            }
        }
    }

    /// Sends a request to this endpoint.
    pub(crate) async fn call_at<C: Call>(&self, index: usize, message: C) -> Result<C::Reply, Failure> {
        let name = &self.names[index];
        let sent = async {
            let peer = self.peer(index).await;
            let request = self.request(message, &peer).await?;
            wire::unary(peer.channel, request)
                .await
                .map_err(|status| Failure::from_status(&status, name))
        };
        let reply = match self.clock.timeout(self.timeout, sent).await {
            Some(answered) => answered?,
            None => return Err(Failure::timeout(name)),
        };
        if let Some(header) = reply.header() {
            self.is_recent(header.raft_term);
        }
        Ok(reply)
    }
}

fn tls(config: &Config) -> Result<ClientTlsConfig, DriverError> {
    let read = |file: &std::path::Path| {
        std::fs::read(file).map_err(|e| {
            DriverError::refused(Refusal::InvalidConfig(format!(
                "{} cannot be read: {e}",
                file.display()
            )))
        })
    };
    let mut tls = ClientTlsConfig::new();
    tls = match &config.ca {
        Some(file) => tls.ca_certificate(Certificate::from_pem(read(file)?)),
        None => tls.with_native_roots(),
    };
    if let (Some(cert), Some(key)) = (&config.cert, &config.key) {
        tls = tls.identity(Identity::from_pem(read(cert)?, read(key)?));
    }
    if let Some(name) = &config.server_name {
        tls = tls.domain_name(name);
    }
    Ok(tls)
}
