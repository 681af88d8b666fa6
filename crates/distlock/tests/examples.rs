//! The examples, run as people run them: what they claim is what happens, and without the lock it does not.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::LazyLock;

/// Where the built examples are. Built here, because a single test may be run without them.
static EXAMPLES: LazyLock<PathBuf> = LazyLock::new(|| {
    // `cargo test` of a whole package builds its examples, too; scripts/test says so.
    if std::env::var_os("DISTLOCK_BUILT").is_none() {
        build();
    }
    let test = std::env::current_exe().expect("a test has a path");
    test.ancestors()
        .nth(2)
        .expect("target/<profile>/deps/<test>")
        .join("examples")
});

fn build() {
    let mut build = Command::new(env!("CARGO"));
    build.args(["build", "--quiet", "--package", "distlock", "--examples"]);
    for (on, feature) in [
        (cfg!(feature = "redis"), "redis"),
        (cfg!(feature = "etcd"), "etcd"),
        (cfg!(feature = "sql"), "sql"),
        (cfg!(feature = "zookeeper"), "zookeeper"),
        (cfg!(feature = "http"), "http"),
    ] {
        if on {
            build.args(["--features", feature]);
        }
    }
    // What cargo tells its tests would make build scripts of this build run again, and the next build theirs.
    for (name, _) in std::env::vars_os() {
        let told = ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_", "CARGO_CRATE_"];
        if told
            .iter()
            .any(|prefix| name.to_string_lossy().starts_with(prefix))
        {
            build.env_remove(name);
        }
    }
    let built = build
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .status()
        .expect("cargo runs");
    assert!(built.success(), "the examples do not build");
}

fn command(name: &str) -> Command {
    let mut command = Command::new(EXAMPLES.join(name));
    command.env_remove("DISTLOCK_URL");
    command
}

fn example(name: &str, args: &[&str]) -> Output {
    command(name).args(args).output().expect("the example starts")
}

fn text(output: &Output) -> String {
    format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

#[test]
fn a_flash_sale_of_1000_buyers_in_three_processes_is_exact() {
    let sale = example("flash_sale", &[]);
    assert!(sale.status.success(), "{}", text(&sale));
    assert!(
        text(&sale).contains("1000 buyers, 100 pieces: sold 100, left 0: exact"),
        "{}",
        text(&sale)
    );
}

#[test]
fn the_same_sale_without_the_lock_oversells() {
    let sale = example("flash_sale", &["--unlocked"]);
    assert_eq!(sale.status.code(), Some(1), "{}", text(&sale));
    assert!(text(&sale).contains("OVERSOLD"), "{}", text(&sale));
}

#[test]
fn three_closers_of_which_one_is_killed_close_each_order_once() {
    let shop = example("order_closer", &[]);
    assert!(
        shop.status.success() && text(&shop).contains("each once"),
        "{}",
        text(&shop)
    );
}

/// What five hosts say whose cron starts the report in the same minute.
fn five_nightly_reports(dir: &Path) -> Vec<String> {
    let locks = dir.join("locks");
    std::fs::create_dir(&locks).expect("a directory");
    let start = |_| {
        let mut report = command("nightly_report");
        report
            .args(["--url", &format!("file://{}", locks.display()), "--dir"])
            .arg(dir);
        report
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the example starts")
    };
    let hosts: Vec<_> = (0..5).map(start).collect();
    let ended = hosts.into_iter().map(|host| {
        let output = host.wait_with_output().expect("it ends");
        assert!(output.status.success(), "cron would send mail: {}", text(&output));
        text(&output)
    });
    ended.collect()
}

#[test]
fn the_nightly_report_is_written_once_and_the_others_say_why_they_did_not() {
    let dir = tempfile::tempdir().unwrap();
    let said = five_nightly_reports(dir.path());
    let count = |what| said.iter().filter(|line| line.contains(what)).count();
    assert_eq!(count("was written"), 1, "{said:?}");
    assert_eq!(count("elsewhere") + count("there already"), 4, "{said:?}");
    assert!(dir.path().join("2026-11-30.txt").exists());
}

#[test]
fn a_stopped_writer_is_refused_when_it_wakes_up() {
    let play = example("fenced_writer", &[]);
    assert!(play.status.success(), "{}", text(&play));
    assert!(
        text(&play).contains("was refused") && text(&play).contains("intact"),
        "{}",
        text(&play)
    );
}

#[test]
fn without_the_gate_the_stopped_writer_destroys_the_data() {
    let play = example("fenced_writer", &["--unfenced"]);
    assert_eq!(play.status.code(), Some(1), "{}", text(&play));
    assert!(text(&play).contains("CORRUPT"), "{}", text(&play));
}

/// The same programs on another engine: only the URL differs.
#[cfg(feature = "redis")]
mod on_redis {
    use distlock_testkit::servers::{Redis, or_skip};

    use super::*;

    fn redis() -> Option<Redis> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        or_skip(runtime.block_on(Redis::start()))
    }

    #[test]
    fn the_flash_sale_is_exact() {
        let Some(redis) = redis() else { return };
        let sale = example("flash_sale", &["--url", &redis.url()]);
        assert!(
            sale.status.success() && text(&sale).contains("left 0: exact"),
            "{}",
            text(&sale)
        );
    }

    #[test]
    fn each_order_is_closed_once() {
        let Some(redis) = redis() else { return };
        let shop = example("order_closer", &["--url", &redis.url()]);
        assert!(
            shop.status.success() && text(&shop).contains("each once"),
            "{}",
            text(&shop)
        );
    }

    #[test]
    fn the_stopped_writer_is_refused_and_without_the_gate_destroys_the_data() {
        let Some(redis) = redis() else { return };
        let play = example("fenced_writer", &["--url", &redis.url()]);
        assert!(
            play.status.success() && text(&play).contains("intact"),
            "{}",
            text(&play)
        );
        let play = example("fenced_writer", &["--unfenced", "--url", &redis.url()]);
        assert!(text(&play).contains("CORRUPT"), "{}", text(&play));
    }
}

#[allow(dead_code, reason = "no engine with a server may be built in")]
fn a_small_sale_is_exact(url: &str) {
    let sale = example("flash_sale", &["--url", url, "--buyers", "240", "--stock", "24"]);
    assert!(
        sale.status.success() && text(&sale).contains("sold 24, left 0: exact"),
        "{}",
        text(&sale)
    );
}

/// The flash sale on the other engines: only the URL differs. A smaller one, since each purchase is a commit to a disk.
#[allow(unused_macros, reason = "no engine with a server may be built in")]
macro_rules! flash_sale_on {
    ($($test:ident: $feature:literal, $start:expr;)*) => {$(
        #[cfg(feature = $feature)]
        #[test]
        fn $test() {
            use distlock_testkit::servers::or_skip;
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .expect("a runtime");
            let Some(server) = or_skip(runtime.block_on($start)) else { return };
            a_small_sale_is_exact(&server.url());
        }
    )*};
}

flash_sale_on! {
    the_flash_sale_is_exact_on_etcd: "etcd", distlock_testkit::servers::Etcd::start(1);
    the_flash_sale_is_exact_on_zookeeper: "zookeeper", distlock_testkit::servers::ZooKeeper::start(1);
    the_flash_sale_is_exact_on_postgres: "sql", distlock_testkit::servers::Postgres::start();
    the_flash_sale_is_exact_on_mariadb: "sql", distlock_testkit::servers::MariaDb::start();
}

#[cfg(feature = "redis")]
#[test]
fn the_flash_sale_is_exact_on_redlock() {
    use distlock_testkit::servers::{Redis, or_skip};
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let Some(nodes) = or_skip(runtime.block_on(Redis::several(3, &Redis::options()))) else {
        return;
    };
    let hosts: Vec<String> = nodes.iter().map(Redis::address).collect();
    // A busy machine may need longer than 50 ms.
    let url = format!("redlock://{}?node_timeout=1s", hosts.join(","));
    a_small_sale_is_exact(&url);
}

#[cfg(feature = "redis")]
#[test]
fn the_flash_sale_is_exact_on_a_redis_cluster() {
    use distlock_testkit::servers::{Redis, RedisCluster, or_skip};
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let Some(servers) = or_skip(runtime.block_on(RedisCluster::start())) else {
        return;
    };
    let hosts: Vec<String> = servers.nodes().iter().map(Redis::address).collect();
    a_small_sale_is_exact(&format!("redis+cluster://{}", hosts.join(",")));
}

#[cfg(feature = "http")]
#[test]
fn the_flash_sale_is_exact_through_a_lock_service() {
    use distlock_server::{Config, Listener, Server};
    use std::time::Duration;
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let memory = distlock::memory::Memory::new();
    let config = Config::new(std::sync::Arc::new(move |namespace| {
        let made = distlock::Client::builder()
            .namespace(namespace.as_str())
            .memory(&memory);
        Box::pin(std::future::ready(made))
    }));
    let (url, server) = runtime.block_on(async {
        let listener = Listener::tcp("127.0.0.1:0".parse().unwrap(), None).await.unwrap();
        (listener.url(), Server::start(config, vec![listener]).unwrap())
    });
    a_small_sale_is_exact(&url);
    assert!(runtime.block_on(server.shutdown(Duration::from_secs(10))));
}
