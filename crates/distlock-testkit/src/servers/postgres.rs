//! PostgreSQL.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use rustix::process::Signal;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::find::find_postgres;
use super::port::Port;
use super::process::Process;
use super::program::{Data, Program, StartError};
use super::setup::Setup;

/// A PostgreSQL server of one's own, with the database `postgres` and the user `postgres` without a password.
#[derive(Debug)]
pub struct Postgres {
    process: Process,
    init: Program,
    port: Port,
    dir: TempDir,
}

impl Postgres {
    /// Makes a cluster and starts its server.
    ///
    /// # Errors
    /// [`StartError`].
    pub async fn start() -> Result<Self, StartError> {
        Self::start_with(Setup::default()).await
    }

    /// With further settings and variables, or in another place.
    ///
    /// # Errors
    /// [`StartError`].
    pub async fn start_with(setup: Setup) -> Result<Self, StartError> {
        let init = find_postgres("initdb")?;
        let (dir, user) = setup.place("postgres", "postgres")?;
        let mut init = Program::new(init, dir.path()).args([
            "-D",
            "data",
            "-U",
            "postgres",
            "-A",
            "trust",
            "--no-sync",
            "-E",
            "UTF8",
            "--locale=C",
        ]);
        init.user = user;
        init.run().await?;
        Self::serve(dir, Port::free()?, init, setup).await
    }

    /// A hot standby that follows this server by streaming.
    ///
    /// # Errors
    /// [`StartError`].
    pub async fn standby(&self) -> Result<Self, StartError> {
        let setup = Setup::default();
        let (dir, user) = setup.place("standby", "postgres")?;
        let mut copy = Program::new(find_postgres("pg_basebackup")?, dir.path())
            .args(["-D", "data", "-R", "-X", "stream", "-c", "fast", "--no-sync"])
            .args([
                "-h",
                "127.0.0.1",
                "-U",
                "postgres",
                "-p",
                &self.port.number().to_string(),
            ]);
        copy.user = user;
        copy.run().await?;
        Self::serve(dir, Port::free()?, copy, setup).await
    }

    /// Starts the server of a directory that `init` has filled.
    async fn serve(dir: TempDir, port: Port, init: Program, setup: Setup) -> Result<Self, StartError> {
        let mut start = Program::new(find_postgres("postgres")?, dir.path())
            .args(["-D", "data", "-p", &port.number().to_string()])
            .args(["-c", "listen_addresses=127.0.0.1"])
            .args(["-c", &format!("unix_socket_directories={}", dir.path().display())])
            .args([
                "-c",
                "shared_buffers=16MB",
                "-c",
                "fsync=off",
                "-c",
                "max_connections=200",
            ])
            .args(["-c", "autovacuum=off", "-c", "logging_collector=off"]);
        for setting in setup.settings {
            start = start.args(["-c".to_owned(), setting]);
        }
        start.user = init.user;
        start.env = setup.env;
        let mut this = Self {
            process: Process::start(start)?,
            init,
            port,
            dir,
        };
        this.ready().await?;
        Ok(this)
    }

    async fn ready(&mut self) -> Result<(), StartError> {
        let address = self.port.address();
        self.process
            .ready(async || logs_in(&address).await.unwrap_or(false))
            .await
    }

    /// `postgres://postgres@127.0.0.1:<port>/postgres`.
    pub fn url(&self) -> String {
        format!("postgres://postgres@{}/postgres", self.address())
    }

    /// `127.0.0.1:<port>`.
    pub fn address(&self) -> String {
        self.port.address()
    }

    /// Its unix socket.
    pub fn socket(&self) -> PathBuf {
        self.dir.path().join(format!(".s.PGSQL.{}", self.port.number()))
    }

    /// The server process; pausing and killing it hits all its backends.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    /// Starts it again and waits until a login works.
    ///
    /// # Errors
    /// [`StartError`].
    pub async fn restart(&mut self, data: Data) -> Result<(), StartError> {
        if data == Data::Empty {
            // Killed outright it would leave its shared memory segment to the machine: nobody comes back to clear it.
            self.process.end(Signal::QUIT, Duration::from_secs(5))?;
            std::fs::remove_dir_all(self.process.program().dir.join("data"))?;
            self.init.run().await?;
        }
        self.process.again(Data::Keep, |_| Ok(()))?;
        self.ready().await
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        // Killed outright it would leave its shared memory segment to the machine.
        let _ = self.process.end(Signal::QUIT, Duration::from_secs(5));
    }
}

/// Starts a session and waits until the server is ready for queries.
pub(super) async fn logs_in(address: &str) -> io::Result<bool> {
    let mut stream = TcpStream::connect(address).await?;
    let names = b"user\0postgres\0database\0postgres\0\0";
    let mut hello = u32::try_from(names.len() + 8)
        .map_err(io::Error::other)?
        .to_be_bytes()
        .to_vec();
    hello.extend(0x0003_0000_u32.to_be_bytes());
    hello.extend(names);
    stream.write_all(&hello).await?;
    loop {
        let kind = stream.read_u8().await?;
        let length = stream.read_u32().await?.saturating_sub(4);
        let mut body = vec![0; length.min(1 << 20) as usize];
        stream.read_exact(&mut body).await?;
        match kind {
            b'Z' => return Ok(true),
            b'E' => return Ok(false),
            _ => {}
        }
    }
}
