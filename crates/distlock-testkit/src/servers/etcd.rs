//! etcd, one member or several.

use std::io;
use std::time::Duration;

use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use super::find::find;
use super::netns::{Net, connect};
use super::port::Port;
use super::process::Process;
use super::program::{Data, Program, StartError};

/// An etcd cluster of one's own, with short elections (heartbeat 50 ms, election 300 ms), so that the smallest lease
/// is one second and a lost leader is replaced after about half a second.
#[derive(Debug)]
pub struct Etcd {
    members: Vec<(Process, String)>,
    _ports: Vec<Port>,
    net: Option<Net>,
    dir: TempDir,
}

/// The ports of members that are alone on their host.
const CLIENTS: u16 = 2379;
const PEERS: u16 = 2380;

impl Etcd {
    /// Starts `n` members and waits until each of them sees a quorum.
    ///
    /// # Errors
    /// [`StartError`].
    pub async fn start(n: usize) -> Result<Self, StartError> {
        Self::start_with(n, &[]).await
    }

    /// The same with more arguments for each member; they override what is given anyway.
    ///
    /// # Errors
    /// [`StartError`].
    pub async fn start_with(n: usize, args: &[&str]) -> Result<Self, StartError> {
        let (mut addresses, mut ports) = (Vec::new(), Vec::new());
        for _ in 0..n {
            let (client, peer) = (Port::free()?, Port::free()?);
            addresses.push((client.address(), peer.address()));
            ports.extend([client, peer]);
        }
        Self::start_at(addresses, ports, None, args).await
    }

    /// Starts a member on each host.
    ///
    /// # Errors
    /// [`StartError`].
    pub async fn start_on(net: Net, n: usize) -> Result<Self, StartError> {
        let at = |n| {
            (
                format!("{}:{CLIENTS}", net.address(n)),
                format!("{}:{PEERS}", net.address(n)),
            )
        };
        let addresses = (0..n).map(at).collect();
        Self::start_at(addresses, Vec::new(), Some(net), &[]).await
    }

    /// `addresses`: for clients, and for the other members.
    async fn start_at(
        addresses: Vec<(String, String)>,
        ports: Vec<Port>,
        net: Option<Net>,
        args: &[&str],
    ) -> Result<Self, StartError> {
        let program = find("etcd")?;
        let dir = TempDir::with_prefix("distlock-etcd-")?;
        let urls = addresses.iter().enumerate();
        let urls: Vec<String> = urls.map(|(n, (_, peer))| format!("n{n}=http://{peer}")).collect();
        let cluster = urls.join(",");
        // The same on all members, and no other cluster's.
        let token = dir
            .path()
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let mut members = Vec::new();
        for (n, (client, peer)) in addresses.into_iter().enumerate() {
            let own = dir.path().join(format!("n{n}"));
            std::fs::create_dir(&own)?;
            let (client_url, peer_url) = (format!("http://{client}"), format!("http://{peer}"));
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
                .args(["--heartbeat-interval", "50", "--election-timeout", "300"])
                .args(args.iter().copied());
            let start = match &net {
                Some(net) => net.on(n, start),
                None => start,
            };
            members.push((Process::start(start)?, client));
        }
        let mut this = Self {
            members,
            _ports: ports,
            net,
            dir,
        };
        for n in 0..this.members.len() {
            this.ready(n).await?;
        }
        Ok(this)
    }

    async fn ready(&mut self, n: usize) -> Result<(), StartError> {
        let net = self.net.as_ref();
        let (process, address) = &mut self.members[n];
        let address = address.as_str();
        process
            .ready(async || healthy(net, address).await.unwrap_or(false))
            .await
    }

    /// `etcd://h1,h2,…`.
    pub fn url(&self) -> String {
        format!("etcd://{}", self.addresses().join(","))
    }

    /// Where the members listen for clients.
    pub fn addresses(&self) -> Vec<String> {
        self.members.iter().map(|(_, address)| address.clone()).collect()
    }

    /// The hosts, if the members have hosts of their own.
    pub fn net(&self) -> Option<&Net> {
        self.net.as_ref()
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

    /// What a member tells of itself at `/metrics`.
    ///
    /// # Errors
    /// When it does not answer.
    pub async fn metrics(&self, n: usize) -> io::Result<String> {
        get(self.net.as_ref(), &self.members[n].1, "/metrics").await
    }

    /// The index of the present leader, as the members that answer see it.
    pub async fn leader(&self) -> Option<usize> {
        for n in 0..self.members.len() {
            let metrics = self.metrics(n).await.unwrap_or_default();
            if metrics.lines().any(|line| line == "etcd_server_is_leader 1") {
                return Some(n);
            }
        }
        None
    }
}

/// Whether a member answers a linearizable read, which takes a quorum.
async fn healthy(net: Option<&Net>, address: &str) -> io::Result<bool> {
    let body = get(net, address, "/health").await?;
    Ok(body.contains(r#""health":"true""#))
}

async fn get(net: Option<&Net>, address: &str, path: &str) -> io::Result<String> {
    timeout(Duration::from_secs(3), async {
        let mut stream = connect(net, address).await?;
        let request = format!("GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        Ok(answer)
    })
    .await?
}
