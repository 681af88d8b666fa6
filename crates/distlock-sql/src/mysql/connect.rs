//! Opening a MySQL connection.

use std::time::Duration;

use distlock_core::clock::Clock;
use distlock_core::driver::DriverError;
use mysql_async::prelude::Queryable;
use mysql_async::{ClientIdentity, Conn, Opts, OptsBuilder, SslOpts};

use super::fault;
use crate::config::{Config, Host, invalid};
use crate::fault::Fault;

/// What every session of ours has: the isolation and modes that our statements are written for, whatever the
/// server's defaults are, statements that never wait long for a row, and no death while idle.
const SESSION: [&str; 2] = [
    "SET SESSION sql_mode = 'STRICT_ALL_TABLES', autocommit = 1, innodb_lock_wait_timeout = 2, \
     wait_timeout = 28800, time_zone = '+00:00'",
    "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
];

/// Opens connections to whichever of the hosts takes writes.
#[derive(Debug, Clone)]
pub(crate) struct Connector {
    hosts: Vec<Opts>,
    timeout: Duration,
}

impl Connector {
    pub(crate) fn new(config: &Config) -> Result<Self, DriverError> {
        if config.database.is_none() {
            return Err(invalid(
                "a MySQL URL names the database: mysql://host/database".into(),
            ));
        }
        let tls = match &config.tls {
            Some(tls) => {
                // Read once here, so that a bad file is told when the client is built.
                crate::tls::client(tls)?;
                let mut ssl = SslOpts::default();
                if let Some(ca) = &tls.ca {
                    ssl = ssl
                        .with_root_certs(vec![ca.clone().into()])
                        .with_disable_built_in_roots(true);
                }
                if let (Some(cert), Some(key)) = (&tls.cert, &tls.key) {
                    ssl = ssl.with_client_identity(Some(ClientIdentity::new(
                        cert.clone().into(),
                        key.clone().into(),
                    )));
                }
                Some(ssl)
            }
            None => None,
        };
        let opts = |host: &Host| {
            let opts = OptsBuilder::default()
                .user(Some(config.user.as_deref().unwrap_or("root")))
                .pass(config.password.as_ref().map(|p| p.reveal()))
                .db_name(config.database.clone())
                .tcp_keepalive(Some(Duration::from_secs(10)))
                .tcp_nodelay(true)
                // Never moved from TCP to a socket behind our back.
                .prefer_socket(false)
                .setup(SESSION.map(String::from).to_vec())
                .ssl_opts(tls.clone());
            match host {
                Host::Tcp(host, port) => opts.ip_or_hostname(host.clone()).tcp_port(*port),
                Host::Unix(path) => opts.socket(Some(path.display().to_string())),
            }
        };
        Ok(Self {
            hosts: config.hosts.iter().map(|host| opts(host).into()).collect(),
            timeout: config.connect_timeout,
        })
    }

    /// A session on the first host that takes writes.
    pub(crate) async fn connect(&self, clock: &Clock) -> Result<Conn, Fault> {
        self.first(clock, true).await
    }

    /// A session on the first host that is there, for a look at it.
    pub(crate) async fn connect_any(&self, clock: &Clock) -> Result<Conn, Fault> {
        self.first(clock, false).await
    }

    async fn first(&self, clock: &Clock, writes: bool) -> Result<Conn, Fault> {
        let mut last = Fault::Unsent("no host is configured".into());
        for host in &self.hosts {
            // Over everything, handshake and set-up included: a stopped server still accepts connections.
            match clock.timeout(self.timeout, self.open(host, writes)).await {
                Some(Ok(conn)) => return Ok(conn),
                Some(Err(fault)) => last = fault,
                None => last = Fault::Unsent(format!("no session within {:?}", self.timeout).into()),
            }
        }
        Err(last)
    }

    async fn open(&self, host: &Opts, writes: bool) -> Result<Conn, Fault> {
        let mut conn = Conn::new(host.clone()).await.map_err(|e| fault(e, false))?;
        // An administrator may write to a replica; his locks would be seen by nobody else.
        if writes {
            let read_only: Option<i64> = conn
                .query_first("SELECT @@global.read_only")
                .await
                .map_err(|e| fault(e, false))?;
            if read_only != Some(0) {
                return Err(Fault::ReadOnly("read_only is on".into()));
            }
        }
        Ok(conn)
    }
}
