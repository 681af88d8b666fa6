//! etcd, one member or several.

use std::io;
use std::time::Duration;

use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::find::find;
use super::port::Port;
use super::process::Process;
use super::program::{Data, Program, StartError};

/// An etcd cluster of one's own, with short elections (heartbeat 50 ms, election 300 ms), so that the smallest lease
/// is one second and a lost leader is replaced after about half a second.
#[derive(Debug)]
pub struct Etcd {
    members: Vec<(Process, Port)>,
    _peers: Vec<Port>,
    dir: TempDir,
}

impl Etcd {
    /// Starts `n` members and waits until each of them sees a quorum.
    ///
    /// # Errors
    /// [`StartError`].
    pub async fn start(n: usize) -> Result<Self, StartError> {
        let program = find("etcd")?;
        let dir = TempDir::with_prefix("distlock-etcd-")?;
        let (mut clients, mut peers) = (Vec::new(), Vec::new());
        for _ in 0..n {
            clients.push(Port::free()?);
            peers.push(Port::free()?);
        }
        let urls = peers.iter().enumerate();
        let urls: Vec<String> = urls
            .map(|(n, port)| format!("n{n}=http://{}", port.address()))
            .collect();
        let cluster = urls.join(",");
        // The same on all members, and no other cluster's.
        let token = dir
            .path()
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let mut members = Vec::new();
        for (n, (client, peer)) in clients.into_iter().zip(&peers).enumerate() {
            let own = dir.path().join(format!("n{n}"));
            std::fs::create_dir(&own)?;
            let (client_url, peer_url) = (
                format!("http://{}", client.address()),
                format!("http://{}", peer.address()),
            );
            let start = Program::new(&program, &own)
                .args(["--name", &format!("n{n}"), "--data-dir", "data"])
                .args([
                    "--listen-client-urls",
                    &client_url,
                    "--advertise-client-urls",
                    &client_url,
                ])
                .args([
                    "--listen-peer-urls",
                    &peer_url,
                    "--initial-advertise-peer-urls",
                    &peer_url,
                ])
                .args(["--initial-cluster", &cluster, "--initial-cluster-state", "new"])
                .args(["--initial-cluster-token", &token])
                .args(["--heartbeat-interval", "50", "--election-timeout", "300"]);
            members.push((Process::start(start)?, client));
        }
        let mut this = Self {
            members,
            _peers: peers,
            dir,
        };
        for n in 0..this.members.len() {
            this.ready(n).await?;
        }
        Ok(this)
    }

    async fn ready(&mut self, n: usize) -> Result<(), StartError> {
        let (process, port) = &mut self.members[n];
        process
            .ready(async || healthy(&port.address()).await.unwrap_or(false))
            .await
    }

    /// `etcd://h1,h2,…`.
    pub fn url(&self) -> String {
        format!("etcd://{}", self.addresses().join(","))
    }

    /// Where the members listen for clients.
    pub fn addresses(&self) -> Vec<String> {
        self.members.iter().map(|(_, port)| port.address()).collect()
    }

    /// The data of all members.
    pub fn dir(&self) -> &std::path::Path {
        self.dir.path()
    }

    /// A member's process, to pause, resume or kill.
    pub fn member(&mut self, n: usize) -> &mut Process {
        &mut self.members[n].0
    }

    /// Starts a member again and waits until it sees a quorum. (A member of several that comes back without its data
    /// must be removed and added by the others first.)
    ///
    /// # Errors
    /// [`StartError`].
    pub async fn restart(&mut self, n: usize, data: Data) -> Result<(), StartError> {
        self.members[n].0.again(data, |_| Ok(()))?;
        self.ready(n).await
    }

    /// The index of the present leader, as the members that answer see it.
    pub async fn leader(&self) -> Option<usize> {
        for (n, (_, port)) in self.members.iter().enumerate() {
            let metrics = get(&port.address(), "/metrics").await.unwrap_or_default();
            if metrics.lines().any(|line| line == "etcd_server_is_leader 1") {
                return Some(n);
            }
        }
        None
    }
}

/// Whether a member answers a linearizable read, which takes a quorum.
async fn healthy(address: &str) -> io::Result<bool> {
    let body = get(address, "/health").await?;
    Ok(body.contains(r#""health":"true""#))
}

async fn get(address: &str, path: &str) -> io::Result<String> {
    timeout(Duration::from_secs(3), async {
        let mut stream = TcpStream::connect(address).await?;
        let request = format!("GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        Ok(answer)
    })
    .await?
}
