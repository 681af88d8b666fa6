//! How a standalone Redis is started.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

use tempfile::TempDir;

use super::super::find::find;
use super::super::port::Port;
use super::super::process::Process;
use super::super::program::{Program, StartError};
use super::super::tls::Certificates;
use super::Redis;

/// How to start a [`Redis`].
#[derive(Debug, Clone, Default)]
pub struct RedisOptions {
    program: Option<PathBuf>,
    durable: bool,
    unix_socket: bool,
    tls: bool,
    certificates: Option<Arc<Certificates>>,
    user: Option<(String, String, Vec<String>)>,
    args: Vec<OsString>,
    env: Vec<(OsString, OsString)>,
}

impl RedisOptions {
    /// Another server program, such as an older Redis or a Valkey.
    #[must_use]
    pub fn program(mut self, path: impl Into<PathBuf>) -> Self {
        self.program = Some(path.into());
        self
    }

    /// Every write reaches the append-only file before its reply: the data survive kill -9.
    #[must_use]
    pub fn durable(mut self) -> Self {
        self.durable = true;
        self
    }

    /// Listens on a unix socket as well.
    #[must_use]
    pub fn unix_socket(mut self) -> Self {
        self.unix_socket = true;
        self
    }

    /// Listens for TLS on a second port, with certificates made for the occasion ([`Redis::certificates`]). Clients
    /// may, but need not, show a certificate of their own.
    #[must_use]
    pub fn tls(mut self) -> Self {
        self.tls = true;
        self
    }

    /// The same with certificates that others share.
    #[must_use]
    pub fn certificates(mut self, certificates: Arc<Certificates>) -> Self {
        self.certificates = Some(certificates);
        self.tls()
    }

    /// Switches the default user off and makes `name` with these ACL rules (such as `["~distlock:*", "+@all"]`).
    /// [`Redis::command`] uses an administrator of the testkit's own.
    #[must_use]
    pub fn user<R: Into<String>>(
        mut self,
        name: &str,
        password: &str,
        rules: impl IntoIterator<Item = R>,
    ) -> Self {
        self.user = Some((
            name.into(),
            password.into(),
            rules.into_iter().map(Into::into).collect(),
        ));
        self
    }

    /// Further arguments, such as `["--maxmemory", "3mb"]`.
    #[must_use]
    pub fn args<A: Into<OsString>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// An environment variable for the server.
    #[must_use]
    pub fn env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.env.push((name.into(), value.into()));
        self
    }

    /// Starts the server and waits until it answers.
    ///
    /// # Errors
    /// [`StartError`].
    pub async fn start(self) -> Result<Redis, StartError> {
        let path = match &self.program {
            Some(path) if path.is_file() => path.clone(),
            Some(path) => return Err(StartError::Missing(path.display().to_string())),
            None => find("redis-server")?,
        };
        let dir = TempDir::with_prefix("distlock-redis-")?;
        let port = Port::free()?;
        let tls = match (self.tls, self.certificates) {
            (true, Some(given)) => Some((Port::free()?, given)),
            (true, None) => Some((Port::free()?, Arc::new(Certificates::new()?))),
            (false, _) => None,
        };
        let socket = self.unix_socket.then(|| dir.path().join("redis.sock"));
        let mut program = Program::new(path, dir.path())
            .args([
                "--port",
                &port.number().to_string(),
                "--bind",
                "127.0.0.1",
                "--daemonize",
                "no",
            ])
            .args([OsString::from("--dir"), dir.path().into()])
            .args(["--save", ""]);
        program = match self.durable {
            true => program.args(["--appendonly", "yes", "--appendfsync", "always"]),
            false => program.args(["--appendonly", "no"]),
        };
        if let Some(socket) = &socket {
            program = program.args([OsString::from("--unixsocket"), socket.into()]);
        }
        if let Some((port, certificates)) = &tls {
            program = program
                .args([
                    "--tls-port",
                    &port.number().to_string(),
                    "--tls-auth-clients",
                    "optional",
                ])
                .args([
                    OsString::from("--tls-cert-file"),
                    certificates.server_cert().into(),
                ])
                .args([OsString::from("--tls-key-file"), certificates.server_key().into()])
                .args([OsString::from("--tls-ca-cert-file"), certificates.ca().into()]);
        }
        if let Some((name, password, rules)) = &self.user {
            program = program
                .args(["--user", "default", "off"])
                .args([
                    "--user",
                    ADMIN.0,
                    "on",
                    &format!(">{}", ADMIN.1),
                    "~*",
                    "&*",
                    "+@all",
                ])
                .args(["--user", name, "on", &format!(">{password}")])
                .args(rules);
        }
        program = program.args(self.args);
        program.env = self.env;
        let mut redis = Redis {
            process: Process::start(program)?,
            socket,
            tls,
            user: self.user.map(|(name, password, _)| (name, password)),
            port,
            dir,
        };
        redis.ready().await?;
        Ok(redis)
    }
}

/// The testkit's own user on servers with ACLs.
pub(super) const ADMIN: (&str, &str) = ("distlock-testkit", "testkit-password");
