//! ZooKeeper, one server or an ensemble.

use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use super::find::find;
use super::netns::{Net, connect};
use super::port::Port;
use super::process::Process;
use super::program::{Data, Program, StartError};

/// Debian's; `DISTLOCK_ZOOKEEPER_JARS` names others, as a class path.
const JARS: &str = "/usr/share/java/zookeeper.jar:/usr/share/java/slf4j-simple.jar";

/// A JVM that starts fast and stays small.
const JVM: [&str; 11] = [
    "-Xmx64m",
    "-Xms16m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:CICompilerCount=1",
    "-Xss256k",
    "-Xshare:auto",
    "-Djava.net.preferIPv4Stack=true",
    "-Dzookeeper.jmx.log4j.disable=true",
    "-Dzookeeper.admin.enableServer=false",
    "-Dzookeeper.forceSync=no",
];

/// A ZooKeeper ensemble of one's own, with ticks of 200 ms: sessions may be as short as 400 ms.
#[derive(Debug)]
pub struct ZooKeeper {
    servers: Vec<(Process, String)>,
    _ports: Vec<Port>,
    net: Option<Net>,
    _dir: TempDir,
}

/// The ports of servers that are alone on their host.
const CLIENTS: u16 = 2181;
const PEERS: u16 = 2888;
const ELECTION: u16 = 3888;

/// Where a server listens: its host, and the ports for clients, for the others, and for elections.
type Place = (String, [u16; 3]);

impl ZooKeeper {
    /// Starts `n` servers and waits until all of them serve.
    ///
    /// # Errors
    /// [`StartError`].
    pub async fn start(n: usize) -> Result<Self, StartError> {
        Self::start_with(n, "").await
    }

    /// The same with more lines of configuration for each server; they override what is set anyway.
    ///
    /// # Errors
    /// [`StartError`].
    pub async fn start_with(n: usize, lines: &str) -> Result<Self, StartError> {
        let (mut places, mut ports) = (Vec::new(), Vec::new());
        for _ in 0..n {
            let three = [Port::free()?, Port::free()?, Port::free()?];
            places.push(("127.0.0.1".to_owned(), three.each_ref().map(Port::number)));
            ports.extend(three);
        }
        Self::start_at(places, ports, None, lines, None).await
    }

    /// One server that knows an account, for SASL.
    ///
    /// # Errors
    /// [`StartError`].
    pub async fn start_with_account(user: &str, password: &str) -> Result<Self, StartError> {
        let ports = vec![Port::free()?];
        let places = vec![("127.0.0.1".to_owned(), [ports[0].number(), 0, 0])];
        let lines = "authProvider.sasl=org.apache.zookeeper.server.auth.SASLAuthenticationProvider\n";
        Self::start_at(places, ports, None, lines, Some((user, password))).await
    }

    /// Starts a server on each host.
    ///
    /// # Errors
    /// [`StartError`].
    pub async fn start_on(net: Net, n: usize) -> Result<Self, StartError> {
        let places = (0..n)
            .map(|n| (net.address(n), [CLIENTS, PEERS, ELECTION]))
            .collect();
        Self::start_at(places, Vec::new(), Some(net), "", None).await
    }

    async fn start_at(
        places: Vec<Place>,
        ports: Vec<Port>,
        net: Option<Net>,
        lines: &str,
        account: Option<(&str, &str)>,
    ) -> Result<Self, StartError> {
        let java = find("java")?;
        let jars = std::env::var("DISTLOCK_ZOOKEEPER_JARS").unwrap_or_else(|_| JARS.into());
        if let Some(missing) = jars
            .split(':')
            .find(|jar| !jar.ends_with('*') && !Path::new(jar).is_file())
        {
            return Err(StartError::Missing(missing.into()));
        }
        let dir = TempDir::with_prefix("distlock-zookeeper-")?;
        let mut accounts = None;
        if let Some((user, password)) = account {
            let file = dir.path().join("jaas.conf");
            let module = "org.apache.zookeeper.server.auth.DigestLoginModule";
            fs::write(
                &file,
                format!("Server {{ {module} required user_{user}=\"{password}\"; }};\n"),
            )?;
            accounts = Some(format!("-Djava.security.auth.login.config={}", file.display()));
        }
        let ensemble: String = (1..)
            .zip(&places)
            .map(|(number, (host, [_, peers, election]))| {
                format!("server.{number}={host}:{peers}:{election}\n")
            })
            .collect();
        let ensemble = match places.len() {
            1 => String::new(),
            _ => format!("standaloneEnabled=false\nquorumListenOnAllIPs=false\n{ensemble}"),
        };
        let mut servers = Vec::new();
        for (number, (host, [port, ..])) in (1..).zip(places) {
            let own = dir.path().join(format!("s{number}"));
            fs::create_dir(&own)?;
            let config = own.join("keep-zoo.cfg");
            fs::write(
                &config,
                format!(
                    "tickTime=200\ninitLimit=25\nsyncLimit=5\nminSessionTimeout=400\nmaxSessionTimeout=60000\n\
                     dataDir={}\nclientPort={port}\nclientPortAddress={host}\nadmin.enableServer=false\n\
                     maxClientCnxns=0\n4lw.commands.whitelist=ruok,srvr,mntr,stat,cons,wchs,dump,conf\n{ensemble}{lines}",
                    own.join("data").display(),
                ),
            )?;
            name(&own, number)?;
            let start = Program::new(&java, &own)
                .args(JVM)
                .args(&accounts)
                .args(["-cp", &jars])
                .args(["org.apache.zookeeper.server.quorum.QuorumPeerMain"])
                .args([config]);
            let start = match &net {
                Some(net) => net.on(number - 1, start),
                None => start,
            };
            servers.push((Process::start(start)?, format!("{host}:{port}")));
        }
        let mut this = Self {
            servers,
            _ports: ports,
            net,
            _dir: dir,
        };
        for n in 0..this.servers.len() {
            this.ready(n).await?;
        }
        Ok(this)
    }

    async fn ready(&mut self, n: usize) -> Result<(), StartError> {
        let net = self.net.as_ref();
        let (process, address) = &mut self.servers[n];
        let address = address.as_str();
        process
            .ready(async || ask(net, address, "srvr").await.is_ok_and(|a| a.contains("Mode:")))
            .await
    }

    /// `zk://h1,h2,…`.
    pub fn url(&self) -> String {
        format!("zk://{}", self.addresses().join(","))
    }

    /// Where the servers listen for clients.
    pub fn addresses(&self) -> Vec<String> {
        self.servers.iter().map(|(_, address)| address.clone()).collect()
    }

    /// The hosts, if the servers have hosts of their own.
    pub fn net(&self) -> Option<&Net> {
        self.net.as_ref()
    }

    /// A server's process, to pause, resume or kill.
    pub fn server(&mut self, n: usize) -> &mut Process {
        &mut self.servers[n].0
    }

    /// Starts a server again and waits until it serves.
    ///
    /// # Errors
    /// [`StartError`].
    pub async fn restart(&mut self, n: usize, data: Data) -> Result<(), StartError> {
        self.servers[n].0.again(data, |own| name(own, n + 1))?;
        self.ready(n).await
    }

    /// A four-letter word's answer, such as `dump` (sessions and their ephemeral nodes).
    ///
    /// # Errors
    /// When the server does not answer.
    pub async fn four_letters(&self, n: usize, word: &str) -> io::Result<String> {
        ask(self.net.as_ref(), &self.servers[n].1, word).await
    }

    /// The index of the present leader (of a single server: itself).
    pub async fn leader(&self) -> Option<usize> {
        for n in 0..self.servers.len() {
            let answer = self.four_letters(n, "srvr").await.unwrap_or_default();
            if answer.contains("Mode: leader") || answer.contains("Mode: standalone") {
                return Some(n);
            }
        }
        None
    }
}

/// Writes a server's number, without which it does not know who it is.
fn name(own: &Path, number: usize) -> io::Result<()> {
    fs::create_dir_all(own.join("data"))?;
    fs::write(own.join("data/myid"), number.to_string())
}

async fn ask(net: Option<&Net>, address: &str, word: &str) -> io::Result<String> {
    timeout(Duration::from_secs(2), async {
        let mut stream = connect(net, address).await?;
        stream.write_all(word.as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        Ok(answer)
    })
    .await?
}
