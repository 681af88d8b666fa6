//! A standalone Redis (or Valkey) server.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;

use tempfile::TempDir;

use super::find::find;
use super::port::Port;
use super::process::{Data, Process, Program, StartError};
use super::resp::{Resp, RespClient};

/// How to start a [`Redis`].
#[derive(Debug, Clone, Default)]
pub struct RedisOptions {
    program: Option<PathBuf>,
    durable: bool,
    unix_socket: bool,
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
        let program = match self.program {
            Some(path) if path.is_file() => path,
            Some(path) => return Err(StartError::Missing(path.display().to_string())),
            None => find("redis-server")?,
        };
        let dir = TempDir::with_prefix("distlock-redis-")?;
        let port = Port::free()?;
        let number = port.number().to_string();
        let mut program = Program::new(program, dir.path()).args(["--port", &number, "--bind", "127.0.0.1"]);
        program = program.args([
            OsString::from("--dir"),
            dir.path().into(),
            "--daemonize".into(),
            "no".into(),
            "--save".into(),
            "".into(),
        ]);
        program = if self.durable {
            program.args(["--appendonly", "yes", "--appendfsync", "always"])
        } else {
            program.args(["--appendonly", "no"])
        };
        let socket = self.unix_socket.then(|| dir.path().join("redis.sock"));
        if let Some(socket) = &socket {
            program = program.args([OsString::from("--unixsocket"), socket.into()]);
        }
        program = program.args(self.args);
        program.env = self.env;
        let mut redis = Redis {
            process: Process::start(program)?,
            socket,
            port,
            dir,
        };
        redis.ready().await?;
        Ok(redis)
    }
}

/// A standalone Redis server of one's own.
#[derive(Debug)]
pub struct Redis {
    process: Process,
    socket: Option<PathBuf>,
    port: Port,
    dir: TempDir,
}

impl Redis {
    /// Starts a server without persistence.
    ///
    /// # Errors
    /// [`StartError`].
    pub async fn start() -> Result<Self, StartError> {
        RedisOptions::default().start().await
    }

    /// A server with other options.
    pub fn options() -> RedisOptions {
        RedisOptions::default()
    }

    async fn ready(&mut self) -> Result<(), StartError> {
        let (address, pid) = (self.address(), self.process.pid());
        self.process.ready(async || answers_as(&address, pid).await).await
    }

    /// `redis://127.0.0.1:<port>/`.
    pub fn url(&self) -> String {
        format!("redis://{}/", self.address())
    }

    /// `redis+unix://<path>`, if it was asked for.
    pub fn unix_url(&self) -> Option<String> {
        Some(format!("redis+unix://{}", self.socket.as_ref()?.display()))
    }

    /// `127.0.0.1:<port>`.
    pub fn address(&self) -> String {
        self.port.address()
    }

    /// The port.
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// Its data directory.
    pub fn dir(&self) -> &std::path::Path {
        self.dir.path()
    }

    /// The server process.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    /// Sends one command over a new connection.
    ///
    /// # Errors
    /// When the server does not answer.
    pub async fn command(&self, words: &[&str]) -> io::Result<Resp> {
        RespClient::connect(&self.address()).await?.command(words).await
    }

    /// Stops the server (SIGSTOP); the kernel goes on accepting connections.
    ///
    /// # Errors
    /// When it has ended.
    pub fn pause(&self) -> io::Result<()> {
        self.process.pause()
    }

    /// Continues it.
    ///
    /// # Errors
    /// When it has ended.
    pub fn resume(&self) -> io::Result<()> {
        self.process.resume()
    }

    /// Kills it at once.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn kill9(&mut self) -> io::Result<()> {
        self.process.kill9()
    }

    /// Starts it again on the same port, and waits until it answers.
    ///
    /// # Errors
    /// [`StartError`].
    pub async fn restart(&mut self, data: Data) -> Result<(), StartError> {
        self.process.again(data)?;
        self.ready().await
    }
}

/// Whether the server at `address` is the process `pid` and answers (it may be loading its data until then).
pub(super) async fn answers_as(address: &str, pid: u32) -> bool {
    let Ok(mut client) = RespClient::connect(address).await else {
        return false;
    };
    match client.command(&["INFO", "server"]).await {
        Ok(Resp::Text(info)) => {
            info.lines().any(|line| line == format!("process_id:{pid}"))
                && matches!(client.command(&["PING"]).await, Ok(Resp::Text(pong)) if pong == "PONG")
        }
        _ => false,
    }
}
