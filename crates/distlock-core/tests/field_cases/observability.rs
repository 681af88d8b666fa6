//! What is told to those who wait and look.

use distlock_core::ErrorKind;
use distlock_core::memory::{Call, Fault};

use crate::telling::{Lines, Series};
use crate::{MS, SECS, Scene, key};

#[tokio::test]
async fn f94_whoever_is_refused_sees_who_holds() {
    let scene = Scene::new();
    let a = scene.builder().label("api-7").memory(&scene.memory).unwrap();
    let b = scene.client();
    let held = a
        .mutex("k")
        .ttl(SECS(30))
        .reason("deploy 123")
        .acquire()
        .await
        .unwrap();
    scene.time.advance(SECS(5)).await;
    let waiter = tokio::spawn(b.mutex("k").wait(SECS(3)).acquire());
    scene.time.advance(SECS(2)).await;
    let status = a.inspect("k").await.unwrap();
    assert_eq!(status.waiters.len(), 1);
    assert!(status.waiters[0].owner.starts_with(&b.id().to_string()));
    scene.time.advance(SECS(1)).await;
    let e = waiter.await.unwrap().unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Timeout);
    let listed = a.list("", None, 10).await.unwrap();
    for holder in [
        e.holder().unwrap(),
        &status.holders[0],
        &listed[0].holders[0],
        b.mutex("k")
            .wait(distlock_core::Wait::Try)
            .acquire()
            .await
            .unwrap_err()
            .holder()
            .unwrap(),
    ] {
        assert_eq!(holder.owner, held.owner().to_string());
        assert_eq!(holder.label.as_deref(), Some("api-7"));
        assert_eq!(holder.reason.as_deref(), Some("deploy 123"));
        assert_eq!(holder.pid, Some(std::process::id()));
        assert_eq!(holder.token, held.token());
        assert!(holder.since.unwrap().elapsed().unwrap() >= SECS(5));
        assert!(holder.expires_in.unwrap() > SECS(20));
    }
    let text = e.to_string();
    for part in ["\"k\"", "api-7", &std::process::id().to_string(), "deploy 123"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    held.release().await.unwrap();

    // What a stranger chose to say stays short and on one line.
    let nasty = format!("say \"hi\"\r\n\u{1b}[31m{}", "é".repeat(10_000));
    let _held = a.mutex("k").reason(nasty).acquire().await.unwrap();
    let e = b
        .mutex("k")
        .wait(distlock_core::Wait::Try)
        .acquire()
        .await
        .unwrap_err();
    let text = e.to_string();
    assert!(text.contains("say \"hi\"\\r\\n") && text.contains('…'), "{text}");
    assert!(!text.chars().any(char::is_control) && text.len() < 1500, "{text}");
}

#[test]
fn f95_the_series_do_not_grow_with_the_keys() {
    let series = Series::default();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let counted = metrics::with_local_recorder(&series, || {
        runtime.block_on(async {
            let scene = Scene::new();
            let (a, b, faults) = (scene.client(), scene.client(), scene.memory.faults());
            let mut counted = Vec::new();
            for n in 0..5000 {
                let name = format!("tenant-{n}");
                // A grant, a wait, a renewal, an error, a loss, a dropped guard: all under this key.
                let held = a.mutex(&name).ttl(MS(300)).acquire().await.unwrap();
                let waiter = tokio::spawn(b.mutex(&name).wait(MS(150)).acquire());
                scene.time.advance(MS(150)).await;
                assert!(waiter.await.unwrap().is_err());
                faults.queue(Call::Try, Fault::NotSent);
                drop(a.mutex(format!("{name}-else")).acquire().await.unwrap());
                faults.delete(&key(&name));
                scene.time.settle().await;
                assert!(!held.is_held());
                if n == 10 {
                    counted.push(series.names());
                }
            }
            counted
        })
    });
    let names = series.names();
    assert_eq!(counted[0], names);
    assert!(names.len() > 10 && names.len() < 40, "{names:#?}");
    assert!(!names.iter().any(|name| name.contains("tenant")), "{names:#?}");
}

#[tokio::test]
async fn f97_a_long_wait_is_told_of_without_a_flood() {
    let (lines, _guard) = Lines::catch();
    let scene = Scene::new();
    let a = scene.builder().label("api-7").memory(&scene.memory).unwrap();
    let held = a.mutex("k").expect(SECS(3600)).acquire().await.unwrap();
    // One waits at the engine, one behind it in its own process.
    let b = scene.client();
    let waiters = [
        tokio::spawn(b.mutex("k").acquire()),
        tokio::spawn(b.mutex("k").acquire()),
    ];
    scene.time.advance(SECS(300)).await;
    let told = lines.with("still waiting");
    assert_eq!(told.len(), 60, "one each ten seconds and waiter");
    assert!(
        told.iter().all(|l| l.contains("key=k") && l.contains("api-7")),
        "{told:#?}"
    );
    assert!(told[0].contains("waited=10s"), "{}", told[0]);
    held.release().await.unwrap();
    scene.time.settle().await;
    let [first, second] = waiters;
    drop(first.await.unwrap().unwrap());
    scene.time.settle().await;
    drop(second.await.unwrap().unwrap());
    let told = lines.with("obtained a lock after a long wait");
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(
        told.iter()
            .all(|l| l.contains("key=k") && l.contains("waited=300s")),
        "{told:?}"
    );
    // A short wait says nothing.
    let before = lines.with("").len();
    let held = a.mutex("k").acquire().await.unwrap();
    let waiter = tokio::spawn(b.mutex("k").acquire());
    scene.time.advance(SECS(1)).await;
    held.release().await.unwrap();
    drop(waiter.await.unwrap().unwrap());
    assert_eq!(lines.with("").len(), before, "{:?}", lines.with(""));
}
