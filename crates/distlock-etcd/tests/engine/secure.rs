//! TLS with client certificates, and accounts.

use distlock_core::ErrorKind;
use distlock_etcd::Config;
use distlock_testkit::servers::{Certificates, Port, Process, Program, StartError, find, or_skip};
use tempfile::TempDir;

use crate::cluster::{SECS, client, ctl, etcd, etcdctl};

struct Secure {
    _process: Process,
    port: Port,
    certificates: Certificates,
    _peer: Port,
    _dir: TempDir,
}

/// A member that speaks TLS and asks for the client's certificate.
async fn secure() -> Result<Secure, StartError> {
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
    Ok(Secure {
        _process: process,
        port,
        certificates,
        _peer: peer,
        _dir: dir,
    })
}

#[tokio::test]
async fn tls_with_client_certificates() {
    let Some(etcd) = or_skip(secure().await) else {
        return;
    };
    let certificates = &etcd.certificates;
    let known = Config::new([etcd.port.address()]).ca(certificates.ca());
    let config = known
        .clone()
        .identity(certificates.client_cert(), certificates.client_key());
    let locks = client(config, "ns").await;
    let guard = locks.mutex("k").acquire().await.unwrap();
    assert!(locks.mutex("k").try_acquire().await.unwrap().is_none());
    guard.release().await.unwrap();
    for unknown in [
        known,
        Config::new([etcd.port.address()]).tls(),
        Config::new([etcd.port.address()]),
    ] {
        let builder = distlock_core::Client::builder();
        let e = builder
            .build(|engine| distlock_etcd::open(engine, unknown))
            .await
            .unwrap_err();
        assert!(
            matches!(e.kind(), ErrorKind::Unavailable | ErrorKind::OutcomeUnknown),
            "{e}"
        );
    }
}

#[tokio::test]
async fn an_account_signs_in_and_signs_in_again() {
    let etcd = etcd!(1);
    let at = etcd.addresses()[0].clone();
    for command in [
        &["user", "add", "root:rootpw"][..],
        &["user", "grant-role", "root", "root"],
        &["role", "add", "locks"],
        &[
            "role",
            "grant-permission",
            "locks",
            "--prefix=true",
            "readwrite",
            "ns",
        ],
        &["user", "add", "app:secret"],
        &["user", "grant-role", "app", "locks"],
        &["auth", "enable"],
    ] {
        ctl(&at, command).await;
    }
    let locks = client(Config::new([at.clone()]).user("app", "secret"), "ns").await;
    let held = locks.mutex("k").acquire().await.unwrap();
    // A changed account makes every token old.
    ctl(&at, &["--user", "root:rootpw", "role", "add", "another"]).await;
    held.verify().await.unwrap();
    let waiting = tokio::spawn(locks.mutex("k").wait(SECS(20)).acquire());
    held.release().await.unwrap();
    waiting.await.unwrap().unwrap().release().await.unwrap();
    for (config, namespace) in [
        (Config::new([at.clone()]).user("app", "wrong"), "ns"),
        (Config::new([at.clone()]), "ns"),
        (Config::new([at.clone()]).user("app", "secret"), "forbidden"),
    ] {
        let builder = distlock_core::Client::builder().namespace(namespace);
        let e = builder
            .build(|engine| distlock_etcd::open(engine, config))
            .await
            .unwrap_err();
        assert_eq!(e.kind(), ErrorKind::InvalidConfig, "{e}");
        assert!(!e.to_string().contains("wrong"), "{e}");
    }
}
