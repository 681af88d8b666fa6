//! Of many candidates one leads.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use distlock_core::{ErrorKind, FencingToken, Release};
use futures_util::StreamExt;

use super::*;

#[tokio::test]
async fn a_leader_that_is_cut_off_stops_before_the_next_one_begins_and_stands_again() {
    let scene = Scene::new();
    let leading = Arc::new(AtomicU32::new(0));
    let terms = Arc::new(std::sync::Mutex::new(Vec::<(u32, FencingToken)>::new()));
    let candidates: Vec<Client> = (0..3).map(|_| scene.client()).collect();
    let tasks: Vec<_> = candidates
        .iter()
        .enumerate()
        .map(|(n, client)| {
            let office = client.election("office").ttl(SECS(3));
            let (leading, terms) = (leading.clone(), terms.clone());
            tokio::spawn(async move {
                office
                    .lead(|held| {
                        let (leading, terms) = (leading.clone(), terms.clone());
                        async move {
                            assert_eq!(leading.fetch_add(1, Ordering::SeqCst), 0, "two lead");
                            let _ends = Ends(leading);
                            terms.lock().unwrap().push((n as u32, held.token().unwrap()));
                            std::future::pending::<Result<(), ()>>().await
                        }
                    })
                    .await
            })
        })
        .collect();
    scene.time.settle().await;
    for _ in 0..20 {
        let (leader, _) = *terms.lock().unwrap().last().unwrap();
        let faults = scene.memory.faults();
        faults.partition(candidates[leader as usize].id());
        scene.time.advance(SECS(10)).await;
        assert_eq!(leading.load(Ordering::SeqCst), 1);
        faults.clear();
        scene.time.advance(SECS(1)).await;
    }
    let terms = terms.lock().unwrap().clone();
    assert_eq!(terms.len(), 21);
    assert!(terms.windows(2).all(|pair| pair[0].1 < pair[1].1), "{terms:?}");
    for candidate in 0..3 {
        assert!(
            terms.iter().filter(|(n, _)| *n == candidate).count() > 1,
            "{terms:?}"
        );
    }
    tasks.iter().for_each(tokio::task::JoinHandle::abort);
}

struct Ends(Arc<AtomicU32>);

impl Drop for Ends {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

#[tokio::test]
async fn who_resigns_is_followed_at_once_and_observers_see_each_leader() {
    let scene = Scene::new();
    let named = |name: &str| scene.builder().label(name).memory(&scene.memory).unwrap();
    let (a, b) = (named("a"), named("b"));
    let observer = scene.client().election("office");
    let mut seen = observer.observe().unwrap();
    let label = |leader: Option<distlock_core::driver::Holder>| leader.map(|l| l.label.unwrap());

    assert_eq!(label(seen.next().await.unwrap().unwrap()), None);
    let term = a.election("office").campaign().await.unwrap();
    let (office, first) = (b.election("office"), term.token());
    let second = tokio::spawn(async move { office.campaign().await.unwrap() });
    scene.time.advance(SECS(1)).await;
    assert_eq!(label(seen.next().await.unwrap().unwrap()).as_deref(), Some("a"));
    assert_eq!(label(observer.leader().await.unwrap()).as_deref(), Some("a"));
    let before = a.clock().now();
    assert_eq!(term.resign().await.unwrap(), Release::Clean);
    let second = second.await.unwrap();
    assert_eq!(b.clock().now(), before, "at once");
    assert!(second.token() > first && second.is_held());
    scene.time.advance(SECS(1)).await;
    assert_eq!(label(seen.next().await.unwrap().unwrap()).as_deref(), Some("b"));
}

#[tokio::test]
async fn a_body_that_ends_resigns_and_a_bad_office_is_refused() {
    let scene = Scene::new();
    let client = scene.client();
    let value = client.election("office").lead(async |_| Ok::<_, ()>(7)).await;
    assert_eq!(value.unwrap(), 7);
    assert!(scene.is_free("office").await);
    let failed = client.election("office").lead(async |_| Err::<(), _>("no")).await;
    assert!(matches!(failed, Err(distlock_core::RunError::Body("no"))));
    assert!(scene.is_free("office").await);
    let e = client.election("").campaign().await.unwrap_err();
    assert_eq!(e.kind(), ErrorKind::InvalidKey);
}
