//! Redis (or Valkey) in every deployment: standalone, several, Sentinel, Cluster.

mod cluster;
mod options;
mod resp;
mod sentinel;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tempfile::TempDir;

pub use self::cluster::RedisCluster;
pub use self::options::RedisOptions;
pub use self::resp::{Resp, RespClient};
pub use self::sentinel::RedisSentinel;
use super::port::Port;
use super::process::Process;
use super::program::{Data, StartError};
use super::tls::Certificates;

/// A standalone Redis server of one's own.
#[derive(Debug)]
pub struct Redis {
    process: Process,
    socket: Option<PathBuf>,
    tls: Option<(Port, Arc<Certificates>)>,
    user: Option<(String, String)>,
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

    /// Starts `n` servers that know nothing of each other, as Redlock wants them.
    ///
    /// # Errors
    /// [`StartError`].
    pub async fn several(n: usize, options: &RedisOptions) -> Result<Vec<Self>, StartError> {
        let mut servers = Vec::with_capacity(n);
        for _ in 0..n {
            servers.push(options.clone().start().await?);
        }
        Ok(servers)
    }

    /// A server with other options.
    pub fn options() -> RedisOptions {
        RedisOptions::default()
    }

    async fn ready(&mut self) -> Result<(), StartError> {
        let (address, pid) = (self.address(), self.process.pid());
        let admin = self.user.is_some();
        self.process
            .ready(async || answers_as(&address, pid, admin).await)
            .await
    }

    /// `redis://[user:password@]127.0.0.1:<port>/`.
    pub fn url(&self) -> String {
        format!("redis://{}{}/", self.credentials(), self.address())
    }

    /// `rediss://[user:password@]127.0.0.1:<TLS port>/`, if TLS was asked for.
    pub fn tls_url(&self) -> Option<String> {
        let (port, _) = self.tls.as_ref()?;
        Some(format!("rediss://{}{}/", self.credentials(), port.address()))
    }

    /// The certificates, if TLS was asked for.
    pub fn certificates(&self) -> Option<&Certificates> {
        self.tls.as_ref().map(|(_, certificates)| &**certificates)
    }

    /// `redis+unix://<path>`, if a socket was asked for.
    pub fn unix_url(&self) -> Option<String> {
        Some(format!("redis+unix://{}", self.socket.as_ref()?.display()))
    }

    fn credentials(&self) -> String {
        match &self.user {
            Some((name, password)) => format!("{name}:{password}@"),
            None => String::new(),
        }
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
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// The server process.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    /// Sends one command over a new connection, as an administrator.
    ///
    /// # Errors
    /// When the server does not answer.
    pub async fn command(&self, words: &[&str]) -> io::Result<Resp> {
        connect(&self.address(), self.user.is_some())
            .await?
            .command(words)
            .await
    }

    /// One field of `INFO`, such as `role`.
    ///
    /// # Errors
    /// When the server does not answer.
    pub async fn info(&self, field: &str) -> io::Result<Option<String>> {
        let info = self.command(&["INFO"]).await?;
        Ok(info.text().and_then(|info| {
            let line = info
                .lines()
                .find(|l| l.split_once(':').is_some_and(|(name, _)| name == field))?;
            Some(line[field.len() + 1..].to_owned())
        }))
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

    /// Starts it again on the same ports, and waits until it answers.
    ///
    /// # Errors
    /// [`StartError`].
    pub async fn restart(&mut self, data: Data) -> Result<(), StartError> {
        self.process.again(data, |_| Ok(()))?;
        self.ready().await
    }
}

async fn connect(address: &str, as_admin: bool) -> io::Result<RespClient> {
    let mut client = RespClient::connect(address).await?;
    if as_admin {
        client
            .command(&["AUTH", options::ADMIN.0, options::ADMIN.1])
            .await?;
    }
    Ok(client)
}

/// Whether the server at `address` is the process `pid` and answers (it may be loading its data until then).
async fn answers_as(address: &str, pid: u32, as_admin: bool) -> bool {
    let Ok(mut client) = connect(address, as_admin).await else {
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
