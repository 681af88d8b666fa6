//! PgBouncer.

use tempfile::TempDir;

use super::find::find;
use super::port::Port;
use super::postgres::{logs_in, unprivileged};
use super::process::Process;
use super::program::{Program, StartError};

/// A PgBouncer of one's own before a PostgreSQL server.
#[derive(Debug)]
pub struct PgBouncer {
    process: Process,
    port: Port,
    _dir: TempDir,
}

impl PgBouncer {
    /// Starts one with this `pool_mode` (`session`, `transaction`, `statement`) before the server at `address`.
    ///
    /// # Errors
    /// [`StartError`].
    pub async fn start(address: &str, pool_mode: &str) -> Result<Self, StartError> {
        let program = find("pgbouncer")?;
        let dir = TempDir::with_prefix("distlock-pgbouncer-")?;
        let port = Port::free()?;
        let user = unprivileged(&dir, "postgres")?;
        let (host, server_port) = address.rsplit_once(':').unwrap_or((address, "5432"));
        let users = dir.path().join("users.txt");
        std::fs::write(&users, "\"postgres\" \"\"\n")?;
        let settings = dir.path().join("pgbouncer.ini");
        let text = format!(
            "[databases]\n* = host={host} port={server_port}\n[pgbouncer]\nlisten_addr = 127.0.0.1\n\
             listen_port = {}\nunix_socket_dir =\nauth_type = trust\nauth_file = {}\npool_mode = {pool_mode}\n\
             default_pool_size = 5\n",
            port.number(),
            users.display(),
        );
        std::fs::write(&settings, text)?;
        let mut start = Program::new(program, dir.path()).args([settings]);
        start.user = user;
        let mut process = Process::start(start)?;
        let at = port.address();
        process
            .ready(async || logs_in(&at).await.unwrap_or(false))
            .await?;
        Ok(Self {
            process,
            port,
            _dir: dir,
        })
    }

    /// `127.0.0.1:<port>`.
    pub fn address(&self) -> String {
        self.port.address()
    }

    /// The process.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }
}
