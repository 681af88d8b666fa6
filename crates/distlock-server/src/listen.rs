//! Connections: plain, TLS, or a unix socket.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::Request;
use hyper::body::Incoming;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpSocket, UnixListener};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::door::From;
use crate::limits::Limits;

/// How long a TLS handshake may take.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// How long to wait after an `accept` that failed, for instance without descriptors left.
const PAUSE: Duration = Duration::from_millis(50);

/// How many connections may wait to be taken (the kernel's own limit is often the same). Those beyond it ask again after a
/// second: many clients that come back at the same time shall not wait for that.
const BACKLOG: u32 = 4096;

/// How often a silent connection is asked whether anybody is there.
const KEEPALIVE: Duration = Duration::from_secs(10);

/// The files of TLS.
#[derive(Debug, Clone)]
pub struct Tls {
    /// The certificate chain, PEM.
    pub certificates: PathBuf,
    /// The private key, PEM.
    pub key: PathBuf,
    /// The authority that signs the certificates of clients, PEM: with it, only those are served.
    pub client_authority: Option<PathBuf>,
}

impl Tls {
    /// Reads the files.
    ///
    /// # Errors
    /// What keeps them from being read or used, naming the file.
    pub(crate) fn acceptor(&self) -> io::Result<TlsAcceptor> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(io::Error::other)?;
        let builder = match &self.client_authority {
            None => builder.with_no_client_auth(),
            Some(path) => {
                let mut roots = rustls::RootCertStore::empty();
                for certificate in certificates(path)? {
                    roots.add(certificate).map_err(|e| of(path, e))?;
                }
                let verifier =
                    rustls::server::WebPkiClientVerifier::builder_with_provider(roots.into(), provider);
                builder.with_client_cert_verifier(verifier.build().map_err(|e| of(path, e))?)
            }
        };
        let key = PrivateKeyDer::from_pem_file(&self.key).map_err(|e| of(&self.key, e))?;
        let mut config = builder
            .with_single_cert(certificates(&self.certificates)?, key)
            .map_err(|e| of(&self.certificates, e))?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(TlsAcceptor::from(Arc::new(config)))
    }
}

fn certificates(path: &Path) -> io::Result<Vec<CertificateDer<'static>>> {
    let all = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    match all.map_err(|e| of(path, e))? {
        none if none.is_empty() => Err(of(path, "no certificate is in it")),
        all => Ok(all),
    }
}

fn of(path: &Path, e: impl std::fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, format!("{}: {e}", path.display()))
}

/// Where a gateway listens.
pub struct Listener {
    socket: Socket,
    tls: Option<TlsAcceptor>,
}

impl std::fmt::Debug for Listener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Listener").field(&self.url()).finish()
    }
}

enum Socket {
    Tcp(TcpListener),
    Unix(UnixListener, PathBuf),
}

impl Listener {
    /// Listens on an address.
    ///
    /// # Errors
    /// What keeps it from listening, or the TLS files from being used.
    pub async fn tcp(at: SocketAddr, tls: Option<&Tls>) -> io::Result<Self> {
        let tls = tls.map(Tls::acceptor).transpose()?;
        let socket = listen(at).map_err(|e| io::Error::new(e.kind(), format!("{at}: {e}")))?;
        Ok(Self {
            socket: Socket::Tcp(socket),
            tls,
        })
    }

    /// Listens on a unix socket, which only this user can open. One that is left over is replaced.
    ///
    /// # Errors
    /// What keeps it from listening; somebody else who listens there.
    pub async fn unix(path: &Path) -> io::Result<Self> {
        use std::os::unix::fs::{FileTypeExt, PermissionsExt};
        let named = |e: io::Error| io::Error::new(e.kind(), format!("{}: {e}", path.display()));
        if std::fs::symlink_metadata(path).is_ok_and(|m| m.file_type().is_socket()) {
            if tokio::net::UnixStream::connect(path).await.is_ok() {
                return Err(named(io::Error::from(io::ErrorKind::AddrInUse)));
            }
            std::fs::remove_file(path).map_err(named)?;
        }
        let socket = UnixListener::bind(path).map_err(named)?;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).map_err(named)?;
        Ok(Self {
            socket: Socket::Unix(socket, path.to_owned()),
            tls: None,
        })
    }

    /// The address, for people.
    pub fn url(&self) -> String {
        match &self.socket {
            Socket::Unix(_, path) => format!("unix:{}", path.display()),
            Socket::Tcp(socket) => {
                let scheme = if self.tls.is_some() { "https" } else { "http" };
                match socket.local_addr() {
                    Ok(at) => format!("{scheme}://{at}"),
                    Err(_) => scheme.to_owned(),
                }
            }
        }
    }
}

fn listen(at: SocketAddr) -> io::Result<TcpListener> {
    let socket = match at {
        SocketAddr::V4(_) => TcpSocket::new_v4(),
        SocketAddr::V6(_) => TcpSocket::new_v6(),
    }?;
    // A gateway that was restarted listens at once.
    socket.set_reuseaddr(true)?;
    socket.bind(at)?;
    socket.listen(BACKLOG)
}

/// What the connections of a gateway share.
#[derive(Debug, Clone)]
pub(crate) struct Connections {
    pub(crate) router: Router,
    pub(crate) limits: Limits,
    /// Cancelled when no more connections are taken, and idle ones end.
    pub(crate) closing: CancellationToken,
    pub(crate) tasks: TaskTracker,
    pub(crate) room: Arc<Semaphore>,
}

impl Connections {
    /// Takes connections until the shutdown.
    pub(crate) async fn accept(self, listener: Listener) {
        loop {
            let room = tokio::select! {
                room = self.room.clone().acquire_owned() => room,
                () = self.closing.cancelled() => break,
            };
            let accepted = tokio::select! {
                accepted = listener.accept(&self.limits) => accepted,
                () = self.closing.cancelled() => break,
            };
            let (stream, from) = match accepted {
                Ok(accepted) => accepted,
                Err(e) => {
                    tracing::warn!(target: "distlock", error = %e, "a connection could not be taken");
                    tokio::time::sleep(PAUSE).await;
                    continue;
                }
            };
            let (own, tls) = (self.clone(), listener.tls.clone());
            self.tasks.spawn(async move {
                match (stream, tls) {
                    (Stream::Unix(stream), _) => own.serve(stream, from).await,
                    (Stream::Tcp(stream), None) => own.serve(stream, from).await,
                    (Stream::Tcp(stream), Some(tls)) => {
                        if let Ok(Ok(stream)) = tokio::time::timeout(HANDSHAKE, tls.accept(stream)).await {
                            own.serve(Box::new(stream), from).await;
                        }
                    }
                }
                drop(room);
            });
        }
        if let Socket::Unix(_, path) = &listener.socket {
            // If it cannot be removed, the next gateway will.
            let _ = std::fs::remove_file(path);
        }
    }

    async fn serve(&self, stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, from: From) {
        // One router for all connections: a layer of its own would copy every route of it.
        let router = TowerToHyperService::new(self.router.clone());
        let service = service_fn(move |mut request: Request<Incoming>| {
            request.extensions_mut().insert(from);
            router.call(request)
        });
        let mut http = hyper::server::conn::http1::Builder::new();
        http.timer(TokioTimer::new())
            .header_read_timeout(self.limits.head)
            .max_buf_size(16 * 1024);
        let mut connection = std::pin::pin!(http.serve_connection(TokioIo::new(stream), service));
        tokio::select! {
            // What went wrong concerns the other side alone.
            _ = connection.as_mut() => {}
            () = self.closing.cancelled() => {
                connection.as_mut().graceful_shutdown();
                let _ = connection.await;
            }
        }
    }
}

enum Stream {
    Tcp(tokio::net::TcpStream),
    Unix(tokio::net::UnixStream),
}

impl Listener {
    async fn accept(&self, limits: &Limits) -> io::Result<(Stream, From)> {
        match &self.socket {
            Socket::Tcp(socket) => {
                let (stream, from) = socket.accept().await?;
                // Answers are small and waited for.
                let _ = stream.set_nodelay(true);
                // What cannot be set is as the system has it.
                let _ = end_when_stalled(&stream, limits.stalled);
                Ok((Stream::Tcp(stream), From(Some(canonical(from.ip())))))
            }
            Socket::Unix(socket, _) => {
                let (stream, _) = socket.accept().await?;
                Ok((Stream::Unix(stream), From(None)))
            }
        }
    }
}

/// Has the kernel end a connection whose other side has vanished, or takes nothing of what it is sent: neither is an
/// error of ours, and a wait for either has no end.
fn end_when_stalled(stream: &tokio::net::TcpStream, after: Duration) -> io::Result<()> {
    use rustix::net::sockopt;
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepintvl(stream, KEEPALIVE)?;
    #[cfg(target_os = "linux")]
    {
        sockopt::set_tcp_keepidle(stream, KEEPALIVE)?;
        sockopt::set_tcp_user_timeout(stream, u32::try_from(after.as_millis()).unwrap_or(u32::MAX))?;
    }
    #[cfg(not(target_os = "linux"))]
    let _ = after;
    Ok(())
}

/// One client, one address, however it is written.
fn canonical(ip: IpAddr) -> IpAddr {
    ip.to_canonical()
}
