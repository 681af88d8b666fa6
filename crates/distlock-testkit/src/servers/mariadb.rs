//! MariaDB.

use std::io;
use std::path::PathBuf;

use tempfile::TempDir;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

use super::find::find;
use super::port::Port;
use super::process::Process;
use super::program::{Data, Program, StartError};
use super::setup::Setup;

/// A MariaDB server of one's own, with the database `distlock` and the user `root` without a password.
#[derive(Debug)]
pub struct MariaDb {
    process: Process,
    init: Program,
    port: Port,
    dir: TempDir,
}

impl MariaDb {
    /// Makes a data directory and starts its server.
    ///
    /// # Errors
    /// [`StartError`].
    pub async fn start() -> Result<Self, StartError> {
        Self::start_with(Setup::default()).await
    }

    /// With further arguments and variables, or in another place.
    ///
    /// # Errors
    /// [`StartError`].
    pub async fn start_with(setup: Setup) -> Result<Self, StartError> {
        let (init, server) = (find("mariadb-install-db")?, find("mariadbd")?);
        let (dir, user) = setup.place("mariadb", "mysql")?;
        let port = Port::free()?;
        let data = dir.path().join("data");
        let script = dir.path().join("keep-setup.sql");
        std::fs::write(&script, "CREATE DATABASE IF NOT EXISTS distlock;\n")?;
        // A server that starts takes away the temporary tables that it finds, which in a shared place are another's.
        let tmpdir = format!("--tmpdir={}", dir.path().display());
        let mut init = Program::new(init, dir.path())
            .args(["--no-defaults", &format!("--datadir={}", data.display())])
            .args([
                "--auth-root-authentication-method=normal",
                "--skip-test-db",
                "--skip-name-resolve",
                "--innodb-log-file-size=8M",
            ])
            .args([&tmpdir]);
        init.user = user;
        init.run().await?;
        // As the system user from the start: a server that changes its user itself would no longer die with us.
        let mut start = Program::new(server, dir.path())
            .args([
                "--no-defaults",
                "--bind-address=127.0.0.1",
                "--skip-name-resolve",
                "--skip-log-bin",
            ])
            .args([
                format!("--datadir={}", data.display()),
                format!("--port={}", port.number()),
            ])
            .args([format!("--socket={}", dir.path().join("s.sock").display())])
            .args([format!("--pid-file={}", dir.path().join("pid").display())])
            .args([format!("--init-file={}", script.display()), tmpdir])
            .args(["--innodb-buffer-pool-size=16M", "--innodb-log-file-size=8M"])
            .args([
                "--innodb-flush-log-at-trx-commit=2",
                "--performance-schema=OFF",
                "--key-buffer-size=1M",
            ])
            .args(["--aria-pagecache-buffer-size=1M", "--max-connections=200"])
            .args(setup.settings);
        start.user = user;
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
            .ready(async || greets(&address).await.unwrap_or(false))
            .await
    }

    /// `mysql://root@127.0.0.1:<port>/distlock`.
    pub fn url(&self) -> String {
        format!("mysql://root@{}/distlock", self.address())
    }

    /// `127.0.0.1:<port>`.
    pub fn address(&self) -> String {
        self.port.address()
    }

    /// Its unix socket.
    pub fn socket(&self) -> PathBuf {
        self.dir.path().join("s.sock")
    }

    /// The server process.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    /// Starts it again and waits until it serves.
    ///
    /// # Errors
    /// [`StartError`].
    pub async fn restart(&mut self, data: Data) -> Result<(), StartError> {
        self.process.kill9()?;
        if data == Data::Empty {
            std::fs::remove_dir_all(self.process.program().dir.join("data"))?;
            self.init.run().await?;
        }
        self.process.again(Data::Keep, |_| Ok(()))?;
        self.ready().await
    }
}

/// Whether the server itself, not just the kernel, meets a connection: it speaks first, with a protocol version of 10.
async fn greets(address: &str) -> io::Result<bool> {
    let mut stream = TcpStream::connect(address).await?;
    let mut greeting = [0; 5];
    stream.read_exact(&mut greeting).await?;
    Ok(greeting[4] == 10)
}
