//! PgBouncer.

use tempfile::TempDir;

use super::find::find;
use super::port::Port;
use super::postgres::logs_in;
use super::process::Process;
use super::program::{Program, StartError};
use super::setup::Setup;

/// A PgBouncer of one's own before a PostgreSQL server.
#[derive(Debug)]
pub struct PgBouncer {
    process: Process,
    port: Port,
    _dir: TempDir,
}

impl PgBouncer {
    /// Starts one with these settings, such as `pool_mode = session`, before the server at `address`.
    ///
    /// # Errors
    /// [`StartError`].
    pub async fn start(address: &str, settings: &[&str]) -> Result<Self, StartError> {
        let program = find("pgbouncer")?;
        let (dir, user) = Setup::default().place("pgbouncer", "postgres")?;
        let port = Port::free()?;
        let (host, server_port) = address.rsplit_once(':').unwrap_or((address, "5432"));
        let users = dir.path().join("users.txt");
        std::fs::write(&users, "\"postgres\" \"\"\n")?;
        let text = format!(
            "[databases]\n* = host={host} port={server_port}\n[pgbouncer]\nlisten_addr = 127.0.0.1\n\
             listen_port = {}\nunix_socket_dir =\nauth_type = trust\nauth_file = {}\n\
             default_pool_size = 5\n{}\n",
            port.number(),
            users.display(),
            settings.join("\n"),
        );
        let file = dir.path().join("pgbouncer.ini");
        std::fs::write(&file, text)?;
        let mut start = Program::new(program, dir.path()).args([file]);
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
