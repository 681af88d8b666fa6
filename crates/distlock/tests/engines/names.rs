//! Names and times arrive at every engine as they were asked for, or are refused.

use std::time::Duration;

use distlock::{ErrorKind, Locks};
use distlock_testkit::servers::eventually;
use futures_util::future::join_all;

use crate::deployments::{Deployment, Engine, on_each, with};
use crate::stores::{self, address, ask_etcd};

/// For what a busy server has not done yet.
const PATIENCE: Duration = Duration::from_secs(20);

async fn two(url: &str) -> (Locks, Locks) {
    (
        Locks::connect(url).await.unwrap(),
        Locks::connect(url).await.unwrap(),
    )
}

/// Of two names that differ in their last character only, each is a lock of its own.
async fn long_names(url: &str, shown: bool) {
    let (a, b) = two(url).await;
    for length in [63, 64, 65, 191, 255, 256, 512] {
        let name = |end: &str| "n".repeat(length - 1) + end;
        let held = a.mutex(name("a")).acquire().await.unwrap();
        let refused = b.mutex(name("a")).try_acquire().await.unwrap();
        assert!(refused.is_none(), "{url}: {length}");
        let other = b.mutex(name("b")).try_acquire().await.unwrap();
        let other = other.unwrap_or_else(|| panic!("{url}: {length}"));
        if shown {
            let listed = b.list("nnn", None, 10).await.unwrap();
            let mut keys: Vec<_> = listed.iter().map(|lock| lock.key.to_string()).collect();
            keys.sort();
            assert_eq!(keys, [name("a"), name("b")], "{url}");
        }
        held.release().await.unwrap();
        other.release().await.unwrap();
    }
    let e = a.mutex("n".repeat(513)).try_acquire().await.unwrap_err();
    assert_eq!(e.kind(), ErrorKind::InvalidKey, "{url}: {e}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f98_names_are_as_long_on_every_engine_and_never_cut() {
    let dir = tempfile::tempdir().unwrap();
    long_names("memory:?namespace=long-names", true).await;
    long_names(&format!("file://{}/locks", dir.path().display()), true).await;
    on_each(async |deployment| {
        let url = with(&deployment.url, "namespace=long-names");
        long_names(&url, true).await;
        if matches!(deployment.engine, Engine::Postgres | Engine::MariaDb) {
            long_names(&with(&url, "mode=session"), false).await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f65_a_lease_is_stored_as_asked_or_refused() {
    const SEC: Duration = Duration::from_secs(1);
    on_each(async |deployment| {
        let (a, b) = two(&with(&deployment.url, "namespace=leases")).await;
        let range = a.capabilities().ttl.clone();
        let odd = Duration::from_millis((1 << 33) + 1);
        let kept = [
            3 * SEC,
            20 * SEC + Duration::from_millis(1),
            3600 * SEC,
            odd,
            *range.end(),
        ];
        for ttl in kept.into_iter().filter(|ttl| range.contains(ttl)) {
            let guard = a.mutex("lease").ttl(ttl).acquire().await.unwrap();
            // etcd's leases last for whole seconds, and the guard says so.
            let most = match deployment.engine {
                Engine::Etcd => Duration::from_secs(ttl.as_secs() + u64::from(ttl.subsec_nanos() > 0)),
                _ => ttl,
            };
            let (valid, slack) = (guard.valid_for(), 5 * SEC);
            let what = format!("{:?}: {ttl:?}", deployment.engine);
            assert!(
                valid <= most && valid + ttl / 10 + slack >= ttl,
                "{what}: {valid:?}"
            );
            // As the engine has it. ZooKeeper knows sessions only.
            let stored = b.inspect("lease").await.unwrap().holders[0].expires_in;
            assert_eq!(stored.is_none(), deployment.engine == Engine::ZooKeeper);
            if let Some(stored) = stored {
                assert!(
                    stored <= most + SEC / 10 && stored + slack >= ttl,
                    "{what}: {stored:?}"
                );
            }
            guard.release().await.unwrap();
        }
        let boundary = |per_second: u64| [u64::MAX / per_second, u64::MAX / per_second + 1];
        let huge = [1_000, 1_000_000].map(boundary).concat().into_iter().chain([
            1 << 50,
            1 << 53,
            1 << 62,
            u64::MAX,
        ]);
        let huge = huge
            .map(Duration::from_millis)
            .chain([*range.end() + Duration::from_millis(1), Duration::MAX]);
        for ttl in huge {
            let e = a.mutex("lease").ttl(ttl).acquire().await.unwrap_err();
            assert_eq!(
                e.kind(),
                ErrorKind::InvalidConfig,
                "{:?}: {ttl:?}: {e}",
                deployment.engine
            );
        }
        let free = b.mutex("lease").try_acquire().await.unwrap();
        assert!(free.is_some(), "{:?}", deployment.engine);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f91_names_that_were_used_go_by_themselves() {
    const NAMES: usize = 400;
    on_each(async |deployment| {
        let (a, b) = two(&with(&deployment.url, "namespace=many")).await;
        let one = async |n: usize| {
            let key = format!("name:{n}");
            let held = a.mutex(&*key).acquire().await.unwrap();
            if n.is_multiple_of(10) {
                let e = b
                    .mutex(&*key)
                    .wait(Duration::from_millis(20))
                    .acquire()
                    .await
                    .unwrap_err();
                // A busy engine may not have answered by then.
                let unheard = e.kind() == ErrorKind::OutcomeUnknown;
                assert!(e.is_contention() || unheard, "{e}");
            }
            held.release().await.unwrap();
        };
        for some in (0..NAMES).collect::<Vec<_>>().chunks(20) {
            join_all(some.iter().map(|n| one(*n))).await;
        }
        assert_eq!((a.held(), b.held()), (0, 0));
        let free = eventually(PATIENCE, async || {
            a.list("", None, 10).await.unwrap().is_empty().then_some(())
        });
        free.await
            .unwrap_or_else(|| panic!("{:?}: locks are left", deployment.engine));
        nothing_stays(deployment).await;
    })
    .await;
}

/// What is left at the server, and that it has an end.
async fn nothing_stays(deployment: &Deployment) {
    match deployment.engine {
        Engine::Redis => {
            let mut redis = stores::redis(&deployment.url).await;
            let keys: Vec<String> = redis::cmd("KEYS")
                .arg("*many*")
                .query_async(&mut redis)
                .await
                .unwrap();
            assert!(!keys.is_empty(), "vacuous");
            for key in keys {
                let left: i64 = redis::cmd("TTL").arg(&key).query_async(&mut redis).await.unwrap();
                assert!((1..=24 * 3600).contains(&left), "{key}: {left}");
            }
        }
        Engine::Etcd => {
            // All that begins with "many:": locks. A client has a key of its session beside them while it lives.
            let all = r#"{"key": "bWFueTo=", "range_end": "bWFueTs=", "keys_only": true}"#;
            let mut answer = String::new();
            let gone = eventually(PATIENCE, async || {
                answer = ask_etcd(&address(&deployment.url), "/v3/kv/range", all).await;
                (!answer.contains("count")).then_some(())
            });
            let gone = gone.await;
            assert!(gone.is_some(), "keys are left: {answer}");
        }
        Engine::ZooKeeper => {
            // Empty containers, which the servers remove some time after their last child.
            let client = zookeeper_client::Client::connect(&address(&deployment.url))
                .await
                .unwrap();
            let names = client.list_children("/many").await.unwrap();
            assert!(!names.is_empty(), "vacuous");
            for name in names {
                let gone = eventually(PATIENCE, async || {
                    let children = client.list_children(&format!("/many/{name}")).await;
                    // One that was removed meanwhile is not listed.
                    children.unwrap_or_default().is_empty().then_some(())
                });
                gone.await.unwrap_or_else(|| panic!("{name} is not left"));
            }
        }
        // Rows are purged after a day without use; a test of that engine watches it.
        Engine::Postgres | Engine::MariaDb => {}
    }
}
