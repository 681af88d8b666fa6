//! Fenced files.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::thread;
use std::time::Duration;

use distlock_fence::{FenceError, FenceGate, FencedFile, FencingToken, FileGate};

fn t(n: u64) -> FencingToken {
    FencingToken::new(n)
}

#[test]
fn a_stale_write_is_refused_and_the_content_stays() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("data");
    let file = FencedFile::new(&path);
    assert_eq!(file.newest_token().unwrap(), None);
    file.replace(t(34), "new").unwrap();
    for refused in [
        file.replace(t(33), "old"),
        file.append(t(33), "old"),
        file.update(t(33), |_| panic!("a stale change ran")),
        file.guarded(t(33), |_| panic!("a stale write ran")),
    ] {
        assert!(refused.unwrap_err().is_stale());
    }
    assert_eq!(fs::read_to_string(&path).unwrap(), "new");
    // Remembered by the file, not by the value.
    assert_eq!(FencedFile::new(&path).newest_token().unwrap(), Some(t(34)));
}

#[test]
fn the_present_holder_writes_often_and_later_ones_go_on() {
    let dir = tempfile::tempdir().unwrap();
    let file = FencedFile::new(dir.path().join("log"));
    for n in 1..=50 {
        file.append(t(n), "a").unwrap();
        file.append(t(n), "b").unwrap();
        assert_eq!(file.newest_token().unwrap(), Some(t(n)));
    }
    assert_eq!(fs::read(dir.path().join("log")).unwrap().len(), 100);
    file.update(t(50), |old| Ok(old.unwrap()[..2].to_vec())).unwrap();
    assert_eq!(fs::read(dir.path().join("log")).unwrap(), b"ab");
}

#[test]
fn all_names_of_a_file_share_its_fence_and_its_mode_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    let (path, link) = (dir.path().join("data"), dir.path().join("link"));
    fs::write(&path, "x").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
    std::os::unix::fs::symlink(&path, &link).unwrap();
    FencedFile::new(&link).replace(t(2), "y").unwrap();
    assert!(FencedFile::new(&path).replace(t(1), "z").unwrap_err().is_stale());
    assert_eq!(fs::read_to_string(&path).unwrap(), "y");
    assert!(link.is_symlink());
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640);
}

#[test]
fn a_damaged_record_refuses_everything() {
    let dir = tempfile::tempdir().unwrap();
    let file = FencedFile::new(dir.path().join("data"));
    file.replace(t(1), "x").unwrap();
    fs::write(
        dir.path().join("data.fence"),
        "somebody's notes, not a record of ours",
    )
    .unwrap();
    assert!(matches!(file.replace(t(9), "y"), Err(FenceError::Damaged { .. })));
    assert_eq!(fs::read_to_string(dir.path().join("data")).unwrap(), "x");
}

#[test]
fn a_write_that_does_not_end_blocks_the_others_for_their_patience_only() {
    let dir = tempfile::tempdir().unwrap();
    let file = FencedFile::new(dir.path().join("data"));
    let inner = file.clone().patience(Duration::from_millis(50));
    file.guarded(t(1), |_| {
        assert!(matches!(
            inner.replace(t(2), "x"),
            Err(FenceError::Blocked { .. })
        ));
        Ok(())
    })
    .unwrap();
    inner.replace(t(2), "x").unwrap();
}

#[test]
fn concurrent_increments_lose_nothing_and_tokens_only_grow() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("count");
    let (threads, each) = (4u64, 50u64);
    let admitted: u64 = thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|i| {
                let file = FencedFile::new(&path);
                scope.spawn(move || {
                    (1..=each)
                        .filter(|n| {
                            let add = |old: Option<Vec<u8>>| {
                                let old = old.map_or(0, |o| String::from_utf8(o).unwrap().parse().unwrap());
                                Ok((old + 1u64).to_string().into_bytes())
                            };
                            match file.update(t(n * threads + i), add) {
                                Ok(()) => true,
                                Err(e) if e.is_stale() => false,
                                Err(e) => panic!("{e}"),
                            }
                        })
                        .count() as u64
                })
            })
            .collect();
        workers.into_iter().map(|w| w.join().unwrap()).sum()
    });
    assert!(admitted >= each, "only {admitted} writes: the test shows nothing");
    assert_eq!(fs::read_to_string(&path).unwrap(), admitted.to_string());
}

#[tokio::test]
async fn a_directory_is_a_gate_and_names_cannot_lead_out_of_it() {
    let dir = tempfile::tempdir().unwrap();
    let gate = FileGate::new(dir.path());
    gate.pass("a", t(2), b"x".to_vec()).await.unwrap();
    assert!(gate.pass("a", t(1), b"y".to_vec()).await.unwrap_err().is_stale());
    for bad in ["", "/etc/passwd", "../a", "a/../../b", "./a", "a.fence"] {
        let refused = gate.pass(bad, t(3), Vec::new()).await;
        assert!(
            matches!(refused, Err(FenceError::InvalidResource { .. })),
            "{bad:?}: {refused:?}"
        );
    }
}
