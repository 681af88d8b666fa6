//! Law 1: who may hold together, and which keys are the same lock.

use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

use distlock_core::Key;
use distlock_core::driver::{Mode, Standing, Wakes};
use futures_util::future::try_join_all;
use rand::RngExt;

use super::peer::Peer;
use super::trial::{Failure, Proof, Trial, ensure};

pub(super) async fn one_holder_of_a_mutex(t: &Trial) -> Proof {
    let (a, b) = t.two_clients().await?;
    let key = t.key("k")?;
    let mut holder = a.mutex(&key)?;
    let (mut neighbour, mut stranger) = (a.mutex(&key)?, b.mutex(&key)?);
    holder.take().await?;
    neighbour.wait().await?;
    stranger.wait().await?;
    neighbour.release().await?;
    holder.free().await?;
    stranger.acquire().await?;
    stranger.free().await
}

/// What is inside at the moment: exclusive holders count for more than all others can.
struct Inside(AtomicI32);

impl Inside {
    /// Enters, lets others run, leaves; fails if more was inside than `limit`.
    async fn visit(&self, weight: i32, limit: i32) -> Proof {
        let inside = self.0.fetch_add(weight, Ordering::SeqCst) + weight;
        let steps = rand::rng().random_range(0..4);
        for _ in 0..steps {
            tokio::task::yield_now().await;
        }
        self.0.fetch_sub(weight, Ordering::SeqCst);
        ensure!(inside <= limit, "{inside} inside, of at most {limit}");
        Ok(())
    }
}

/// Eight contenders of four clients take turns; `weight` says how heavy each one's mode is.
async fn contend(t: &Trial, modes: &[Mode], weight: fn(Mode) -> i32, limit: i32) -> Proof {
    let rounds = match t.promises.wakes {
        Wakes::Notified => 15,
        Wakes::Paced => 4,
    };
    let key = t.key("k")?;
    let inside = Arc::new(Inside(AtomicI32::new(0)));
    let mut tasks = Vec::new();
    for _ in 0..4 {
        let client = t.client().await?;
        for (i, mode) in modes.iter().cycle().take(modes.len().max(2)).enumerate() {
            let (client, key, mode, inside) = (client.clone(), key.clone(), *mode, inside.clone());
            tasks.push(tokio::spawn(async move {
                for _ in 0..rounds {
                    let mut contender = client.contender(&key, mode)?;
                    contender
                        .acquire()
                        .await
                        .map_err(|e| Failure::new(format!("contender {i}: {e}")))?;
                    inside.visit(weight(mode), limit).await?;
                    contender.free().await?;
                }
                Ok::<_, Failure>(())
            }));
        }
    }
    for task in try_join_all(tasks).await? {
        task?;
    }
    Ok(())
}

pub(super) async fn mutex_under_contention(t: &Trial) -> Proof {
    contend(t, &[Mode::Mutex], |_| 1, 1).await
}

pub(super) async fn readers_and_writers_under_contention(t: &Trial) -> Proof {
    let weight = |mode: Mode| if mode.is_exclusive() { 100 } else { 1 };
    contend(t, &[Mode::Read, Mode::Write, Mode::Read], weight, 100).await
}

pub(super) async fn slots_under_contention(t: &Trial) -> Proof {
    contend(t, &[Mode::Slot { of: 3 }], |_| 1, 3).await
}

pub(super) async fn readers_share(t: &Trial) -> Proof {
    let (a, b) = t.two_clients().await?;
    let key = t.key("k")?;
    let mut readers = [
        a.contender(&key, Mode::Read)?,
        a.contender(&key, Mode::Read)?,
        b.contender(&key, Mode::Read)?,
    ];
    for reader in &mut readers {
        reader.take().await?;
    }
    for reader in &mut readers {
        reader.free().await?;
    }
    Ok(())
}

pub(super) async fn a_writer_is_alone(t: &Trial) -> Proof {
    let (a, b) = t.two_clients().await?;
    let key = t.key("k")?;
    let mut writer = a.contender(&key, Mode::Write)?;
    let mut reader = b.contender(&key, Mode::Read)?;
    let mut second = b.contender(&key, Mode::Write)?;
    writer.take().await?;
    reader.wait().await?;
    second.wait().await?;
    second.release().await?;
    writer.free().await?;
    reader.acquire().await?;
    reader.free().await
}

pub(super) async fn readers_exclude_a_writer(t: &Trial) -> Proof {
    let (a, b) = t.two_clients().await?;
    let key = t.key("k")?;
    let mut first = a.contender(&key, Mode::Read)?;
    let mut second = b.contender(&key, Mode::Read)?;
    let mut writer = b.contender(&key, Mode::Write)?;
    first.take().await?;
    second.take().await?;
    writer.wait().await?;
    first.free().await?;
    writer.wait().await?;
    second.free().await?;
    writer.acquire().await?;
    writer.free().await
}

pub(super) async fn slots_are_counted(t: &Trial) -> Proof {
    let (a, b) = t.two_clients().await?;
    let key = t.key("k")?;
    let mode = Mode::Slot { of: 3 };
    let mut one = a.contender(&key, mode)?;
    let mut two = b.contender(&key, mode)?;
    let mut three = a.contender(&key, mode)?;
    let mut four = b.contender(&key, mode)?;
    one.take().await?;
    two.take().await?;
    three.take().await?;
    four.wait().await?;
    two.free().await?;
    four.acquire().await?;
    for mut holder in [one, three, four] {
        holder.free().await?;
    }
    Ok(())
}

pub(super) async fn keys_do_not_interfere(t: &Trial) -> Proof {
    let (a, b) = t.two_clients().await?;
    let (here, there) = (t.key("a")?, t.key("a:b")?);
    let mut first = a.mutex(&here)?;
    let mut second = b.mutex(&there)?;
    first.take().await?;
    second.take().await?;
    first.free().await?;
    let mut again = b.mutex(&here)?;
    again.take().await?;
    second.free().await?;
    again.free().await
}

pub(super) async fn unusual_keys_are_distinct(t: &Trial) -> Proof {
    let (a, b) = t.two_clients().await?;
    let fill = 512 - t.prefix().len();
    let long = |last: &str| format!("{}{last}", "x".repeat(fill - last.len()));
    let names = [
        "a",
        "A",
        "á",
        "a\u{301}",
        "ａ",
        "a ",
        " a",
        "a/b",
        "a/",
        "/a",
        "a//b",
        ".",
        "..",
        "../a",
        "a.lock",
        "{a}",
        "}a{",
        "{}",
        "{a}{b}",
        "%",
        "%25",
        "%2F",
        "a%2Fb",
        "a:b",
        "a::b",
        "*",
        "a*",
        "?",
        "[a]",
        "\\",
        "a\\b",
        "'",
        "\"",
        "';--",
        "$1",
        "@",
        "#",
        "~",
        "a-0000000001",
        "日本語",
        "🔒",
        "\u{feff}a",
        "\u{202e}a",
    ];
    let names = names
        .iter()
        .map(|n| (*n).to_owned())
        .chain([long("1"), long("2"), long("日")]);
    let mut held = Vec::new();
    for name in names {
        let key = t.key(&name)?;
        let mut holder = a.mutex(&key)?;
        let standing = holder.look().await?;
        ensure!(
            matches!(standing, Standing::Held(_)),
            "{name:?} is the same lock as another name"
        );
        held.push(holder);
    }
    for holder in &held {
        still_taken(&b, &holder.want.key).await?;
    }
    for holder in &mut held {
        holder.free().await?;
    }
    Ok(())
}

async fn still_taken(client: &Peer, key: &Key) -> Proof {
    let mut other = client.mutex(key)?;
    other.wait().await?;
    other.release().await?;
    Ok(())
}

pub(super) async fn a_hundred_keys_at_once(t: &Trial) -> Proof {
    let client = t.client().await?;
    let one = async |i: u32| {
        let mut contender = client.mutex(&t.key(&i.to_string())?)?;
        contender.acquire().await?;
        Ok::<_, Failure>(contender)
    };
    let mut all = try_join_all((0..100).map(one)).await?;
    try_join_all(all.iter_mut().map(|c| c.free())).await?;
    Ok(())
}
