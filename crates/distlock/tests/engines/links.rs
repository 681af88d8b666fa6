//! What a network can do to an acquisition: cuts anywhere, answers that come late or never, names that lead nowhere.

use std::time::{Duration, Instant};

use distlock::{ErrorKind, Locks, Order};
use distlock_testkit::proxy::{Fault, Proxy};
use distlock_testkit::servers::eventually;
use futures_util::future::join_all;

use crate::deployments::{Deployment, Engine, on_each, with};

const SEC: Duration = Duration::from_secs(1);
/// Of what is cut: the shortest that every engine promises.
const TTL: Duration = Duration::from_secs(2);
/// In how many places.
const CUTS: u64 = 8;
/// For a machine that is busy.
const SLACK: Duration = Duration::from_secs(6);

/// A client behind a proxy, after its first lock: connected, with everything prepared.
async fn client(deployment: &Deployment, key: &str) -> (Proxy, Locks) {
    let (proxy, url) = deployment.behind_a_proxy().await;
    let url = match deployment.engine {
        Engine::ZooKeeper => with(&url, &format!("session_timeout={}s", TTL.as_secs())),
        _ => url,
    };
    let locks = Locks::connect(&url).await.unwrap();
    take_once(&locks, key).await;
    (proxy, locks)
}

async fn take_once(locks: &Locks, key: &str) {
    let guard = locks.mutex(key).ttl(TTL).acquire().await.unwrap();
    guard.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f01_a_client_that_is_cut_off_anywhere_in_an_acquisition_is_in_the_way_for_its_lease_at_most() {
    on_each(async |deployment| {
        let (proxy, locks) = client(deployment, "measured").await;
        let before = proxy.passed().0;
        take_once(&locks, "measured").await;
        let bytes = proxy.passed().0 - before;
        let others = Locks::connect(&deployment.url).await.unwrap();
        join_all((0..=CUTS).map(|n| cut_after(deployment, &others, bytes * n / CUTS))).await;
    })
    .await;
}

/// After so many bytes of its requests the client never reaches the engine again.
async fn cut_after(deployment: &Deployment, others: &Locks, bytes: u64) {
    let key = format!("cut:{bytes}");
    let (proxy, locks) = client(deployment, &format!("warm:{bytes}")).await;
    proxy.refuse();
    proxy.requests(Fault::CutAfter(bytes));
    let taken = locks.mutex(&key).ttl(TTL).wait(SEC / 2).acquire().await;
    proxy.cut();
    let cut = Instant::now();
    let next = others.mutex(&key).ttl(TTL).wait(TTL + SLACK).acquire().await;
    let next = next.unwrap_or_else(|e| panic!("{:?}, after {bytes} bytes: {e}", deployment.engine));
    assert!(cut.elapsed() < TTL + SLACK);
    next.release().await.unwrap();
    drop(taken);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f02_f34_a_grant_that_was_not_heard_of_is_told_in_time_and_taken_back() {
    on_each(async |deployment| {
        let others = Locks::connect(&deployment.url).await.unwrap();
        for lost in [false, true] {
            let (proxy, url) = deployment.behind_a_proxy().await;
            let locks = Locks::connect(&url).await.unwrap();
            take_once(&locks, "warm").await;
            proxy.replies(Fault::Hold);
            let key = format!("unheard:{lost}");
            let asked = Instant::now();
            // A lease of 30 s.
            let e = locks.mutex(&key).wait(SEC / 2).acquire().await.unwrap_err();
            let took = asked.elapsed();
            let unknown = [ErrorKind::OutcomeUnknown, ErrorKind::Unavailable];
            assert!(unknown.contains(&e.kind()), "{:?}: {e}", deployment.engine);
            assert!(took < SEC / 2 + SLACK, "{:?}: after {took:?}", deployment.engine);
            if lost {
                proxy.cut();
            }
            proxy.heal();
            let next = others.mutex(&key).wait(15 * SEC).acquire().await;
            let next = next.unwrap_or_else(|e| panic!("{:?}, {lost}: {e}", deployment.engine));
            next.release().await.unwrap();
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f34_a_host_whose_name_leads_nowhere_is_unavailable_in_time() {
    let urls = [
        "redis://nowhere.invalid/",
        "redis+sentinel://nowhere.invalid/master",
        "redlock://a.invalid,b.invalid,c.invalid",
        "etcd://nowhere.invalid",
        "zk://nowhere.invalid",
        "postgres://nowhere.invalid/db",
        "mysql://nowhere.invalid/db",
        "http://nowhere.invalid",
    ];
    join_all(urls.map(async |url| {
        let start = Instant::now();
        let e = match Locks::connect(url).await {
            Ok(locks) => locks.mutex("k").wait(SEC).acquire().await.unwrap_err(),
            Err(e) => e,
        };
        // Unknown: the resolver had not answered within the wait.
        let unavailable = [
            ErrorKind::Unavailable,
            ErrorKind::NoQuorum,
            ErrorKind::OutcomeUnknown,
        ];
        assert!(unavailable.contains(&e.kind()), "{url}: {e}");
        // Those that connect first do so for five seconds at most.
        assert!(
            start.elapsed() < 6 * SEC + SLACK,
            "{url}: after {:?}",
            start.elapsed()
        );
    }))
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f32_waiters_that_were_interrupted_or_cut_off_while_they_leave_are_not_in_the_line() {
    on_each(async |deployment| {
        let others = Locks::connect(&deployment.url).await.unwrap();
        let (proxy, url) = deployment.behind_a_proxy().await;
        let locks = Locks::connect(&url).await.unwrap();
        for cut in [false, true, true, false, true] {
            let held = others.mutex("left").acquire().await.unwrap();
            let waits = tokio::spawn(locks.mutex("left").order(Order::Fifo).acquire());
            let seen = eventually(10 * SEC, async || {
                let waiters = others.inspect("left").await.ok()?.waiters;
                (!waiters.is_empty()).then_some(())
            });
            seen.await
                .unwrap_or_else(|| panic!("{:?}: nobody waits", deployment.engine));
            waits.abort();
            if cut {
                proxy.cut();
            }
            assert!(waits.await.is_err_and(|e| e.is_cancelled()));
            held.release().await.unwrap();
            // Long before the lease of whoever left, which lasts for 30 s.
            let next = others.mutex("left").wait(10 * SEC).acquire().await;
            let next = next.unwrap_or_else(|e| panic!("{:?}, {cut}: {e}", deployment.engine));
            let gone = eventually(10 * SEC, async || {
                let waiters = others.inspect("left").await.ok()?.waiters;
                waiters.is_empty().then_some(())
            });
            gone.await
                .unwrap_or_else(|| panic!("{:?}, {cut}: still in line", deployment.engine));
            next.release().await.unwrap();
        }
    })
    .await;
}
