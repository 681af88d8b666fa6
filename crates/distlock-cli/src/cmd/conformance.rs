//! `distlock conformance`: the engine against what it promises, from here, with what any client can see.

use std::time::Duration;

use distlock_core::driver::TokenPromise;
use distlock_core::{Client, Error, ErrorKind, Key, Wait};
use serde_json::json;

use crate::args::{Common, ConformanceArgs};
use crate::cmd::{contact, print_line};
use crate::exit::Exit;

/// How long anything may take that the engine should do at once.
const SOON: Duration = Duration::from_secs(5);

/// Runs the cases and prints a line for each.
pub(crate) fn conformance(common: &Common, args: &ConformanceArgs) -> Exit {
    contact(
        common,
        |_| Ok(()),
        async |session, locks, ()| {
            let say = &session.say;
            let mut failed = 0;
            for name in CASES {
                if !args.only.as_deref().is_none_or(|only| name.contains(only)) {
                    continue;
                }
                let key = match Key::new(format!("distlock-conformance:{}", uuid::Uuid::new_v4())) {
                    Ok(key) => key,
                    Err(e) => return say.failure(&e, Exit::of(&e)),
                };
                let outcome = case(name, &locks, &key).await;
                failed += u32::from(outcome.is_err());
                let text = outcome.as_ref().err().map(String::as_str);
                if say.is_json() {
                    print_line(&json!({ "case": name, "ok": text.is_none(), "why": text }).to_string());
                } else {
                    print_line(&match text {
                        None => format!("ok    {name}"),
                        Some(why) => format!("FAIL  {name}: {why}"),
                    });
                }
            }
            if failed == 0 { Exit::OK } else { Exit::FINDINGS }
        },
    )
}

const CASES: [&str; 6] = [
    "exclusion",
    "tokens-grow",
    "release-is-owned",
    "renewal",
    "readers-share",
    "permits",
];

async fn case(name: &str, client: &Client, key: &Key) -> Result<(), String> {
    let done = match name {
        "exclusion" => exclusion(client, key).await,
        "tokens-grow" => tokens_grow(client, key).await,
        "release-is-owned" => release_is_owned(client, key).await,
        "renewal" => renewal(client, key).await,
        "readers-share" => readers_share(client, key).await,
        _ => permits(client, key).await,
    };
    match done {
        Err(e) if e.kind() == ErrorKind::Unsupported => Ok(()),
        done => done.map_err(|e| e.to_string()),
    }
}

fn violated(what: &str) -> Error {
    Error::new(ErrorKind::OutcomeUnknown, what)
}

fn sure(holds: bool, else_what: &str) -> Result<(), Error> {
    if holds { Ok(()) } else { Err(violated(else_what)) }
}

async fn exclusion(client: &Client, key: &Key) -> Result<(), Error> {
    let guard = client.mutex(key).wait(SOON).acquire().await?;
    let second = client.mutex(key).try_acquire().await?;
    sure(second.is_none(), "a second holder was let in")?;
    guard.release().await?;
    let third = client.mutex(key).wait(SOON).acquire().await?;
    third.release().await.map(drop)
}

async fn tokens_grow(client: &Client, key: &Key) -> Result<(), Error> {
    if client.capabilities().token == TokenPromise::None {
        return Ok(());
    }
    let mut last = None;
    for _ in 0..5 {
        let guard = client.mutex(key).wait(SOON).acquire().await?;
        sure(guard.token() > last, "a token did not grow")?;
        last = guard.token();
        guard.release().await?;
    }
    Ok(())
}

async fn release_is_owned(client: &Client, key: &Key) -> Result<(), Error> {
    let first = client.mutex(key).wait(SOON).acquire().await?;
    client.break_lock(key, Default::default()).await?;
    let second = client.mutex(key).wait(SOON).acquire().await?;
    let _ = first.release().await;
    sure(
        second.verify().await.is_ok(),
        "a former holder released the present one's lock",
    )?;
    second.release().await.map(drop)
}

async fn renewal(client: &Client, key: &Key) -> Result<(), Error> {
    let ttl = (*client.capabilities().ttl.start()).max(Duration::from_millis(600));
    let guard = client.mutex(key).ttl(ttl).wait(SOON).acquire().await?;
    tokio::time::sleep(ttl * 2).await;
    sure(guard.is_held(), "a lock that should be renewed was lost")?;
    sure(
        client.mutex(key).wait(Wait::Try).try_acquire().await?.is_none(),
        "a renewed lock was given to another",
    )?;
    guard.release().await.map(drop)
}

async fn readers_share(client: &Client, key: &Key) -> Result<(), Error> {
    let a = client.rw(key).read().wait(SOON).acquire().await?;
    let b = client.rw(key).read().wait(SOON).acquire().await?;
    sure(
        client.rw(key).write().try_acquire().await?.is_none(),
        "a writer was let in beside readers",
    )?;
    a.release().await?;
    b.release().await.map(drop)
}

async fn permits(client: &Client, key: &Key) -> Result<(), Error> {
    let a = client.semaphore(key, 2).wait(SOON).acquire().await?;
    let b = client.semaphore(key, 2).wait(SOON).acquire().await?;
    sure(
        client.semaphore(key, 2).try_acquire().await?.is_none(),
        "a third permit of two was given",
    )?;
    a.release().await?;
    b.release().await.map(drop)
}
