//! A table that is damaged, removed, full, or crowded.
#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod kit;

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use distlock_core::Key;
use distlock_core::driver::{Break, DriverErrorKind, LostReason, Released, Renewal};
use distlock_file::Config;
use kit::{Mount, client, client_of, is_root, mutex, skip, until};

const LONG: Duration = Duration::from_secs(20);

#[tokio::test]
async fn release_and_renew_work_on_a_full_disk_and_acquire_says_so() {
    if !is_root() {
        return skip("a full disk", "needs root to mount a tmpfs");
    }
    let base = tempfile::tempdir().unwrap();
    let Some(_mount) = Mount::tmpfs(base.path(), "size=8m,mode=700") else {
        return skip("a full disk", "cannot mount a tmpfs");
    };
    let a = client(base.path());
    // So many holders of one bucket that its snapshot has outgrown what every table has from the start.
    let slot = || mutex("k").mode(distlock_core::driver::Mode::Slot { of: 1000 });
    let mut crowd = Vec::new();
    for _ in 0..60 {
        let mut c = a.contender(slot());
        c.look().await.unwrap().unwrap();
        crowd.push(c);
    }
    let mut single = a.contender(mutex("single"));
    single.look().await.unwrap().unwrap();

    let filler = base.path().join("filler");
    let mut full = fs::File::create(&filler).unwrap();
    while std::io::Write::write_all(&mut full, &[1; 4096]).is_ok() {}

    // A small one still fits: its room was there from the start.
    let mut small = a.contender(mutex("small"));
    assert!(small.look().await.unwrap().is_some());
    // A crowd that grows needs room, and is told.
    let mut refused = None;
    for _ in 0..60 {
        let mut c = a.contender(slot());
        match c.look().await {
            Ok(Some(_)) => crowd.push(c),
            Ok(None) => panic!("no free slot"),
            Err(e) => {
                refused = Some(e);
                break;
            }
        }
    }
    let refused = refused.expect("the disk is full");
    assert!(matches!(refused.kind, DriverErrorKind::Unavailable) && refused.retry);
    assert!(refused.to_string().contains("full"), "{refused}");

    for c in [&small, &single] {
        assert!(matches!(a.renew(c, LONG).await, Renewal::Good(_)));
    }
    let n = crowd.len();
    assert!(n >= 60);
    for (i, c) in crowd.iter_mut().enumerate() {
        assert!(matches!(a.renew(c, LONG).await, Renewal::Good(_)), "{i} of {n}");
        assert_eq!(
            c.claim.release(None).await.unwrap(),
            Released::Freed,
            "{i} of {n}"
        );
    }
    assert_eq!(small.claim.release(None).await.unwrap(), Released::Freed);
    assert_eq!(single.claim.release(None).await.unwrap(), Released::Freed);
}

#[tokio::test]
async fn a_damaged_table_is_reported_never_trusted_and_can_be_cleared() {
    let dir = tempfile::tempdir().unwrap();
    let a = client(dir.path());
    let mut x = a.contender(mutex("k"));
    let before = x.look().await.unwrap().unwrap();
    // One bit in the middle of every snapshot.
    let file = fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(dir.path().join("table"))
        .unwrap();
    use std::os::unix::fs::FileExt;
    for slot in 0..512u64 {
        let at = (1 << 20) * (slot + 1) + 50;
        let mut byte = [0];
        if file.read_exact_at(&mut byte, at).is_ok() {
            file.write_all_at(&[byte[0] ^ 4], at).unwrap();
        }
    }
    let b = client(dir.path());
    let e = b.contender(mutex("k")).look().await.unwrap_err();
    assert!(e.to_string().contains("damaged") && !e.retry, "{e}");
    let findings = b.driver.inspect().unwrap().doctor().await.unwrap();
    assert!(findings.iter().any(|f| f.id == "file-damaged"), "{findings:?}");
    // Other keys are not concerned.
    assert!(b.contender(mutex("another")).look().await.unwrap().is_some());
    let key = Key::new("k").unwrap();
    b.driver
        .inspect()
        .unwrap()
        .break_lock(&key, &Break::default())
        .await
        .unwrap();
    assert!(b.contender(mutex("k")).look().await.unwrap().unwrap() > before);
    let lost = a.renew(&x, LONG).await;
    assert!(matches!(lost, Renewal::Lost(LostReason::Taken)), "{lost:?}");
}

#[tokio::test]
async fn a_truncated_or_foreign_table_is_reported_with_advice() {
    for content in [
        &b""[..],
        b"distlock",
        b"something else entirely, and longer than a header is",
    ] {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("table"), content).unwrap();
        let e = client_of(Config::new(dir.path())).unwrap_err();
        assert!(matches!(e.kind, DriverErrorKind::Unavailable), "{e}");
        assert!(e.to_string().contains("remove the directory"), "{e}");
        assert_eq!(fs::read(dir.path().join("table")).unwrap(), content);
    }
    // Of another version.
    let dir = tempfile::tempdir().unwrap();
    drop(client(dir.path()));
    use std::os::unix::fs::FileExt;
    let file = fs::OpenOptions::new()
        .write(true)
        .open(dir.path().join("table"))
        .unwrap();
    file.write_all_at(&9u32.to_le_bytes(), 8).unwrap();
    let e = client_of(Config::new(dir.path())).unwrap_err();
    assert!(e.to_string().contains("format 9"), "{e}");
    // Cut in the middle of the slots.
    let dir = tempfile::tempdir().unwrap();
    let a = client(dir.path());
    let mut x = a.contender(mutex("k"));
    x.look().await.unwrap();
    drop(a);
    let file = fs::OpenOptions::new()
        .write(true)
        .open(dir.path().join("table"))
        .unwrap();
    file.set_len(1 << 20).unwrap();
    let b = client(dir.path());
    let e = b.contender(mutex("k")).look().await.unwrap_err();
    assert!(e.to_string().contains("damaged"), "{e}");
}

#[tokio::test]
async fn a_directory_removed_while_held_is_told_and_made_anew() {
    let base = tempfile::tempdir().unwrap();
    let dir = base.path().join("locks");
    let (a, b) = (client(&dir), client(&dir));
    let mut x = a.contender(mutex("k"));
    let first = x.look().await.unwrap().unwrap();
    fs::remove_dir_all(&dir).unwrap();
    // Told within a second, without having asked.
    tokio::time::timeout(LONG, x.want.bell.rung())
        .await
        .expect("told");
    let lost = a.renew(&x, LONG).await;
    assert!(matches!(lost, Renewal::Lost(LostReason::Taken)), "{lost:?}");
    // The next attempt finds a new directory, with larger tokens, and excludes again.
    let mut y = b.contender(mutex("k"));
    assert!(y.look().await.unwrap().unwrap() > first);
    let mut z = a.contender(mutex("k"));
    assert!(z.look().await.unwrap().is_none());
    assert_eq!(x.claim.release(None).await.unwrap(), Released::NotHeld);
    assert!(matches!(b.renew(&y, LONG).await, Renewal::Good(_)));
    y.claim.release(None).await.unwrap();
    assert!(until(LONG, async || z.look().await.unwrap().is_some()).await);
    // Moved away counts as removed.
    fs::rename(&dir, base.path().join("moved")).unwrap();
    let lost = a.renew(&z, LONG).await;
    assert!(matches!(lost, Renewal::Lost(LostReason::Taken)), "{lost:?}");
}

#[tokio::test]
async fn tokens_grow_when_the_table_is_made_anew() {
    let base = tempfile::tempdir().unwrap();
    let dir = base.path().join("locks");
    let mut last = 0;
    for round in 0..4 {
        let a = client(&dir);
        for _ in 0..3 {
            let mut x = a.contender(mutex("k"));
            let token = x.look().await.unwrap().unwrap();
            assert!(token > last, "round {round}: {token} > {last}");
            last = token;
            x.claim.release(None).await.unwrap();
        }
        if round % 2 == 0 {
            fs::remove_dir_all(&dir).unwrap();
        }
    }
}

#[tokio::test]
async fn f91_twenty_thousand_keys_leave_no_files_and_a_small_table() {
    let dir = tempfile::tempdir().unwrap();
    let a = client(dir.path());
    for i in 0..20_000 {
        let mut c = a.contender(mutex(&format!("order:{i}")));
        c.look().await.unwrap().unwrap();
        c.claim.release(None).await.unwrap();
    }
    let files = fs::read_dir(dir.path()).unwrap().count();
    assert_eq!(files, 2);
    let used = fs::metadata(dir.path().join("table")).unwrap().blocks() * 512;
    assert!(used < 4 << 20, "{used} bytes");
}

#[tokio::test]
async fn room_that_a_crowd_needed_is_given_back() {
    let dir = tempfile::tempdir().unwrap();
    let a = client(dir.path());
    let used = || fs::metadata(dir.path().join("table")).unwrap().blocks() * 512;
    let before = used();
    let slot = || mutex("k").mode(distlock_core::driver::Mode::Slot { of: 10_000 });
    let mut crowd = Vec::new();
    for _ in 0..2000 {
        let mut c = a.contender(slot());
        c.look().await.unwrap().unwrap();
        crowd.push(c);
    }
    let crowded = used();
    assert!(crowded > before + (500 << 10), "vacuous: {before} → {crowded}");
    for mut c in crowd {
        c.claim.release(None).await.unwrap();
    }
    let after = used();
    assert!(after < before + (256 << 10), "{before} → {crowded} → {after}");
}
