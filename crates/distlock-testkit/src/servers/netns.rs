//! Hosts of their own on one machine: network namespaces on a bridge, between which ways can be cut.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use tokio::net::TcpStream;
use tokio::sync::oneshot;

use super::find::find;
use super::program::{Program, StartError};

/// Which way between a host and the others is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    /// Nothing passes.
    Both,
    /// The host hears nothing of what the others send; what it sends arrives.
    Deaf,
    /// What the host sends does not arrive; it hears the others.
    Mute,
}

/// Some hosts and, after them, one for the clients. Gone when dropped.
#[derive(Debug)]
pub struct Net {
    name: String,
    subnet: u8,
    hosts: usize,
}

impl Net {
    /// Makes `hosts` hosts, and one more for the clients.
    ///
    /// # Errors
    /// [`StartError::Missing`] where namespaces cannot be made (that takes root and `ip` of iproute2).
    pub fn new(hosts: usize) -> Result<Self, StartError> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        find("ip")?;
        let name = format!("distlock-{}-{number}", std::process::id());
        let this = Self {
            // The namespaces are apart from each other, so that the same addresses may be used again.
            subnet: u8::try_from(number % 250).unwrap_or(0),
            name,
            hosts,
        };
        let bridge = this.bridge();
        if run(&["netns", "add", &bridge]).is_err() {
            return Err(StartError::Missing("the right to make network namespaces".into()));
        }
        run(&["-n", &bridge, "link", "add", "br0", "type", "bridge"])?;
        run(&["-n", &bridge, "link", "set", "br0", "up"])?;
        for n in 0..=hosts {
            let (host, port) = (this.namespace(n), format!("port{n}"));
            let address = format!("{}/24", this.address(n));
            run(&["netns", "add", &host])?;
            run(&[
                "-n", &bridge, "link", "add", &port, "type", "veth", "peer", "name", "eth0", "netns", &host,
            ])?;
            run(&["-n", &bridge, "link", "set", &port, "master", "br0", "up"])?;
            run(&["-n", &host, "address", "add", &address, "dev", "eth0"])?;
            run(&["-n", &host, "link", "set", "eth0", "up"])?;
            run(&["-n", &host, "link", "set", "lo", "up"])?;
        }
        Ok(this)
    }

    fn bridge(&self) -> String {
        format!("{}-bridge", self.name)
    }

    /// The name of a host's namespace; the clients' is the last.
    fn namespace(&self, n: usize) -> String {
        format!("{}-{n}", self.name)
    }

    /// The namespace of the clients.
    pub fn clients(&self) -> String {
        self.namespace(self.hosts)
    }

    /// A host's address.
    pub fn address(&self, n: usize) -> String {
        format!("10.77.{}.{}", self.subnet, n + 1)
    }

    /// The program, to be run on a host.
    pub(super) fn on(&self, n: usize, program: Program) -> Program {
        let mut args: Vec<OsString> = vec!["netns".into(), "exec".into(), self.namespace(n).into()];
        args.push(program.path.into_os_string());
        args.extend(program.args);
        Program {
            path: ip(),
            args,
            ..program
        }
    }

    /// Cuts a host off from the others; the clients still reach it.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn cut(&self, host: usize, cut: Cut) -> io::Result<()> {
        for other in (0..self.hosts).filter(|other| *other != host) {
            if cut != Cut::Deaf {
                self.lose(host, other)?;
            }
            if cut != Cut::Mute {
                self.lose(other, host)?;
            }
        }
        Ok(())
    }

    /// Everything passes again.
    pub fn heal(&self) {
        for from in 0..self.hosts {
            for to in (0..self.hosts).filter(|to| *to != from) {
                // Most of them are not cut.
                let _ = run(&[
                    "-n",
                    &self.namespace(from),
                    "neighbour",
                    "del",
                    &self.address(to),
                    "dev",
                    "eth0",
                ]);
            }
        }
    }

    /// What `from` sends to `to` goes to nobody, without a word to either.
    fn lose(&self, from: usize, to: usize) -> io::Result<()> {
        const NOBODY: &str = "02:00:00:00:00:00";
        let (from, to) = (self.namespace(from), self.address(to));
        run(&[
            "-n",
            &from,
            "neighbour",
            "replace",
            &to,
            "lladdr",
            NOBODY,
            "dev",
            "eth0",
            "nud",
            "permanent",
        ])
    }

    /// A connection from the clients' host.
    async fn connect(&self, address: &str) -> io::Result<TcpStream> {
        let address: SocketAddr = address.parse().map_err(io::Error::other)?;
        let namespace = File::open(format!("/run/netns/{}", self.clients()))?;
        let (answer, connected) = oneshot::channel();
        // A thread of its own, since it stays in the namespace.
        std::thread::spawn(move || {
            let connect = || -> io::Result<_> {
                move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?;
                std::net::TcpStream::connect_timeout(&address, Duration::from_secs(2))
            };
            let _ = answer.send(connect());
        });
        let stream = connected.await.map_err(io::Error::other)??;
        stream.set_nonblocking(true)?;
        TcpStream::from_std(stream)
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        for n in 0..=self.hosts {
            let _ = run(&["netns", "delete", &self.namespace(n)]);
        }
        let _ = run(&["netns", "delete", &self.bridge()]);
    }
}

/// A connection from the clients' host, or from this one where there is none.
pub(super) async fn connect(net: Option<&Net>, address: &str) -> io::Result<TcpStream> {
    match net {
        Some(net) => net.connect(address).await,
        None => TcpStream::connect(address).await,
    }
}

fn ip() -> PathBuf {
    find("ip").unwrap_or_else(|_| "ip".into())
}

fn run(args: &[&str]) -> io::Result<()> {
    let status = Command::new(ip())
        .args(args)
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .status()?;
    match status.success() {
        true => Ok(()),
        false => Err(io::Error::other(format!(
            "ip {} ended with {status}",
            args.join(" ")
        ))),
    }
}
