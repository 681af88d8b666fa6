//! The page, in a real browser.

use std::path::PathBuf;
use std::process::Stdio;

use distlock::Locks;
use distlock_testkit::servers::skip;
use serde_json::json;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::Command;

use crate::access::{ADMIN, READER, with, write};
use crate::gateway::Gateway;

/// The first of these that is there.
pub(crate) fn program(names: &[&str]) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let dirs: Vec<PathBuf> = std::env::split_paths(&path).collect();
    let places = names
        .iter()
        .flat_map(|name| dirs.iter().map(move |dir| dir.join(name)));
    places.into_iter().find(|place| place.is_file())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_page_shows_locks_and_breaks_them() {
    let (Some(node), Some(browser)) = (
        program(&["node"]),
        program(&["chromium-headless-shell", "chromium"]),
    ) else {
        skip("the page: no node or no chromium-headless-shell");
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let keep = std::env::var_os("DISTLOCK_SCREENSHOTS").map(PathBuf::from);
    let shots = keep.unwrap_or_else(|| dir.path().to_owned());
    std::fs::create_dir_all(&shots).unwrap();
    let audit = dir.path().join("audit.jsonl");
    let engine = format!("file://{}/locks", dir.path().display());
    let open = Gateway::with(&engine, |config| config.audit = Some(audit.clone())).await;
    let tokens = dir.path().join("tokens.toml");
    write(
        &tokens,
        &[
            ("reader", READER, r#"["distlock"]"#, r#"["read"]"#),
            ("admin", ADMIN, r#"["*"]"#, r#"["read", "acquire", "break"]"#),
        ],
    );
    let guarded = Gateway::with("memory:", |config| config.tokens = Some(tokens.clone())).await;
    let taken = json!({"ttl": "5m", "label": "admin"});
    with(&guarded, ADMIN, "POST", "/v1/locks/secret/acquire", taken)
        .await
        .ok();

    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/service/page.mjs");
    let mut child = Command::new(node)
        .args([script.as_ref(), browser.as_os_str()])
        .args([&open.url(), &guarded.url(), READER])
        .arg(&shots)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut tell = child.stdin.take().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let at = open.at;
    let mut open = Some(open);
    let direct = Locks::connect(&engine).await.unwrap();
    let mut taken = None;
    let mut last = String::new();
    while let Some(line) = lines.next_line().await.unwrap() {
        match line.as_str() {
            "down" => open.take().unwrap().kill().await,
            "take" => taken = direct.mutex("taken-directly").try_acquire().await.unwrap(),
            "leave" => drop(taken.take().unwrap().release().await.unwrap()),
            "up" => open = Some(Gateway::at(at, &engine, |_| {}).await),
            _ => {}
        }
        last = line;
        tell.write_all(b"done\n").await.unwrap();
    }
    assert!(
        child.wait().await.unwrap().success() && last == "done",
        "the last word was {last:?}"
    );
    let audited = std::fs::read_to_string(&audit).unwrap();
    assert!(
        audited.contains("the host is down") && audited.contains("billing-2"),
        "{audited}"
    );
    guarded.stop().await;
}
