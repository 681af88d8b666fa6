//! What people see when they look at a lock.

use std::time::Duration;

use distlock_core::Key;
use distlock_core::driver::{LockInfo, Mode, Want};
use futures_util::StreamExt;

use super::trial::{Failure, Proof, Trial, ensure};

pub(super) async fn holders_are_shown(t: &Trial) -> Proof {
    let (a, b) = t.two_clients().await?;
    let (own, other) = (a.sight()?, b.sight()?);
    let key = t.key("k")?;
    let seen = own.inspect(&key).await?;
    ensure!(
        seen.same_people(&LockInfo::free(key.clone())),
        "a free lock shows {seen:?}"
    );
    let reason = Some("nightly report".into());
    let mut holder = a.claim(Want {
        reason,
        ..a.want(&key, Mode::Mutex)
    })?;
    let grant = holder.take().await?;
    for (eyes, here) in [(own, true), (other, false)] {
        let seen = eyes.inspect(&key).await?;
        let [person] = &seen.holders[..] else {
            return Err(Failure::new(format!("one holds, and seen is {seen:?}")));
        };
        ensure!(seen.key == key, "asked for {key:?}, seen {:?}", seen.key);
        ensure!(person.here == here, "here is {} for {person:?}", person.here);
        ensure!(person.mode == Mode::Mutex, "the mode is {:?}", person.mode);
        ensure!(
            person.token == grant.token,
            "the token is {:?}, not {:?}",
            person.token,
            grant.token
        );
        ensure!(!person.owner.is_empty(), "the holder has no owner");
        let label = a.engine.label().map(|l| l.to_string());
        ensure!(
            person.label.is_none() || person.label == label,
            "the label is {:?}",
            person.label
        );
        let reason = person.reason.as_deref().unwrap_or("nightly report");
        ensure!(reason == "nightly report", "the reason is {reason:?}");
        let left = person.expires_in.unwrap_or_default();
        ensure!(left <= a.ttl, "{left:?} are left of {:?}", a.ttl);
    }
    holder.free().await?;
    let seen = other.inspect(&key).await?;
    ensure!(seen.holders.is_empty(), "after the release: {seen:?}");
    Ok(())
}

pub(super) async fn waiters_are_shown(t: &Trial) -> Proof {
    let (a, b) = t.two_clients().await?;
    let eyes = b.sight()?;
    let key = t.key("k")?;
    let mut line = Vec::new();
    for client in [&a, &b, &a, &b] {
        let mut contender = client.fifo(&key, Mode::Mutex)?;
        contender.look().await?;
        line.push(contender);
    }
    let seen = eyes.inspect(&key).await?;
    ensure!(
        seen.holders.len() == 1,
        "one holds, and seen is {:?}",
        seen.holders
    );
    ensure!(
        seen.waiters.len() == 3,
        "three wait, and seen is {:?}",
        seen.waiters
    );
    let here: Vec<bool> = seen.waiters.iter().map(|w| w.here).collect();
    ensure!(
        here == [true, false, true],
        "not in line order: {:?}",
        seen.waiters
    );
    for contender in line.iter_mut().rev() {
        contender.release().await?;
    }
    let seen = eyes.inspect(&key).await?;
    ensure!(
        seen.waiters.is_empty(),
        "all have left, and seen is {:?}",
        seen.waiters
    );
    Ok(())
}

pub(super) async fn locks_are_listed_in_pages(t: &Trial) -> Proof {
    let (a, b) = t.two_clients().await?;
    let eyes = b.sight()?;
    let mut held = Vec::new();
    for name in ["p:3", "p:1", "q:1", "p:2", "p:{x}", "p", "p:10"] {
        let mut holder = a.mutex(&t.key(name)?)?;
        holder.take().await?;
        held.push(holder);
    }
    let mut expected: Vec<Key> = held.iter().map(|h| h.want.key.clone()).collect();
    let prefix = format!("{}p:", t.prefix());
    expected.retain(|key| key.as_str().starts_with(&prefix));
    expected.sort();
    let mut listed: Vec<Key> = Vec::new();
    loop {
        let page = eyes.list(&prefix, listed.last(), 2).await?;
        ensure!(page.len() <= 2, "a page of at most 2 has {}", page.len());
        ensure!(
            page.iter().all(|info| !info.holders.is_empty()),
            "a held lock without holders: {page:?}"
        );
        if page.is_empty() {
            break;
        }
        listed.extend(page.into_iter().map(|info| info.key));
        ensure!(listed.len() <= expected.len(), "listed too many: {listed:?}");
    }
    ensure!(listed == expected, "listed {listed:?}, not {expected:?}");
    for holder in &mut held {
        holder.free().await?;
    }
    let left = eyes.list(t.prefix(), None, 100).await?;
    let taken: Vec<_> = left.iter().filter(|info| !info.holders.is_empty()).collect();
    ensure!(taken.is_empty(), "after all releases: {taken:?}");
    Ok(())
}

pub(super) async fn a_watch_shows_changes(t: &Trial) -> Proof {
    let (a, b) = t.two_clients().await?;
    let eyes = b.sight()?;
    let key = t.key("k")?;
    let mut states = eyes.watch(&key, b.engine.clock());
    let mut next = async |holders: usize| {
        let limit = t.patience() + Duration::from_secs(1);
        loop {
            match tokio::time::timeout(limit, states.next()).await {
                Ok(Some(state)) if state.as_ref().is_ok_and(|s| s.holders.len() == holders) => return Ok(()),
                Ok(Some(Ok(_))) => {}
                Ok(Some(Err(e))) => return Err(Failure::from(e)),
                Ok(None) => return Err(Failure::new("the watch ended")),
                Err(_) => return Err(Failure::new(format!("the watch never showed {holders} holders"))),
            }
        }
    };
    next(0).await?;
    let mut holder = a.mutex(&key)?;
    holder.take().await?;
    next(1).await?;
    holder.free().await?;
    next(0).await
}
