//! `distlock ls`: the locks in use.

use std::io::IsTerminal;
use std::time::Duration;

use comfy_table::{ContentArrangement, Table, presets};
use distlock::Locks;
use distlock_core::driver::LockInfo;
use distlock_core::{Error, Key};

use crate::args::{Common, LsArgs};
use crate::cmd::inspect::info_json;
use crate::cmd::{contact, print_line};
use crate::exit::Exit;
use crate::say::{one_line, rounded};
use crate::settings::kind_words;

/// How many locks are asked for at a time.
const PAGE: usize = 500;
/// How often `--watch` looks.
const PERIOD: Duration = Duration::from_millis(500);

/// Lists, once or again and again.
pub(crate) fn ls(common: &Common, args: &LsArgs) -> Exit {
    contact(
        common,
        |_| Ok(()),
        async |session, locks, ()| {
            let say = &session.say;
            let mut before: Option<Vec<LockInfo>> = None;
            loop {
                let now = match all(&locks, &args.prefix).await {
                    Ok(now) => now,
                    Err(e) if args.watch && before.is_some() => {
                        // It may come back.
                        say.failure(&e, Exit::of(&e));
                        tokio::time::sleep(PERIOD * 4).await;
                        continue;
                    }
                    Err(e) => return say.failure(&e, Exit::of(&e)),
                };
                match &before {
                    _ if say.is_json() => changes(before.as_deref().unwrap_or_default(), &now),
                    None => show(&now, args.watch),
                    Some(before) if !same(before, &now) || std::io::stdout().is_terminal() => {
                        show(&now, true)
                    }
                    Some(_) => {}
                }
                if !args.watch {
                    return Exit::OK;
                }
                before = Some(now);
                tokio::time::sleep(PERIOD).await;
            }
        },
    )
}

async fn all(locks: &Locks, prefix: &str) -> Result<Vec<LockInfo>, Error> {
    let mut found: Vec<LockInfo> = Vec::new();
    loop {
        let after: Option<Key> = found.last().map(|info| info.key.clone());
        let page = locks.list(prefix, after.as_ref(), PAGE).await?;
        let is_last = page.len() < PAGE;
        found.extend(page);
        if is_last {
            return Ok(found);
        }
    }
}

fn same(a: &[LockInfo], b: &[LockInfo]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.key == b.key && a.same_people(b))
}

/// For machines: a line for each lock that is new, changed, or free again.
fn changes(before: &[LockInfo], now: &[LockInfo]) {
    for info in now {
        let known = before.iter().find(|old| old.key == info.key);
        if !known.is_some_and(|old| old.same_people(info)) {
            print_line(&info_json(info).to_string());
        }
    }
    for old in before
        .iter()
        .filter(|old| !now.iter().any(|info| info.key == old.key))
    {
        print_line(&info_json(&LockInfo::free(old.key.clone())).to_string());
    }
}

fn show(locks: &[LockInfo], watching: bool) {
    if watching && std::io::stdout().is_terminal() {
        // Home, and clear to the end: less flicker than clearing the whole screen first.
        print_line("\x1b[H\x1b[J");
    }
    if locks.is_empty() {
        print_line("no locks in use");
        return;
    }
    let mut table = Table::new();
    table
        .load_style(presets::NOTHING)
        .set_content_arrangement(ContentArrangement::Disabled);
    table.set_header([
        "KEY", "KIND", "HOLDER", "SINCE", "LEASE", "TOKEN", "WAITING", "REASON",
    ]);
    for info in locks {
        for row in rows(info) {
            table.add_row(row);
        }
    }
    for line in table.to_string().lines() {
        print_line(line.trim());
    }
}

/// A row for each holder; the lock's own columns stand in the first.
fn rows(info: &LockInfo) -> Vec<Vec<String>> {
    let mut rows: Vec<Vec<String>> = info
        .holders
        .iter()
        .map(|holder| {
            let mut who = holder.label.clone().unwrap_or_else(|| holder.owner.clone());
            if let Some(pid) = holder.pid {
                who.push_str(&format!(" pid {pid}"));
            }
            if let Some(host) = &holder.host {
                who.push_str(&format!(" on {host}"));
            }
            let since = holder.since.and_then(|since| since.elapsed().ok());
            vec![
                one_line(&who),
                since.map(|d| rounded(d).to_string()).unwrap_or_default(),
                holder
                    .expires_in
                    .map(|d| rounded(d).to_string())
                    .unwrap_or_default(),
                holder.token.map(|t| t.to_string()).unwrap_or_default(),
                one_line(holder.reason.as_deref().unwrap_or_default()),
            ]
        })
        .collect();
    if rows.is_empty() {
        rows.push(vec![
            "-".into(),
            String::new(),
            String::new(),
            String::new(),
            String::new(),
        ]);
    }
    rows.into_iter()
        .enumerate()
        .map(|(n, row)| {
            let [who, since, lease, token, reason] = <[String; 5]>::try_from(row).unwrap_or_default();
            let first = n == 0;
            let key = if first {
                one_line(info.key.as_str())
            } else {
                String::new()
            };
            let kind = if first {
                kind_words(info.kind)
            } else {
                String::new()
            };
            let waiting = if first {
                info.waiters.len().to_string()
            } else {
                String::new()
            };
            vec![key, kind, who, since, lease, token, waiting, reason]
        })
        .collect()
}
