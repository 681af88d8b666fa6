//! Where the locks are: directories that are refused, shared, damaged, removed, full, or seen from elsewhere.
#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod kit;

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use distlock_core::driver::{DriverError, DriverErrorKind, Refusal};
use distlock_file::{Config, Share};
use kit::{Mount, Worker, client_of, is_root, mutex, shared, skip, token, worker};

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
async fn f93_an_unknown_file_system_is_refused_by_its_number() {
    // An unknown one stands for them here: no test mounts NFS.
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
async fn f93_a_full_file_system_refuses_with_advice_and_lets_go_of_what_is_held() {
    if !is_root() {
        return skip("a full file system", "needs root to mount one");
    }
    let base = tempfile::tempdir().unwrap();
    let Some(_mount) = Mount::tmpfs(base.path(), "size=8m,mode=700") else {
        return skip("a full file system", "cannot mount a tmpfs");
    };
    let filler = base.path().join("filler");
    let fill = || {
        let mut file = fs::File::create(&filler).unwrap();
        while std::io::Write::write_all(&mut file, &[1; 4096]).is_ok() {}
    };
    let full = |e: DriverError| {
        let text = e.to_string();
        assert!(matches!(e.kind, DriverErrorKind::Unavailable), "{text}");
        assert!(
            text.contains("full") && text.contains(base.path().to_str().unwrap()),
            "{text}"
        );
    };
    // No room for a table.
    fill();
    full(client_of(Config::new(base.path().join("locks"))).unwrap_err());
    // No room for one lock more.
    fs::remove_file(&filler).unwrap();
    let client = client_of(Config::new(base.path().join("locks"))).unwrap();
    let mut held = client.contender(mutex("held"));
    held.look().await.unwrap().unwrap();
    fill();
    let mut refused = None;
    for n in 0..10_000 {
        let mut one_more = client.contender(mutex(&format!("{n:0500}")));
        match one_more.look().await {
            Ok(granted) => assert!(granted.is_some()),
            Err(e) => {
                refused = Some(e);
                break;
            }
        }
    }
    full(refused.expect("it fills up"));
    assert!(held.claim.release(None).await.is_ok());
    // And with room again it works again.
    fs::remove_file(&filler).unwrap();
    assert!(client.contender(mutex("again")).look().await.unwrap().is_some());
}

#[tokio::test]
async fn f93_a_containers_own_layer_locks_and_is_told_of() {
    if !is_root() {
        return skip("an overlay", "needs root to mount one");
    }
    let base = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    // What is below an overlay may not be one itself.
    let Some(_below) = Mount::tmpfs(base.path(), "size=8m,mode=755") else {
        return skip("an overlay", "cannot mount a tmpfs");
    };
    let [lower, upper, work, merged] = ["lower", "upper", "work", "merged"].map(|name| {
        let path = base.path().join(name);
        fs::create_dir(&path).unwrap();
        path
    });
    let Some(_mount) = Mount::overlay(&merged, [&lower, &upper, &work]) else {
        return skip("an overlay", "cannot mount one");
    };
    let locks = merged.join("locks");
    let (mut a, mut b) = (Worker::start(&locks), Worker::start(&locks));
    let first = a.held("lock k mutex any 60000");
    assert_eq!(b.ask("try k mutex 60000"), "busy");
    assert_eq!(a.ask("release"), "freed");
    assert!(b.held("try k mutex 60000") > first);
    assert_eq!(found(Config::new(&locks)).await, ["file-container-layer"]);
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

async fn found(config: Config) -> Vec<String> {
    let client = client_of(config).unwrap();
    let found = client.driver.inspect().unwrap().doctor().await.unwrap();
    found.into_iter().map(|finding| finding.id.into_owned()).collect()
}

#[tokio::test]
async fn the_doctor_finds_each_seeded_trouble_and_nothing_on_a_good_directory() {
    let base = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let good = base.path().join("good");
    assert_eq!(found(Config::new(&good)).await, [""; 0]);

    let tidied = tempfile::tempdir_in("/tmp").unwrap();
    assert_eq!(
        found(Config::new(tidied.path().join("locks"))).await,
        ["file-tidied"]
    );
    let for_all = shared(&base.path().join("all"), Share::All);
    assert_eq!(found(for_all).await, ["file-shared-with-all"]);
    let open = base.path().join("open");
    fs::create_dir(&open).unwrap();
    chmod(&open, 0o777);
    assert_eq!(found(Config::new(open.join("locks"))).await, ["file-parent"]);
    chmod(&open, 0o1777);
    assert_eq!(found(Config::new(open.join("locks"))).await, [""; 0], "sticky");

    let client = client_of(Config::new(&good)).unwrap();
    fs::rename(&good, base.path().join("moved")).unwrap();
    let removed = client.driver.inspect().unwrap().doctor().await.unwrap();
    assert_eq!(removed[0].id, "file-removed");

    if !is_root() {
        return skip("a volatile and a full file system", "needs root to mount one");
    }
    let small = base.path().join("small");
    fs::create_dir(&small).unwrap();
    let Some(_mount) = Mount::tmpfs(&small, "size=8m,mode=700") else {
        return skip("a volatile and a full file system", "cannot mount a tmpfs");
    };
    assert_eq!(found(Config::new(&small)).await, ["file-volatile"]);
    let mut filler = fs::File::create(small.join("filler")).unwrap();
    while std::io::Write::write_all(&mut filler, &[1; 4096]).is_ok() {}
    assert_eq!(found(Config::new(&small)).await, ["file-volatile", "file-full"]);
}
