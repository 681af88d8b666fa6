//! Two gateways of the lock service on one Redis.

use std::path::PathBuf;

use tempfile::TempDir;
use tokio::net::TcpStream;

use crate::servers::{Data, Port, Process, Program, Redis, RedisOptions, StartError};

/// How many there are.
pub(super) const GATEWAYS: usize = 2;

/// See the module.
#[derive(Debug)]
pub(super) struct Service {
    pub(super) redis: Redis,
    pub(super) url: String,
    gateways: Vec<(Process, Port)>,
    _dir: TempDir,
}

impl Service {
    /// Starts Redis, and the gateways before it.
    pub(super) async fn start() -> Result<Self, StartError> {
        let distlock = distlock()?;
        let redis = RedisOptions::default().durable().start().await?;
        let dir = TempDir::with_prefix("distlock-torture-service-")?;
        let mut gateways = Vec::new();
        for _ in 0..GATEWAYS {
            let port = Port::free()?;
            let (home, at, url) = (
                dir.path().join(port.number().to_string()),
                port.address(),
                redis.url(),
            );
            std::fs::create_dir(&home)?;
            let program =
                Program::new(&distlock, home).args(["serve", "--quiet", "--listen", &at, "--url", &url]);
            gateways.push((Process::start(program)?, port));
        }
        let hosts: Vec<String> = gateways.iter().map(|(_, port)| port.address()).collect();
        let mut this = Self {
            // A gateway that is stopped is given up soon enough to learn what became of the lock while it is valid.
            url: format!("http://{}?timeout=2s", hosts.join(",")),
            redis,
            gateways,
            _dir: dir,
        };
        for n in 0..GATEWAYS {
            this.ready(n).await?;
        }
        Ok(this)
    }

    async fn ready(&mut self, n: usize) -> Result<(), StartError> {
        let (gateway, port) = &mut self.gateways[n];
        let at = port.address();
        gateway
            .ready(async || TcpStream::connect(&at).await.is_ok())
            .await
    }

    pub(super) fn gateway(&mut self, n: usize) -> &mut Process {
        &mut self.gateways[n].0
    }

    pub(super) async fn restart(&mut self, n: usize) -> Result<(), StartError> {
        self.gateways[n].0.again(Data::Keep, |_| Ok(()))?;
        self.ready(n).await
    }
}

/// The command, where a build of the workspace puts it: beside this program, or above the tests.
fn distlock() -> Result<PathBuf, StartError> {
    let me = std::env::current_exe()?;
    me.ancestors()
        .skip(1)
        .take(2)
        .map(|dir| dir.join("distlock"))
        .find(|program| program.is_file())
        .ok_or_else(|| StartError::Missing("distlock beside the tests (cargo build -p distlock-cli)".into()))
}
