//! Taking a lock away on purpose.

use distlock_core::FencingToken;
use distlock_core::driver::{Break, DriverErrorKind, Refusal, Released, Renewal};

use super::trial::{Failure, Proof, Trial, ensure, is_lost, refused};
use super::waiting::granted_by_ring;

pub(super) async fn a_broken_lock_is_lost(t: &Trial) -> Proof {
    let (a, b) = t.two_clients().await?;
    let eyes = b.sight()?;
    let key = t.key("k")?;
    let how = Break::default();
    let told = eyes.break_lock(&key, &how).await?;
    ensure!(told.is_empty(), "breaking a free lock told {told:?}");
    let mut holder = a.mutex(&key)?;
    let first = holder.take().await?.token;
    let told = eyes.break_lock(&key, &how).await?;
    ensure!(
        told.len() == 1 && told[0].token == first,
        "breaking told {told:?}"
    );
    let renewal = a.renew(&holder).await?;
    ensure!(is_lost(&renewal), "renewing what was broken said {renewal:?}");
    let mut next = b.mutex(&key)?;
    let second = next.acquire().await?.token;
    ensure!(
        first.is_none() || second > first,
        "token {second:?} after {first:?}"
    );
    let late = holder.release().await?;
    ensure!(late == Released::NotHeld, "releasing what was broken: {late:?}");
    next.free().await
}

pub(super) async fn a_break_can_give_grace(t: &Trial) -> Proof {
    let (a, b) = t.two_clients().await?;
    let eyes = b.sight()?;
    let key = t.key("k")?;
    let mut holder = a.mutex(&key)?;
    holder.take().await?;
    let grace = t.ttl();
    let how = Break {
        grace,
        ..Break::default()
    };
    let before = b.now();
    eyes.break_lock(&key, &how).await?;
    let renewal = a.renew(&holder).await?;
    ensure!(is_lost(&renewal), "renewing during the grace said {renewal:?}");
    let mut next = b.mutex(&key)?;
    next.acquire_within(grace + t.slack()).await?;
    let waited = b.now().since(before);
    ensure!(
        waited >= grace,
        "granted after {waited:?}, in the grace of {grace:?}"
    );
    next.free().await
}

pub(super) async fn a_break_can_name_the_token(t: &Trial) -> Proof {
    let (a, b) = t.two_clients().await?;
    let eyes = b.sight()?;
    let key = t.key("k")?;
    let mut holder = a.mutex(&key)?;
    let grant = holder.take().await?;
    let Some(token) = grant.token else {
        return Err(Failure::new("no token"));
    };
    let expecting = |token: u64| Break {
        expect: Some(FencingToken::new(token)),
        ..Break::default()
    };
    let e = refused(eyes.break_lock(&key, &expecting(token.get() + 1)).await)?;
    let have = match e.kind {
        DriverErrorKind::Refused(Refusal::TokenMismatch { have }) => have,
        other => return Err(Failure::new(format!("refused as {other:?}"))),
    };
    ensure!(have == Some(token), "the refusal names {have:?}, not {token}");
    let renewal = a.renew(&holder).await?;
    ensure!(
        matches!(renewal, Renewal::Good(_)),
        "after a refused break: {renewal:?}"
    );
    let told = eyes.break_lock(&key, &expecting(token.get())).await?;
    ensure!(told.len() == 1, "breaking told {told:?}");
    let renewal = a.renew(&holder).await?;
    ensure!(is_lost(&renewal), "renewing what was broken said {renewal:?}");
    Ok(())
}

pub(super) async fn a_waiter_is_told_of_a_break(t: &Trial) -> Proof {
    let (a, b) = t.two_clients().await?;
    let eyes = b.sight()?;
    let key = t.key("k")?;
    let (mut holder, mut waiter) = (a.mutex(&key)?, b.mutex(&key)?);
    holder.take().await?;
    waiter.wait().await?;
    eyes.break_lock(&key, &Break::default()).await?;
    granted_by_ring(t, &mut waiter).await?;
    waiter.free().await
}
