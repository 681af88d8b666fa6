//! Law 10: first come, first served.

use distlock_core::Key;
use distlock_core::driver::{Line, Mode, Want};

use super::peer::Contender;
use super::trial::{Proof, Trial};

/// A line of FIFO waiters of two clients, each waiting before the next one comes.
async fn line(t: &Trial, key: &Key, modes: &[Mode]) -> Proof<Vec<Contender>> {
    let (a, b) = t.two_clients().await?;
    let mut line = Vec::new();
    for (i, mode) in modes.iter().enumerate() {
        let client = if i % 2 == 0 { &a } else { &b };
        let mut waiter = client.fifo(key, *mode)?;
        waiter.wait().await?;
        line.push(waiter);
    }
    Ok(line)
}

/// Each in turn gets the lock, while those behind it look and wait.
async fn serve(line: &mut [Contender]) -> Proof {
    for at in 0..line.len() {
        let (first, behind) = line[at..].split_at_mut(1);
        if let Some(last) = behind.last_mut() {
            last.wait().await?;
        }
        first[0].acquire().await?;
        for other in behind.iter_mut() {
            other.wait().await?;
        }
        first[0].free().await?;
    }
    Ok(())
}

pub(super) async fn fifo_serves_in_order(t: &Trial) -> Proof {
    let key = t.key("k")?;
    let mut holder = t.client().await?.fifo(&key, Mode::Mutex)?;
    holder.take().await?;
    let mut line = line(t, &key, &[Mode::Mutex; 5]).await?;
    holder.free().await?;
    serve(&mut line).await
}

pub(super) async fn fifo_survives_a_leaver(t: &Trial) -> Proof {
    let key = t.key("k")?;
    let mut holder = t.client().await?.fifo(&key, Mode::Mutex)?;
    holder.take().await?;
    let mut line = line(t, &key, &[Mode::Mutex; 5]).await?;
    line.remove(2).release().await?;
    holder.free().await?;
    // The head leaves while it is its turn.
    line.remove(0).release().await?;
    serve(&mut line).await
}

pub(super) async fn any_never_passes_fifo(t: &Trial) -> Proof {
    let client = t.client().await?;
    let key = t.key("k")?;
    let mut holder = client.mutex(&key)?;
    holder.take().await?;
    let mut first = line(t, &key, &[Mode::Mutex]).await?;
    holder.free().await?;
    let mut newcomer = client.claim(Want {
        line: Line::Never,
        ..client.want(&key, Mode::Mutex)
    })?;
    newcomer.wait().await?;
    let mut other = client.mutex(&key)?;
    other.wait().await?;
    first[0].acquire().await?;
    first[0].free().await?;
    other.acquire().await?;
    other.free().await
}

pub(super) async fn fifo_readers_wait_behind_a_writer(t: &Trial) -> Proof {
    let key = t.key("k")?;
    let mut reader = t.client().await?.fifo(&key, Mode::Read)?;
    reader.take().await?;
    let mut line = line(t, &key, &[Mode::Write, Mode::Read]).await?;
    line[1].wait().await?;
    reader.free().await?;
    serve(&mut line).await
}

pub(super) async fn fifo_slots_serve_in_order(t: &Trial) -> Proof {
    let key = t.key("k")?;
    let mode = Mode::Slot { of: 2 };
    let client = t.client().await?;
    let mut holders = [client.fifo(&key, mode)?, client.fifo(&key, mode)?];
    for holder in &mut holders {
        holder.take().await?;
    }
    let mut line = line(t, &key, &[mode; 4]).await?;
    let [mut one, mut two] = holders;
    one.free().await?;
    line[1].wait().await?;
    line[0].acquire().await?;
    two.free().await?;
    line[2].wait().await?;
    line[1].acquire().await?;
    for at in 0..line.len() {
        line[at].free().await?;
        if let Some(next) = line.get_mut(at + 2) {
            next.acquire().await?;
        }
    }
    Ok(())
}
