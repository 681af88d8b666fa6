//! Opening a PostgreSQL connection.

use distlock_core::driver::DriverError;
use distlock_core::engine::Engine;
use std::path::Path;
use std::time::Duration;

use tokio_postgres::config::{SslMode, TargetSessionAttrs};
use tokio_postgres::{AsyncMessage, Client, Connection, NoTls, Socket};
use tokio_postgres_rustls::MakeRustlsConnect;
use tracing::debug;

use super::fault;
use crate::config::{Config, Host};
use crate::fault::Fault;

/// What every session of ours has: statements that never wait long for a row, the isolation that our statements are
/// written for, and commits that are on disk when they are answered (a replica's confirmation is kept if configured).
const SESSION: &str = "SELECT set_config(name, CASE name \
        WHEN 'lock_timeout' THEN '2000' \
        WHEN 'default_transaction_isolation' THEN 'read committed' \
        WHEN 'TimeZone' THEN 'UTC' \
        WHEN 'synchronous_commit' THEN CASE setting WHEN 'off' THEN 'on' ELSE setting END \
        ELSE '0' END, false) \
    FROM pg_settings WHERE name IN ('lock_timeout', 'default_transaction_isolation', 'synchronous_commit', 'TimeZone', \
        'idle_session_timeout', 'idle_in_transaction_session_timeout')";

/// Opens connections to whichever of the hosts takes writes.
#[derive(Clone)]
pub(crate) struct Connector {
    config: tokio_postgres::Config,
    tls: Option<MakeRustlsConnect>,
    timeout: Duration,
}

impl std::fmt::Debug for Connector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connector")
            .field("tls", &self.tls.is_some())
            .finish_non_exhaustive()
    }
}

impl Connector {
    pub(crate) fn new(config: &Config) -> Result<Self, DriverError> {
        let mut pg = tokio_postgres::Config::new();
        for host in &config.hosts {
            match host {
                Host::Tcp(host, port) => pg.host(host).port(*port),
                Host::Unix(path) => {
                    let (dir, port) = socket(path);
                    pg.host_path(dir).port(port)
                }
            };
        }
        pg.user(config.user.as_deref().unwrap_or("postgres"));
        if let Some(password) = &config.password {
            pg.password(password.reveal());
        }
        if let Some(database) = &config.database {
            pg.dbname(database);
        }
        pg.application_name("distlock")
            .connect_timeout(config.connect_timeout)
            .keepalives_idle(Duration::from_secs(10))
            .keepalives_interval(Duration::from_secs(5))
            .keepalives_retries(3)
            .tcp_user_timeout(Duration::from_secs(20));
        if config.hosts.len() > 1 {
            pg.target_session_attrs(TargetSessionAttrs::ReadWrite);
        }
        let tls = match &config.tls {
            Some(tls) => Some(MakeRustlsConnect::new(crate::tls::client(tls)?)),
            None => None,
        };
        pg.ssl_mode(if tls.is_some() {
            SslMode::Require
        } else {
            SslMode::Disable
        });
        Ok(Self {
            config: pg,
            tls,
            timeout: config.connect_timeout,
        })
    }

    /// A session, ready for statements; its socket is driven by the present runtime.
    pub(crate) async fn connect(&self, engine: &Engine) -> Result<Client, Fault> {
        self.connect_with(engine, |_| {}).await
    }

    /// A session that passes on what the server says unasked.
    pub(crate) async fn connect_with(
        &self,
        engine: &Engine,
        heard: impl FnMut(AsyncMessage) + Send + 'static,
    ) -> Result<Client, Fault> {
        // Over everything, handshake and set-up included: a stopped server still accepts connections.
        let opened = engine.clock().timeout(self.timeout, self.open(heard)).await;
        opened.unwrap_or_else(|| {
            Err(Fault::Unsent(
                format!("no session within {:?}", self.timeout).into(),
            ))
        })
    }

    async fn open(&self, heard: impl FnMut(AsyncMessage) + Send + 'static) -> Result<Client, Fault> {
        let client = match &self.tls {
            Some(tls) => {
                let (client, connection) = self
                    .config
                    .connect(tls.clone())
                    .await
                    .map_err(|e| fault(e, false))?;
                tokio::spawn(drive(connection, heard));
                client
            }
            None => {
                let (client, connection) = self.config.connect(NoTls).await.map_err(|e| fault(e, false))?;
                tokio::spawn(drive(connection, heard));
                client
            }
        };
        client.batch_execute(SESSION).await.map_err(|e| fault(e, false))?;
        Ok(client)
    }
}

/// A socket's directory and port: by the name of its file (`.s.PGSQL.5433`), or the directory alone.
fn socket(path: &Path) -> (&Path, u16) {
    let port = path
        .file_name()
        .and_then(|name| name.to_str()?.strip_prefix(".s.PGSQL.")?.parse().ok());
    match (path.parent(), port) {
        (Some(dir), Some(port)) => (dir, port),
        _ => (path, 5432),
    }
}

/// Moves the bytes of a connection until it ends.
async fn drive<S>(mut connection: Connection<Socket, S>, mut heard: impl FnMut(AsyncMessage))
where
    S: tokio_postgres::tls::TlsStream + Unpin,
{
    while let Some(message) = std::future::poll_fn(|cx| connection.poll_message(cx)).await {
        match message {
            Ok(message) => heard(message),
            Err(e) => {
                debug!(target: "distlock", error = %e, "a PostgreSQL connection ended");
                return;
            }
        }
    }
}
