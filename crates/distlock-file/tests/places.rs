//! Where the locks are: directories that are refused, shared, damaged, removed, full, or seen from elsewhere.
#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod kit;

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use distlock_core::Key;
use distlock_core::driver::{Break, DriverError, DriverErrorKind, LostReason, Refusal, Released, Renewal};
use distlock_file::{Config, Share};
use kit::{Worker, client, client_of, is_root, mutex, shared, skip, token, until, worker};

const LONG: Duration = Duration::from_secs(20);

#[test]
fn worker() {
    worker::main();
}

fn chmod(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

fn refused(config: Config) -> String {
    match client_of(config) {
        Err(DriverError {
            kind: DriverErrorKind::Refused(Refusal::InvalidConfig(why)),
            ..
        }) => why,
        other => panic!("not refused: {other:?}"),
    }
}

#[tokio::test]
async fn f93_bad_directories_are_refused_with_the_path_and_advice() {
    let base = tempfile::tempdir().unwrap();
    let path = |name: &str| base.path().join(name);

    let why = refused(Config::new(path("missing/parent")));
    assert!(
        why.contains("missing/parent") && why.contains("create that first"),
        "{why}"
    );

    fs::create_dir(path("real")).unwrap();
    symlink(path("real"), path("link")).unwrap();
    let why = refused(Config::new(path("link")));
    assert!(why.contains("symbolic link"), "{why}");

    fs::write(path("file"), "").unwrap();
    let why = refused(Config::new(path("file")));
    assert!(why.contains("not a directory"), "{why}");

    for (mode, share, refuse) in [
        (0o777, Share::User, true),
        (0o1777, Share::User, true),
        (0o770, Share::User, true),
        (0o755, Share::User, false),
        (0o777, Share::Group, true),
        (0o2770, Share::Group, false),
        (0o777, Share::All, false),
    ] {
        let dir = path(&format!("mode{mode:o}{share:?}"));
        fs::create_dir(&dir).unwrap();
        chmod(&dir, mode);
        if refuse {
            let why = refused(shared(&dir, share));
            assert!(
                why.contains(&format!("{mode:04o}")) && why.contains("share="),
                "{why}"
            );
            assert_eq!(fs::read_dir(&dir).unwrap().count(), 0, "something was left");
        } else {
            client_of(shared(&dir, share)).unwrap();
        }
    }

    let dir = path("table-link");
    fs::create_dir(&dir).unwrap();
    chmod(&dir, 0o700);
    fs::write(path("elsewhere"), "").unwrap();
    symlink(path("elsewhere"), dir.join("table")).unwrap();
    let why = refused(Config::new(&dir));
    assert!(why.contains("symbolic link"), "{why}");
}

#[tokio::test]
async fn modes_are_set_whatever_the_umask_is() {
    let base = tempfile::tempdir().unwrap();
    for (share, dir_mode, file_mode) in [
        (Share::User, 0o700, 0o600),
        (Share::Group, 0o2770, 0o660),
        (Share::All, 0o777, 0o666),
    ] {
        let dir = base.path().join(format!("{share:?}"));
        let _client = client_of(shared(&dir, share)).unwrap();
        let mode = |p: PathBuf| fs::metadata(p).unwrap().mode() & 0o7777;
        assert_eq!(mode(dir.clone()), dir_mode);
        assert_eq!(mode(dir.join("p")), dir_mode);
        assert_eq!(mode(dir.join("table")), file_mode);
        let fifo = fs::read_dir(dir.join("p")).unwrap().next().unwrap().unwrap();
        assert_eq!(mode(fifo.path()), file_mode);
    }
}

#[tokio::test]
async fn f93_a_network_file_system_is_refused_by_name() {
    // The only file system of that kind that every host has.
    let config = Config::new("/proc/self/fdinfo");
    let why = refused(config);
    assert!(
        why.contains("network_fs=allow") && why.contains("0x9fa0"),
        "{why}"
    );
}

#[tokio::test]
async fn f93_a_directory_that_cannot_be_written_is_unavailable_with_advice() {
    if !is_root() {
        return skip("a read-only file system", "needs root to mount one");
    }
    let base = tempfile::tempdir().unwrap();
    let Some(_mount) = Mount::tmpfs(base.path(), "ro,size=8m,mode=700") else {
        return skip("a read-only file system", "cannot mount a tmpfs");
    };
    let e = client_of(Config::new(base.path())).unwrap_err();
    let text = e.to_string();
    assert!(matches!(e.kind, DriverErrorKind::Unavailable), "{text}");
    assert!(
        text.contains("read-only") && text.contains(base.path().to_str().unwrap()),
        "{text}"
    );
}

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
    assert_eq!(findings[0].id, "file-damaged");
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
async fn tokens_grow_when_the_table_is_made_anew_and_after_a_reboot() {
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
async fn a_million_keys_would_leave_no_files_and_a_small_table() {
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

#[test]
fn the_default_directory_is_the_same_without_an_environment() {
    let test = "the_default_directory_is_the_same_without_an_environment";
    let here = Config::default_dir().unwrap();
    if std::env::var_os("DISTLOCK_PRINT_DEFAULT").is_some() {
        return println!("#> {}", here.display());
    }
    let exe = std::env::current_exe().unwrap();
    let out = Command::new(exe)
        .args(["--exact", test, "--nocapture"])
        .env_clear()
        .env("DISTLOCK_PRINT_DEFAULT", "1")
        .output()
        .unwrap();
    let out = String::from_utf8(out.stdout).unwrap();
    assert!(out.contains(&format!("#> {}\n", here.display())), "{out}");
    if is_root() {
        assert_eq!(here, Path::new("/var/lib/distlock"));
    }
}

#[test]
fn two_users_exclude_each_other_and_see_each_other_die() {
    if !is_root() {
        return skip("two users", "needs root");
    }
    for (share, users) in [
        (
            "all",
            [
                ["--reuid=12345", "--regid=12345"],
                ["--reuid=12346", "--regid=12346"],
            ],
        ),
        (
            "group",
            [
                ["--reuid=12345", "--regid=12345"],
                ["--reuid=12346", "--regid=12345"],
            ],
        ),
    ] {
        let base = tempfile::Builder::new()
            .permissions(fs::Permissions::from_mode(0o755))
            .tempdir()
            .unwrap();
        let dir = base.path().join("locks");
        fs::create_dir(&dir).unwrap();
        if share == "group" {
            std::os::unix::fs::chown(&dir, None, Some(12345)).unwrap();
            chmod(&dir, 0o2770);
        } else {
            chmod(&dir, 0o777);
        }
        let wrap = |u: [&'static str; 2]| ["setpriv", u[0], u[1], "--clear-groups"];
        let mut a = Worker::start_as(&wrap(users[0]), &dir, share);
        let mut b = Worker::start_as(&wrap(users[1]), &dir, share);
        let first = a.held("lock k mutex any 300000");
        assert_eq!(b.ask("try k mutex 1000"), "busy");
        b.say("lock k mutex any 300000");
        std::thread::sleep(Duration::from_millis(50));
        a.kill();
        let second = token(&b.hear(LONG));
        assert!(second > first);
        // And the other way round, by a release.
        let mut c = Worker::start_as(&wrap(users[0]), &dir, share);
        assert_eq!(c.ask("try k mutex 1000"), "busy");
        c.say("lock k mutex fifo 300000");
        std::thread::sleep(Duration::from_millis(50));
        assert_eq!(b.ask("release"), "freed");
        assert!(token(&c.hear(LONG)) > second);
    }
}

#[test]
fn f87_pid_and_time_namespaces_share_a_directory() {
    if !is_root() {
        return skip("namespaces", "needs root");
    }
    let usable = Command::new("unshare")
        .args(["--time", "--boottime", "100000", "--pid", "--fork", "true"])
        .status();
    if !usable.is_ok_and(|s| s.success()) {
        return skip("namespaces", "unshare --time --pid does not work here");
    }
    let dir = tempfile::tempdir().unwrap();
    let apart: &[&str] = &[
        "unshare",
        "--time",
        "--boottime",
        "100000",
        "--pid",
        "--fork",
        "--mount-proc",
        "--kill-child",
    ];
    let back: &[&str] = &["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"];
    let mut here = Worker::start(dir.path());
    let mut there = Worker::start_as(apart, dir.path(), "user");
    let mut also = Worker::start_as(back, dir.path(), "user");
    // To a clock that is 100,000 s ahead the lease would be long over.
    let first = here.held("lock k mutex any 60000");
    assert_eq!(there.ask("try k mutex 60000"), "busy");
    assert_eq!(also.ask("try k mutex 60000"), "busy");
    assert_eq!(here.ask("release"), "freed");
    let second = there.held("try k mutex 60000");
    assert!(second > first);
    assert_eq!(
        also.ask("try k mutex 60000"),
        "busy",
        "both are pid 1 of their namespace"
    );
    assert_eq!(here.ask("try k mutex 60000"), "busy");
    also.say("lock k mutex any 60000");
    std::thread::sleep(Duration::from_millis(50));
    // unshare kills its child (pid 1 there) when it dies.
    there.kill();
    assert!(token(&also.hear(LONG)) > second);
}

/// A mount that ends with the test.
struct Mount(PathBuf);

impl Mount {
    fn tmpfs(at: &Path, options: &str) -> Option<Self> {
        let done = Command::new("mount")
            .args(["-t", "tmpfs", "-o", options, "tmpfs"])
            .arg(at)
            .status();
        done.is_ok_and(|s| s.success()).then(|| Self(at.to_owned()))
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}
