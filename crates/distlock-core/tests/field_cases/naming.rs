//! Names.

use std::sync::atomic::{AtomicBool, Ordering};

use distlock_core::driver::Break;
use distlock_core::{Error, ErrorKind, Key, MAX_KEY_BYTES, RunError, all};

use crate::Scene;

/// The answers of every entry point to one name.
async fn answers(scene: &Scene, name: &str) -> Vec<(&'static str, Result<(), Error>)> {
    let a = scene.client();
    let ran = AtomicBool::new(false);
    let body = async |_| {
        ran.store(true, Ordering::SeqCst);
        Ok::<_, ()>(())
    };
    let run = match a.mutex(name).run(body).await {
        Err(RunError::Lock(e)) => Err(e),
        other => {
            other.unwrap();
            Ok(())
        }
    };
    assert_eq!(run.is_ok(), ran.load(Ordering::SeqCst));
    let freed = async |guard: Result<distlock_core::Guard, Error>| match guard {
        Ok(guard) => guard.release().await.map(drop),
        Err(e) => Err(e),
    };
    vec![
        ("run", run),
        ("acquire", freed(a.mutex(name).acquire().await).await),
        (
            "try",
            freed(a.mutex(name).try_acquire().await.map(Option::unwrap)).await,
        ),
        ("read", freed(a.rw(name).read().acquire().await).await),
        ("write", freed(a.rw(name).write().acquire().await).await),
        ("semaphore", freed(a.semaphore(name, 1).acquire().await).await),
        (
            "all",
            freed(all([a.mutex(name), a.mutex("other")]).acquire().await).await,
        ),
        ("inspect", a.inspect(name).await.map(drop)),
        ("break", a.break_lock(name, Break::default()).await.map(drop)),
        ("watch", a.watch(name).map(drop)),
        ("bytes", Key::from_bytes(name.as_bytes()).map(drop)),
    ]
}

async fn refused_everywhere(scene: &Scene, name: &str) {
    scene.memory.faults().record();
    let before = scene.memory.faults().history().len();
    for (call, answer) in answers(scene, name).await {
        let e = answer.expect_err(call);
        assert_eq!(e.kind(), ErrorKind::InvalidKey, "{call}: {e}");
        assert!(!e.to_string().chars().any(char::is_control), "{call}: {e}");
    }
    assert_eq!(
        scene.memory.faults().history().len(),
        before,
        "asked for {name:?}"
    );
}

#[tokio::test]
async fn f99_a_bad_name_gets_the_same_answer_everywhere() {
    let scene = Scene::new();
    refused_everywhere(&scene, "").await;
    refused_everywhere(&scene, "a\0b").await;
    for (call, answer) in answers(&scene, " ").await {
        answer.expect(call);
    }
    let e = Key::from_bytes(b"a\xff").unwrap_err();
    assert_eq!(e.kind(), ErrorKind::InvalidKey);
    assert!(e.to_string().contains("not UTF-8 (byte 1 of 2)"), "{e}");
}

#[tokio::test]
async fn f100_control_characters_are_refused_before_the_engine_is_asked() {
    let scene = Scene::new();
    for name in ["a\tb", "a\rb", "a\nb", "k\r\nDEL other", "a\u{7f}", "a\u{85}b"] {
        refused_everywhere(&scene, name).await;
    }
    // A space is a name like any other.
    let a = scene.client();
    let _held = a.mutex("a b").acquire().await.unwrap();
    assert!(!scene.is_free("a b").await && scene.is_free("a").await);
}

#[tokio::test]
async fn f98_names_are_never_cut() {
    let scene = Scene::new();
    let a = scene.client();
    for len in [63, 64, 65, 191, 255, 256, MAX_KEY_BYTES] {
        let (name, other) = ("x".repeat(len), "x".repeat(len - 1) + "y");
        let held = a.mutex(&name).acquire().await.unwrap();
        assert!(
            !scene.is_free(&name).await && scene.is_free(&other).await,
            "{len}"
        );
        let listed = a.list("", None, 10).await.unwrap();
        assert_eq!(listed[0].key.as_str(), name);
        held.release().await.unwrap();
    }
    for len in [MAX_KEY_BYTES + 1, 1024, 8192] {
        refused_everywhere(&scene, &"x".repeat(len)).await;
    }
    // Bytes count, not characters.
    refused_everywhere(&scene, &"é".repeat(MAX_KEY_BYTES / 2 + 1)).await;
}

#[tokio::test]
async fn f101_names_are_taken_literally() {
    let scene = Scene::new();
    let a = scene.client();
    let names = ["job[1]", "job1", "job*", "job?", "job\\x", "{job}"];
    let mut guards = Vec::new();
    for name in names {
        guards.push(a.mutex(name).acquire().await.unwrap());
    }
    let listed = async |prefix| {
        let found = a.list(prefix, None, 100).await.unwrap();
        found.into_iter().map(|l| l.key.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(listed("job[").await, ["job[1]"]);
    assert_eq!(listed("job*").await, ["job*"]);
    assert_eq!(listed("").await.len(), names.len());
    assert_eq!(a.inspect("job*").await.unwrap().holders.len(), 1);
    assert_eq!(a.break_lock("job*", Break::default()).await.unwrap().len(), 1);
    scene.time.advance(crate::SECS(1)).await;
    for (name, guard) in names.iter().zip(&guards) {
        assert_eq!(guard.is_held(), *name != "job*", "{name}");
    }
}

#[tokio::test]
async fn f91_names_leave_nothing_behind() {
    let scene = Scene::new();
    let (a, b) = (scene.client(), scene.client());
    for n in 0..50_000 {
        let name = format!("once-{n}");
        let held = a.mutex(&name).acquire().await.unwrap();
        // A try that is refused leaves nothing either.
        assert!(b.mutex(&name).try_acquire().await.unwrap().is_none());
        held.release().await.unwrap();
    }
    assert_eq!(a.held(), 0);
    assert_eq!(a.list("", None, 10).await.unwrap(), []);
    // `Memory { records: n }`: what the engine keeps is bounded, whatever was used.
    let kept = format!("{:?}", scene.memory);
    let kept: u32 = kept
        .chars()
        .filter(char::is_ascii_digit)
        .collect::<String>()
        .parse()
        .unwrap();
    assert!(kept < 5000, "{kept} records are kept");
}
