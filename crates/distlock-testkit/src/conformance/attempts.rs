//! Laws 2, 5 and 8: attempts that are repeated, given up or dropped at any point.

use distlock_core::driver::{DriverErrorKind, Line, Mode, Released, Standing, Want};

use super::peer::{Contender, Peer, dropped_at_random, polled};
use super::trial::{Proof, Trial, ensure, refused};

pub(super) async fn a_try_never_queues(t: &Trial) -> Proof {
    let (a, b) = t.two_clients().await?;
    let key = t.key("k")?;
    let mut holder = a.mutex(&key)?;
    holder.take().await?;
    let line = Line::Never;
    let mut tries = Vec::new();
    for _ in 0..3 {
        let mut single = b.claim(Want {
            line,
            ..b.want(&key, Mode::Mutex)
        })?;
        single.wait().await?;
        tries.push(single);
    }
    if let Some(eyes) = a.eyes() {
        let waiters = eyes.inspect(&key).await?.waiters;
        ensure!(waiters.is_empty(), "a try left {waiters:?}");
    }
    holder.free().await?;
    // None of the tries is released: had one of them queued, a newcomer in order would wait for it.
    let mut next = a.mutex(&key)?;
    next.take().await?;
    next.free().await
}

pub(super) async fn an_unused_claim_leaves_no_trace(t: &Trial) -> Proof {
    let (a, b) = t.two_clients().await?;
    let key = t.key("k")?;
    for _ in 0..10 {
        drop(a.mutex(&key)?);
    }
    if let Some(eyes) = a.eyes() {
        let seen = eyes.inspect(&key).await?;
        ensure!(
            seen.holders.is_empty() && seen.waiters.is_empty(),
            "claims left {seen:?}"
        );
    }
    let mut other = b.mutex(&key)?;
    other.take().await?;
    other.free().await
}

async fn is_closed(contender: &mut Contender) -> Proof {
    let e = refused(contender.claim.try_acquire().await)?;
    ensure!(
        matches!(e.kind, DriverErrorKind::Closed),
        "answered {:?}, not Closed",
        e.kind
    );
    Ok(())
}

pub(super) async fn a_claim_serves_one_hold(t: &Trial) -> Proof {
    let client = t.client().await?;
    let key = t.key("k")?;
    let mut holder = client.mutex(&key)?;
    holder.take().await?;
    is_closed(&mut holder).await?;
    holder.free().await?;
    is_closed(&mut holder).await?;
    let mut unused = client.mutex(&key)?;
    unused.release().await?;
    is_closed(&mut unused).await?;
    is_free(&client, &unused).await
}

pub(super) async fn a_waiter_that_asks_again_keeps_one_place(t: &Trial) -> Proof {
    let (a, b) = t.two_clients().await?;
    let key = t.key("k")?;
    let mut holder = a.mutex(&key)?;
    let mut waiter = b.mutex(&key)?;
    holder.take().await?;
    for _ in 0..5 {
        waiter.wait().await?;
    }
    if let Some(eyes) = a.eyes() {
        let waiters = eyes.inspect(&key).await?.waiters;
        ensure!(waiters.len() <= 1, "one waiter has {} places", waiters.len());
    }
    holder.free().await?;
    waiter.acquire().await?;
    waiter.free().await?;
    is_free(&a, &waiter).await
}

/// Whether a newcomer gets what this contender had.
async fn is_free(client: &Peer, former: &Contender) -> Proof {
    let mut next = client.contender(&former.want.key, former.want.mode)?;
    next.acquire().await?;
    next.free().await
}

pub(super) async fn dropped_attempts_leave_no_second_place(t: &Trial) -> Proof {
    let (a, b) = t.two_clients().await?;
    let key = t.key("k")?;
    for polls in 0..30 {
        let mut contender = a.mutex(&key)?;
        let mut held = false;
        for _ in 0..3 {
            if !held {
                let standing = polled(contender.claim.try_acquire(), polls % 10).await;
                held = matches!(standing, Some(Ok(Standing::Held(_))));
            }
        }
        if !held {
            contender.acquire().await?;
        }
        contender.free().await?;
        is_free(&b, &contender).await?;
    }
    Ok(())
}

pub(super) async fn dropped_attempts_of_a_waiter_leave_no_ghost(t: &Trial) -> Proof {
    let (a, b) = t.two_clients().await?;
    for round in 0..5 {
        let key = t.key(&round.to_string())?;
        let mut holder = a.mutex(&key)?;
        holder.take().await?;
        for _ in 0..8 {
            let mut waiter = b.mutex(&key)?;
            for _ in 0..3 {
                dropped_at_random(waiter.claim.try_acquire()).await;
            }
            let left = waiter.release().await?;
            ensure!(
                left == Released::NotHeld,
                "a waiter held what somebody else holds"
            );
        }
        holder.free().await?;
        is_free(&b, &holder).await?;
    }
    Ok(())
}

pub(super) async fn an_attempt_after_a_dropped_one_finds_its_token(t: &Trial) -> Proof {
    let (a, b) = t.two_clients().await?;
    let key = t.key("k")?;
    let mut last = None;
    for round in 0..20 {
        let client = if round % 2 == 0 { &a } else { &b };
        let mut contender = client.mutex(&key)?;
        let early = match dropped_at_random(contender.claim.try_acquire()).await {
            Some(Ok(Standing::Held(grant))) => Some(grant),
            _ => None,
        };
        let grant = match early {
            Some(grant) => grant,
            None => contender.acquire().await?,
        };
        ensure!(grant.token > last, "token {:?} after {last:?}", grant.token);
        last = grant.token;
        contender.free().await?;
    }
    Ok(())
}

pub(super) async fn dropped_releases_can_be_repeated(t: &Trial) -> Proof {
    let (a, b) = t.two_clients().await?;
    let key = t.key("k")?;
    for polls in 0..12 {
        let mut holder = a.mutex(&key)?;
        holder.take().await?;
        for _ in 0..2 {
            polled(holder.claim.release(None), polls).await;
        }
        holder.release().await?;
        is_free(&b, &holder).await?;
    }
    Ok(())
}

/// Runs a future on another runtime, which ends with it.
async fn elsewhere<T: Send + 'static>(future: impl Future<Output = Proof<T>> + Send + 'static) -> Proof<T> {
    let other = tokio::task::spawn_blocking(|| {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        runtime.block_on(future)
    });
    other.await?
}

pub(super) async fn a_claim_moves_between_runtimes(t: &Trial) -> Proof {
    let client = t.client().await?;
    let key = t.key("k")?;
    for _ in 0..3 {
        let mut holder = client.mutex(&key)?;
        let mut holder = elsewhere(async move {
            holder.acquire().await?;
            Ok(holder)
        })
        .await?;
        let mut waiter = client.mutex(&key)?;
        waiter.wait().await?;
        elsewhere(async move { holder.free().await }).await?;
        waiter.acquire().await?;
        waiter.free().await?;
    }
    Ok(())
}
