//! Who may do what.

use std::path::Path;

use serde_json::json;

use crate::gateway::{Gateway, until};
use crate::wire::{Reply, ask};

pub(crate) const READER: &str = "reader-0123456789abcdef-0123456789abcdef";
const WORKER: &str = "worker-0123456789abcdef-0123456789abcdef";
pub(crate) const ADMIN: &str = "admin-0123456789abcdef-0123456789abcdef";

fn sha256(token: &str) -> String {
    use std::io::Write;
    use std::process::{Command, Stdio};
    let mut sum = Command::new("sha256sum")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    sum.stdin.take().unwrap().write_all(token.as_bytes()).unwrap();
    let out = sum.wait_with_output().unwrap().stdout;
    String::from_utf8(out).unwrap()[..64].to_owned()
}

pub(crate) fn write(path: &Path, entries: &[(&str, &str, &str, &str)]) {
    let text: String = entries
        .iter()
        .map(|(name, token, namespaces, may)| {
            let digest = sha256(token);
            format!("[[token]]\nname = {name:?}\nsha256 = \"{digest}\"\nnamespaces = {namespaces}\nmay = {may}\n\n")
        })
        .collect();
    std::fs::write(path, text).unwrap();
}

pub(crate) async fn with(
    gateway: &Gateway,
    token: &str,
    method: &str,
    path: &str,
    body: serde_json::Value,
) -> Reply {
    let bearer = format!("Bearer {token}");
    ask(
        gateway.at,
        method,
        path,
        &[("authorization", &bearer)],
        body.to_string().as_bytes(),
    )
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_may_do_what_its_scopes_say_and_is_withdrawn_without_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("tokens.toml");
    write(
        &file,
        &[
            ("reader", READER, r#"["shop"]"#, r#"["read"]"#),
            ("worker", WORKER, r#"["shop"]"#, r#"["read", "acquire"]"#),
            ("admin", ADMIN, r#"["*"]"#, r#"["read", "acquire", "break"]"#),
        ],
    );
    let gateway = Gateway::with("memory:", |config| config.tokens = Some(file.clone())).await;
    let none = gateway.get("/v1/locks?namespace=shop").await;
    none.problem(401, "unauthenticated");
    assert_eq!(
        none.headers.get("www-authenticate").map(String::as_str),
        Some("Bearer")
    );
    with(
        &gateway,
        "a-token-that-nobody-ever-gave-out",
        "GET",
        "/v1/locks?namespace=shop",
        json!(null),
    )
    .await
    .problem(401, "unauthenticated");

    let acquire = "/v1/locks/access/acquire?namespace=shop";
    with(&gateway, READER, "POST", acquire, json!({}))
        .await
        .problem(403, "forbidden");
    let lease = with(&gateway, WORKER, "POST", acquire, json!({})).await.ok();
    let seen = with(
        &gateway,
        READER,
        "GET",
        "/v1/locks/access?namespace=shop",
        json!(null),
    )
    .await
    .ok();
    assert_eq!(seen["holders"].as_array().unwrap().len(), 1);
    // Not even whoever has the handle, without the right.
    let release = "/v1/locks/access/release?namespace=shop";
    let handle = json!({"handle": lease["handle"]});
    with(&gateway, READER, "POST", release, handle.clone())
        .await
        .problem(403, "forbidden");
    let broken = json!({"reason": "a test", "grace": "0s"});
    let path = "/v1/locks/access/break?namespace=shop";
    with(&gateway, WORKER, "POST", path, broken.clone())
        .await
        .problem(403, "forbidden");
    with(
        &gateway,
        WORKER,
        "POST",
        "/v1/locks/access/acquire?namespace=other",
        json!({}),
    )
    .await
    .problem(403, "forbidden");
    with(&gateway, WORKER, "GET", "/v1/locks", json!(null))
        .await
        .problem(403, "forbidden");
    with(&gateway, ADMIN, "POST", path, broken).await.ok();
    with(&gateway, WORKER, "POST", release, handle)
        .await
        .problem(410, "not_held");
    let own = with(&gateway, READER, "GET", "/v1/engine?namespace=shop", json!(null))
        .await
        .ok();
    assert_eq!(
        (&own["caller"], &own["may"]),
        (&json!("reader"), &json!(["read"]))
    );

    // Rotation: the reader's token is withdrawn, a file that is wrong changes nothing.
    std::fs::write(&file, "[[token]]\nname = 1").unwrap();
    tokio::time::sleep(std::time::Duration::from_millis(1200)).await;
    with(&gateway, WORKER, "POST", acquire, json!({})).await.ok();
    write(&file, &[("worker", WORKER, r#"["shop"]"#, r#"["read"]"#)]);
    until("the withdrawal is seen", async || {
        let reply = with(&gateway, READER, "GET", "/v1/locks?namespace=shop", json!(null)).await;
        (reply.status == 401).then_some(())
    })
    .await;
    with(&gateway, WORKER, "POST", acquire, json!({}))
        .await
        .problem(403, "forbidden");
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_of_other_sites_are_not_served() {
    let gateway = Gateway::on("memory:").await;
    let post = async |headers: &[(&str, &str)]| {
        ask(
            gateway.at,
            "POST",
            "/v1/locks/access:page/break",
            headers,
            br#"{"reason":"x"}"#,
        )
        .await
    };
    post(&[("origin", "https://evil.example")])
        .await
        .problem(403, "forbidden");
    post(&[("origin", "null")]).await.problem(403, "forbidden");
    post(&[("sec-fetch-site", "cross-site")])
        .await
        .problem(403, "forbidden");
    // A name that was made to point here: its page is of "the same origin", and a stranger's all the same.
    let raw = b"POST /v1/locks/access:page/break HTTP/1.1\r\nhost: evil.example:7466\r\norigin: http://evil.example:7466\r\nconnection: close\r\ncontent-length: 14\r\n\r\n{\"reason\":\"x\"}";
    let reply = Reply::parse(&crate::wire::send(gateway.at, raw).await).unwrap();
    reply.problem(403, "forbidden");
    post(&[("origin", "http://localhost"), ("sec-fetch-site", "same-origin")])
        .await
        .ok();
    post(&[]).await.ok();
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_rate_of_requests_is_limited_with_a_clear_answer() {
    let gateway = Gateway::with("memory:", |config| config.limits.requests_per_second = 5).await;
    let mut told = None;
    for _ in 0..20 {
        let reply = gateway.get("/v1/locks?prefix=access:rate").await;
        match reply.status {
            200 => {}
            _ => told = Some(reply),
        }
    }
    let told = told.expect("twenty requests in a moment are more than five in a second");
    told.problem(429, "limited");
    assert_eq!(told.headers.get("retry-after").map(String::as_str), Some("1"));
    // Health is asked for by machines that must not be locked out.
    assert_eq!(gateway.get("/healthz").await.status, 200);
    gateway.stop().await;
}
