//! Law 7: how waiters learn that it may be their turn.

use std::time::{Duration, Instant};

use distlock_core::driver::{Mode, Standing};
use futures_util::future::try_join_all;

use super::peer::{Contender, pause};
use super::trial::{Failure, Proof, Trial, ensure};

/// The ring must come; looking again by oneself does not count.
async fn rung(t: &Trial, waiter: &Contender) -> Proof {
    let rung = tokio::time::timeout(t.patience(), waiter.want.bell.rung()).await;
    ensure!(rung.is_ok(), "no ring within {:?}", t.patience());
    Ok(())
}

/// The waiter gets the lock by heeding nothing but rings, of which some may be spurious.
pub(super) async fn granted_by_ring(t: &Trial, waiter: &mut Contender) -> Proof {
    loop {
        rung(t, waiter).await?;
        if let Standing::Held(_) = waiter.look().await? {
            return Ok(());
        }
    }
}

pub(super) async fn a_release_rings_a_waiter(t: &Trial) -> Proof {
    let (a, b) = t.two_clients().await?;
    for round in 0..5 {
        let key = t.key(&round.to_string())?;
        let (mut holder, mut waiter) = (a.mutex(&key)?, b.mutex(&key)?);
        holder.take().await?;
        waiter.wait().await?;
        holder.free().await?;
        granted_by_ring(t, &mut waiter).await?;
        waiter.free().await?;
    }
    Ok(())
}

pub(super) async fn a_writer_that_leaves_rings_all_readers(t: &Trial) -> Proof {
    let (a, b) = t.two_clients().await?;
    let key = t.key("k")?;
    let mut writer = a.contender(&key, Mode::Write)?;
    writer.take().await?;
    let mut readers = Vec::new();
    for client in [&a, &b, &b] {
        let mut reader = client.contender(&key, Mode::Read)?;
        reader.wait().await?;
        readers.push(reader);
    }
    writer.free().await?;
    // All hold before the first leaves.
    for reader in &mut readers {
        while let Standing::Waiting { .. } = reader.look().await? {
            rung(t, reader).await?;
        }
    }
    for reader in &mut readers {
        reader.free().await?;
    }
    Ok(())
}

pub(super) async fn no_wake_up_is_lost(t: &Trial) -> Proof {
    const TURNS: u32 = 60;
    let (a, b) = t.two_clients().await?;
    let key = t.key("k")?;
    let patience = t.patience();
    let turns = async |client: &super::peer::Peer| {
        for _ in 0..TURNS {
            let mut contender = client.mutex(&key)?;
            let mut asleep = Duration::ZERO;
            while let Standing::Waiting { recheck, .. } = contender.look().await? {
                let start = Instant::now();
                let limit = recheck.min(patience);
                let rung = tokio::time::timeout(limit, contender.want.bell.rung())
                    .await
                    .is_ok();
                asleep += start.elapsed();
                // Holds are short, so a whole recheck without a ring means that one was lost.
                let lost = !rung && limit >= Duration::from_secs(1);
                ensure!(
                    !lost,
                    "no ring for {asleep:?} while the lock went from hand to hand"
                );
            }
            tokio::task::yield_now().await;
            contender.free().await?;
        }
        Ok::<_, Failure>(())
    };
    try_join_all([turns(&a), turns(&b), turns(&a), turns(&b)]).await?;
    Ok(())
}

pub(super) async fn everyone_is_served(t: &Trial) -> Proof {
    let key = t.key("k")?;
    let mut clients = Vec::new();
    for _ in 0..3 {
        clients.push(t.client().await?);
    }
    let mut holder = clients[0].mutex(&key)?;
    holder.take().await?;
    let mut waiters = Vec::new();
    for i in 0..18 {
        let mut waiter = clients[i % 3].mutex(&key)?;
        waiter.wait().await?;
        waiters.push(waiter);
    }
    let limit = t.patience() * 3;
    let served = try_join_all(waiters.iter_mut().map(async |waiter| {
        waiter.acquire_within(limit).await?;
        waiter.free().await
    }));
    // Freed once all have looked and wait.
    let freed = async {
        pause().await;
        holder.free().await
    };
    let (served, freed) = tokio::join!(served, freed);
    freed?;
    served?;
    Ok(())
}

pub(super) async fn a_waiter_succeeds_a_dead_holder(t: &Trial) -> Proof {
    let (a, b) = t.two_clients().await?;
    let key = t.key("k")?;
    a.lease(&key, t.ttl())?.take().await?;
    let mut waiters = [b.mutex(&key)?, b.mutex(&key)?];
    for waiter in &mut waiters {
        waiter.wait().await?;
    }
    let limit = t.ttl() + t.slack();
    let served = waiters.iter_mut().map(async |waiter| {
        waiter.acquire_within(limit).await?;
        waiter.free().await
    });
    try_join_all(served).await?;
    Ok(())
}

pub(super) async fn a_waiter_that_leaves_is_in_nobodys_way(t: &Trial) -> Proof {
    let (a, b) = t.two_clients().await?;
    let key = t.key("k")?;
    let mut holder = a.mutex(&key)?;
    holder.take().await?;
    let (mut leaver, mut stayer) = (a.mutex(&key)?, b.mutex(&key)?);
    leaver.wait().await?;
    stayer.wait().await?;
    holder.free().await?;
    // The leaver may have been rung in the place of the other one.
    leaver.release().await?;
    stayer.acquire().await?;
    stayer.free().await
}
