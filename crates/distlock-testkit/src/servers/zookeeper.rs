//! ZooKeeper, one server or an ensemble.

use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::find::find;
use super::port::Port;
use super::process::Process;
use super::program::{Data, Program, StartError};

const JAR: &str = "/usr/share/java/zookeeper.jar";
const LOGGER: &str = "/usr/share/java/slf4j-simple.jar";

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
    servers: Vec<(Process, Port)>,
    _others: Vec<Port>,
    _dir: TempDir,
}

impl ZooKeeper {
    /// Starts `n` servers and waits until all of them serve.
    ///
    /// # Errors
    /// [`StartError`].
    pub async fn start(n: usize) -> Result<Self, StartError> {
        let java = find("java")?;
        if !Path::new(JAR).is_file() {
            return Err(StartError::Missing(JAR.into()));
        }
        let dir = TempDir::with_prefix("distlock-zookeeper-")?;
        let (mut clients, mut others, mut ensemble) = (Vec::new(), Vec::new(), String::new());
        for number in 1..=n {
            clients.push(Port::free()?);
            let (quorum, election) = (Port::free()?, Port::free()?);
            ensemble += &format!(
                "server.{number}=127.0.0.1:{}:{}\n",
                quorum.number(),
                election.number()
            );
            others.extend([quorum, election]);
        }
        let ensemble = match n {
            1 => String::new(),
            _ => format!("standaloneEnabled=false\nquorumListenOnAllIPs=false\n{ensemble}"),
        };
        let mut servers = Vec::new();
        for (number, port) in (1..).zip(clients) {
            let own = dir.path().join(format!("s{number}"));
            fs::create_dir(&own)?;
            let config = own.join("keep-zoo.cfg");
            fs::write(
                &config,
                format!(
                    "tickTime=200\ninitLimit=10\nsyncLimit=5\nminSessionTimeout=400\nmaxSessionTimeout=60000\n\
                     dataDir={}\nclientPort={}\nclientPortAddress=127.0.0.1\nadmin.enableServer=false\n\
                     maxClientCnxns=0\n4lw.commands.whitelist=ruok,srvr,mntr,stat,cons,wchs,dump\n{ensemble}",
                    own.join("data").display(),
                    port.number(),
                ),
            )?;
            name(&own, number)?;
            let start = Program::new(&java, &own)
                .args(JVM)
                .args(["-cp", &format!("{JAR}:{LOGGER}")])
                .args(["org.apache.zookeeper.server.quorum.QuorumPeerMain"])
                .args([config]);
            servers.push((Process::start(start)?, port));
        }
        let mut this = Self {
            servers,
            _others: others,
            _dir: dir,
        };
        for n in 0..this.servers.len() {
            this.ready(n).await?;
        }
        Ok(this)
    }

    async fn ready(&mut self, n: usize) -> Result<(), StartError> {
        let (process, port) = &mut self.servers[n];
        process
            .ready(async || {
                ask(&port.address(), "srvr")
                    .await
                    .is_ok_and(|a| a.contains("Mode:"))
            })
            .await
    }

    /// `zk://h1,h2,…`.
    pub fn url(&self) -> String {
        format!("zk://{}", self.addresses().join(","))
    }

    /// Where the servers listen for clients.
    pub fn addresses(&self) -> Vec<String> {
        self.servers.iter().map(|(_, port)| port.address()).collect()
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
        ask(&self.servers[n].1.address(), word).await
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

async fn ask(address: &str, word: &str) -> io::Result<String> {
    timeout(Duration::from_secs(2), async {
        let mut stream = TcpStream::connect(address).await?;
        stream.write_all(word.as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        Ok(answer)
    })
    .await?
}
