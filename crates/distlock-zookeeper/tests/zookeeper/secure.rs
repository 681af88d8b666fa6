//! Accounts that the servers know.

use std::time::Duration;

use distlock_core::{Client, ErrorKind, Secret};
use distlock_testkit::servers::{ZooKeeper, or_skip};
use distlock_zookeeper::{Acl, Config, Scheme};

use crate::common::{MS, client, config};

const SESSION: Duration = Duration::from_secs(8);

async fn refused(config: Config) -> distlock_core::Error {
    let builder = Client::builder();
    let opened = builder
        .build(|engine| distlock_zookeeper::open(engine, config))
        .await;
    match opened {
        Ok(_) => panic!("it was let in"),
        Err(e) => e,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_account_signs_in_with_sasl_and_its_nodes_are_its_own() {
    let Some(server) = or_skip(ZooKeeper::start_with_account("app", "secret").await) else {
        return;
    };
    let hosts = server.addresses();
    let account = |password: &str| {
        let mut config = config(&hosts, SESSION);
        config.scheme = Scheme::Sasl;
        config.auth = Some(Secret::new(format!("app:{password}")));
        config.acl = Acl::Creator;
        config
    };
    let (a, b) = (client(account("secret")).await, client(account("secret")).await);
    let held = a.mutex("k").acquire().await.unwrap();
    assert!(b.mutex("k").try_acquire().await.unwrap().is_none());
    held.release().await.unwrap();
    let next = b.mutex("k").wait(20_000 * MS).acquire().await.unwrap();
    // Nobody else may stand in this line.
    let stranger = client(config(&hosts, SESSION)).await;
    let e = stranger.mutex("k").try_acquire().await.unwrap_err();
    assert_eq!(e.kind(), ErrorKind::InvalidConfig, "{e}");
    next.release().await.unwrap();
    let e = refused(account("wrong")).await;
    assert_eq!(e.kind(), ErrorKind::InvalidConfig, "{e}");
    assert!(!e.to_string().contains("wrong"), "{e}");
}
