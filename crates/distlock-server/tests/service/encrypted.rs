//! TLS: of the service, and of clients that must show a certificate; by the engine, and by `curl`.

use std::path::Path;
use std::process::Output;

use distlock::{ErrorKind, Locks};
use distlock_server::Tls;
use distlock_testkit::servers::{Certificates, skip};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::process::Command;

use crate::gateway::Gateway;
use crate::page::program;

async fn gateway(at: &str, made: &Certificates, clients_are_known: bool) -> Gateway {
    let tls = Tls {
        certificates: made.server_cert(),
        key: made.server_key(),
        client_authority: clients_are_known.then(|| made.ca()),
    };
    Gateway::encrypted(at.parse().unwrap(), "memory:", tls).await
}

/// What the engine needs: whom to trust, and who it is.
fn url(gateway: &Gateway, host: &str, made: &Certificates, own: Option<&Certificates>) -> String {
    let own = own.map_or_else(String::new, |own| {
        format!(
            "&cert={}&key={}",
            own.client_cert().display(),
            own.client_key().display()
        )
    });
    format!(
        "https://{host}:{}?ca={}{own}",
        gateway.at.port(),
        made.ca().display()
    )
}

/// `curl`, with its answer; its exit code tells a refusal of the handshake from an answer.
async fn curl(curl: &Path, ca: &Path, more: &[&Path], url: &str) -> Output {
    let mut command = Command::new(curl);
    command.args(["-sS", "--max-time", "15", "--cacert"]).arg(ca);
    for (flag, value) in ["--cert", "--key"].iter().zip(more) {
        command.arg(flag).arg(value);
    }
    command
        .args(["-d", r#"{"ttl":"30s"}"#, url])
        .output()
        .await
        .unwrap()
}

async fn takes(key: &str, url: &str) {
    let locks = Locks::connect(url).await.unwrap();
    let guard = locks.mutex(key).try_acquire().await.unwrap().unwrap();
    guard.verify().await.unwrap();
    guard.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_service_is_known_by_its_certificate() {
    let (made, others) = (Certificates::new().unwrap(), Certificates::new().unwrap());
    let gateway = gateway("127.0.0.1:0", &made, false).await;
    takes("encrypted", &url(&gateway, "localhost", &made, None)).await;
    // Another authority, or a name that the certificate is not for.
    let elsewhere = self::gateway("127.0.0.2:0", &made, false).await;
    for bad in [
        url(&gateway, "127.0.0.1", &others, None),
        url(&elsewhere, "127.0.0.2", &made, None),
    ] {
        let refused = Locks::connect(&bad).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Unavailable, "{refused}");
        assert!(refused.to_string().contains("certificate"), "{refused}");
    }
    // Who does not speak TLS is answered nothing.
    let mut plain = TcpStream::connect(gateway.at).await.unwrap();
    plain
        .write_all(b"GET /v1/locks HTTP/1.1\r\nhost: localhost\r\n\r\n")
        .await
        .unwrap();
    let mut told = Vec::new();
    let _ = plain.read_to_end(&mut told).await;
    assert!(!told.starts_with(b"HTTP"), "{:?}", String::from_utf8_lossy(&told));
    if let Some(program) = program(&["curl"]) {
        let at = format!(
            "https://localhost:{}/v1/locks/encrypted:curl/acquire",
            gateway.at.port()
        );
        let taken = curl(&program, &made.ca(), &[], &at).await;
        assert!(
            String::from_utf8_lossy(&taken.stdout).contains("\"handle\":"),
            "{taken:?}"
        );
        let refused = curl(&program, &others.ca(), &[], &at).await;
        assert!(
            !refused.status.success() && refused.stdout.is_empty(),
            "{refused:?}"
        );
    } else {
        skip("TLS by curl: no curl");
    }
    gateway.stop().await;
    elsewhere.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_are_known_by_their_certificates() {
    let (made, others) = (Certificates::new().unwrap(), Certificates::new().unwrap());
    let gateway = gateway("127.0.0.1:0", &made, true).await;
    takes("encrypted:known", &url(&gateway, "localhost", &made, Some(&made))).await;
    for own in [None, Some(&others)] {
        let refused = Locks::connect(&url(&gateway, "localhost", &made, own))
            .await
            .unwrap_err();
        // The alert comes when the request is on its way already.
        let told = [ErrorKind::Unavailable, ErrorKind::OutcomeUnknown];
        assert!(
            told.contains(&refused.kind()) && refused.to_string().contains("alert"),
            "{refused}"
        );
    }
    if let Some(program) = program(&["curl"]) {
        let at = format!(
            "https://localhost:{}/v1/locks/encrypted:known:curl/acquire",
            gateway.at.port()
        );
        let taken = curl(
            &program,
            &made.ca(),
            &[&made.client_cert(), &made.client_key()],
            &at,
        )
        .await;
        assert!(
            String::from_utf8_lossy(&taken.stdout).contains("\"handle\":"),
            "{taken:?}"
        );
        for own in [None, Some(&others)] {
            let own = own.map(|own| (own.client_cert(), own.client_key()));
            let own: Vec<&Path> = own
                .iter()
                .flat_map(|(cert, key)| [cert.as_path(), key.as_path()])
                .collect();
            let refused = curl(&program, &made.ca(), &own, &at).await;
            assert!(
                !refused.status.success() && refused.stdout.is_empty(),
                "{refused:?}"
            );
        }
    } else {
        skip("client certificates by curl: no curl");
    }
    gateway.stop().await;
}
