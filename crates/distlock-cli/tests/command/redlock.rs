//! `distlock redlock init`, on real servers.

use distlock_testkit::servers::{Redis, or_skip};

use crate::stage::Stage;

fn block_on<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.unwrap().block_on(work)
}

#[test]
fn a_new_quorum_is_vouched_for_and_votes_at_once() {
    let Some(mut nodes) = or_skip(block_on(Redis::several(3, &Redis::options()))) else {
        return;
    };
    let stage = Stage::new();
    let hosts: Vec<String> = nodes.iter().map(Redis::address).collect();
    let url = format!(
        "redlock://{}?restart_guard=strict&node_timeout=1s",
        hosts.join(",")
    );
    let out = stage.run(&["try", "--url", &url, "k", "--", "true"]);
    assert_eq!(out.code, Some(125), "a new node has no vote: {}", out.err);
    let out = stage.run(&["redlock", "init", &url]);
    assert_eq!(out.code, Some(0), "{}", out.err);
    assert!(hosts.iter().all(|host| out.out.contains(host)), "{}", out.out);
    let out = stage.run(&["try", "--url", &url, "k", "--", "true"]);
    assert_eq!(out.code, Some(0), "{}", out.err);
    let out = stage.run(&["--json", "--url", &url, "redlock", "init"]);
    assert!(out.out.contains("\"vouched\":["), "{}", out.out);
    nodes.remove(0);
    let out = stage.run(&["redlock", "init", &url]);
    assert_eq!(out.code, Some(125), "{}", out.out);
    assert!(out.err.contains(&hosts[0]), "{}", out.err);
    for other in ["redis://127.0.0.1/", "redlock://a,b"] {
        let out = stage.run(&["redlock", "init", other]);
        assert_eq!(
            (out.code, out.out.as_str()),
            (Some(64), ""),
            "{other}: {}",
            out.err
        );
    }
}
