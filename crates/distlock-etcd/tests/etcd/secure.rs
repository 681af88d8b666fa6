//! TLS with client certificates, and accounts.

use distlock_core::ErrorKind;
use distlock_etcd::Config;
use distlock_testkit::servers::or_skip;

use crate::cluster::{SECS, Secure, accounts, client, ctl, etcd};

#[tokio::test]
async fn tls_with_client_certificates() {
    let Some(etcd) = or_skip(Secure::start().await) else {
        return;
    };
    let known = Config::new([etcd.port.address()]).ca(etcd.certificates.ca());
    let locks = client(etcd.known(), "ns").await;
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
    for command in accounts("ns") {
        ctl(&at, &command.split(' ').collect::<Vec<_>>()).await;
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
