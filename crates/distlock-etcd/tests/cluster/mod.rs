//! What the tests have in common: clients of a cluster, and etcd's own command.
#![allow(dead_code, unused_macros, unused_imports)]

use std::error::Error;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use distlock_core::Client;
use distlock_etcd::Config;
use distlock_testkit::servers::{Certificates, Etcd, Port, Process, Program, StartError, find};
use tempfile::TempDir;

pub(crate) const MS: fn(u64) -> Duration = Duration::from_millis;
pub(crate) const SECS: fn(u64) -> Duration = Duration::from_secs;

/// How to reach a cluster.
pub(crate) fn config(etcd: &Etcd) -> Config {
    Config::new(etcd.addresses())
}

pub(crate) fn boxed(e: impl Error + Send + Sync + 'static) -> Box<dyn Error + Send + Sync> {
    e.into()
}

/// A client with this namespace.
pub(crate) async fn client(config: Config, namespace: &str) -> Client {
    let builder = Client::builder().namespace(namespace).label("test").ttl(SECS(3));
    builder
        .build(|engine| distlock_etcd::open(engine, config))
        .await
        .unwrap()
}

/// etcd's own command against some endpoint.
pub(crate) fn etcdctl(address: &str) -> tokio::process::Command {
    let program = find("etcdctl").unwrap_or_else(|_| PathBuf::from("etcdctl"));
    let mut command = tokio::process::Command::new(program);
    command
        .env("ETCDCTL_API", "3")
        .args(["--endpoints", address])
        .kill_on_drop(true)
        .stdin(Stdio::null());
    command
}

/// Runs etcd's own command to its end.
pub(crate) async fn ctl(address: &str, args: &[&str]) -> String {
    let out = etcdctl(address).args(args).output().await.unwrap();
    assert!(
        out.status.success(),
        "etcdctl {args:?}: {}",
        String::from_utf8_lossy(&out.stderr)
    );
    String::from_utf8(out.stdout).unwrap()
}

/// The keys under a prefix.
pub(crate) async fn keys(address: &str, prefix: &str) -> Vec<String> {
    let out = ctl(address, &["get", "--prefix", "--keys-only", prefix]).await;
    out.lines()
        .filter(|line| !line.is_empty())
        .map(str::to_owned)
        .collect()
}

/// Waits until `look` is true.
pub(crate) async fn until(what: &str, mut look: impl AsyncFnMut() -> bool) {
    let found = distlock_testkit::servers::eventually(SECS(20), async || look().await.then_some(())).await;
    assert!(found.is_some(), "never: {what}");
}

/// A cluster of so many members, or the end of the test with a visible line.
macro_rules! etcd {
    ($members:expr) => {
        match distlock_testkit::servers::or_skip(distlock_testkit::servers::Etcd::start($members).await) {
            Some(etcd) => etcd,
            None => return,
        }
    };
}
pub(crate) use etcd;

/// A member that speaks TLS and asks for the client's certificate.
pub(crate) struct Secure {
    _process: Process,
    pub(crate) port: Port,
    pub(crate) certificates: Certificates,
    _peer: Port,
    _dir: TempDir,
}

impl Secure {
    pub(crate) async fn start() -> Result<Self, StartError> {
        let program = find("etcd")?;
        let dir = TempDir::with_prefix("distlock-etcd-tls-")?;
        let certificates = Certificates::new()?;
        let (port, peer) = (Port::free()?, Port::free()?);
        let (url, peer_url) = (
            format!("https://{}", port.address()),
            format!("http://{}", peer.address()),
        );
        let file = |path: std::path::PathBuf| path.display().to_string();
        let start = Program::new(program, dir.path())
            .args([
                "--name",
                "n0",
                "--data-dir",
                "data",
                "--initial-cluster",
                &format!("n0={peer_url}"),
            ])
            .args(["--listen-client-urls", &url, "--advertise-client-urls", &url])
            .args([
                "--listen-peer-urls",
                &peer_url,
                "--initial-advertise-peer-urls",
                &peer_url,
            ])
            .args([
                "--heartbeat-interval",
                "50",
                "--election-timeout",
                "300",
                "--client-cert-auth",
                "--bcrypt-cost",
                "4",
            ])
            .args(["--trusted-ca-file", &file(certificates.ca())])
            .args([
                "--cert-file",
                &file(certificates.server_cert()),
                "--key-file",
                &file(certificates.server_key()),
            ]);
        let mut process = Process::start(start)?;
        let (ca, cert, key) = (
            certificates.ca(),
            certificates.client_cert(),
            certificates.client_key(),
        );
        process
            .ready(async || {
                let status = etcdctl(&url)
                    .args(["endpoint", "health"])
                    .args([
                        "--cacert".into(),
                        ca.clone(),
                        "--cert".into(),
                        cert.clone(),
                        "--key".into(),
                        key.clone(),
                    ])
                    .output()
                    .await;
                status.is_ok_and(|out| out.status.success())
            })
            .await?;
        Ok(Self {
            _process: process,
            port,
            certificates,
            _peer: peer,
            _dir: dir,
        })
    }

    /// A client with a certificate.
    pub(crate) fn known(&self) -> Config {
        let certificates = &self.certificates;
        Config::new([self.port.address()])
            .ca(certificates.ca())
            .identity(certificates.client_cert(), certificates.client_key())
    }

    /// Turns accounts on: afterwards `app` with the password `secret` has the namespace, and `root` everything.
    pub(crate) async fn enable_accounts(&self, namespace: &str) {
        let certificates = &self.certificates;
        for command in accounts(namespace) {
            let out = etcdctl(&format!("https://{}", self.port.address()))
                .arg("--cacert")
                .arg(certificates.ca())
                .arg("--cert")
                .arg(certificates.client_cert())
                .arg("--key")
                .arg(certificates.client_key())
                .args(command.split(' '))
                .output()
                .await
                .unwrap();
            assert!(
                out.status.success(),
                "{command}: {}",
                String::from_utf8_lossy(&out.stderr)
            );
        }
    }
}

/// What turns accounts on, in order.
pub(crate) fn accounts(namespace: &str) -> Vec<String> {
    let grant = format!("role grant-permission locks --prefix=true readwrite {namespace}");
    [
        "user add root:rootpw",
        "user grant-role root root",
        "role add locks",
        grant.as_str(),
        "user add app:secret",
        "user grant-role app locks",
        "auth enable",
    ]
    .map(str::to_owned)
    .to_vec()
}
