//! `distlock inspect`: one lock in detail.

use distlock_core::driver::{Holder, LockInfo};
use serde_json::{Value, json};

use crate::args::{Common, InspectArgs};
use crate::cmd::{contact, print_line};
use crate::exit::Exit;
use crate::say::{describe, holder_json, one_line};
use crate::settings::{key, kind_words};

/// Shows who holds a lock and who waits for it.
pub(crate) fn inspect(common: &Common, args: &InspectArgs) -> Exit {
    contact(
        common,
        |say| key(&args.key, say),
        async |session, locks, key| {
            let say = &session.say;
            match locks.inspect(&key).await {
                Ok(info) if say.is_json() => print_line(&info_json(&info).to_string()),
                Ok(info) => show(&info, &session.engine.public_url(&locks)),
                Err(e) => return say.failure(&e, Exit::of(&e)),
            }
            Exit::OK
        },
    )
}

/// A lock for machines.
pub(crate) fn info_json(info: &LockInfo) -> Value {
    json!({
        "key": info.key.as_str(),
        "kind": info.kind.map(|_| kind_words(info.kind)),
        "token": info.token.map(|t| t.get()),
        "holders": info.holders.iter().map(holder_json).collect::<Vec<_>>(),
        "waiters": info.waiters.iter().map(holder_json).collect::<Vec<_>>(),
    })
}

fn show(info: &LockInfo, url: &str) {
    let state = if info.holders.is_empty() { "free" } else { "held" };
    print_line(&format!("{}: {state}", one_line(&format!("{:?}", info.key))));
    print_line(&format!("  engine: {url}"));
    if info.kind.is_some() {
        print_line(&format!("  kind:   {}", kind_words(info.kind)));
    }
    if let Some(token) = info.token {
        print_line(&format!("  token:  {token}"));
    }
    people("holder", &info.holders);
    people("waiter", &info.waiters);
}

fn people(role: &str, list: &[Holder]) {
    for holder in list {
        print_line(&format!("  {role}: {}", one_line(&describe(holder))));
        let token = holder.token.map(|t| format!(", token {t}")).unwrap_or_default();
        print_line(&format!("          owner {}{token}", one_line(&holder.owner)));
    }
}
