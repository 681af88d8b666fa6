//! Clients that die, and clients that are closed.

use std::time::Duration;

use distlock_core::driver::{Death, DriverErrorKind, Mode, Order, Orders, Renewal, Want};

use super::trial::{Failure, Proof, Trial, ensure, refused};

pub(super) async fn the_lock_of_a_dead_client_becomes_free(t: &Trial) -> Proof {
    let (a, b) = t.two_clients().await?;
    let key = t.key("k")?;
    let (ttl, limit) = match t.promises.death {
        Death::AtOnce => (a.ttl, t.slack()),
        Death::AtTtl => (t.ttl(), t.ttl() + t.slack()),
    };
    let mut holder = a.claim(Want {
        ttl,
        ..a.want(&key, Mode::Mutex)
    })?;
    holder.take().await?;
    drop(holder);
    t.kill(a);
    let mut next = b.mutex(&key)?;
    next.acquire_within(limit).await?;
    next.free().await
}

pub(super) async fn a_dead_waiter_is_passed(t: &Trial) -> Proof {
    let (a, b) = t.two_clients().await?;
    let key = t.key("k")?;
    let mut holder = b.mutex(&key)?;
    holder.take().await?;
    // At the head of the line, where there is one, it is in the way until its place has run out.
    let order = match t.promises.order {
        Orders::Any => Order::Any,
        Orders::AnyOrFifo | Orders::AlwaysFifo => Order::Fifo,
    };
    let mut dying = a.claim(Want {
        order,
        ttl: t.ttl(),
        ..a.want(&key, Mode::Mutex)
    })?;
    dying.wait().await?;
    drop(dying);
    t.kill(a);
    let mut next = b.mutex(&key)?;
    next.wait().await?;
    holder.free().await?;
    next.acquire_within(t.ttl() + t.slack()).await?;
    next.free().await
}

pub(super) async fn closing_ends_a_client_and_nobody_else(t: &Trial) -> Proof {
    let (a, b) = t.two_clients().await?;
    let (mine, theirs) = (t.key("mine")?, t.key("theirs")?);
    let mut held = a.mutex(&mine)?;
    held.take().await?;
    let mut other = b.mutex(&theirs)?;
    other.take().await?;
    let mut waiter = a.mutex(&theirs)?;
    waiter.wait().await?;
    waiter.release().await?;
    let mut early = a.mutex(&t.key("late")?)?;
    let limit = t.patience();
    let in_time = |what: &str| Failure::new(format!("{what} did not end within {limit:?} of closing"));
    tokio::time::timeout(limit, a.driver.close())
        .await
        .map_err(|_| in_time("close"))?;
    let attempt = tokio::time::timeout(limit, early.claim.try_acquire()).await;
    let e = refused(attempt.map_err(|_| in_time("an attempt"))?)?;
    ensure!(
        matches!(e.kind, DriverErrorKind::Closed),
        "an attempt after close: {:?}",
        e.kind
    );
    // Whether it can still be sent depends on the engine; it must answer.
    let release = tokio::time::timeout(limit, held.claim.release(None)).await;
    drop(release.map_err(|_| in_time("a release"))?);
    let answer = a.renew_all(&[held.hold()]).await?.pop().flatten();
    ensure!(!matches!(answer, Some(Renewal::Good(_))), "renewed after close");
    let renewal = b.renew(&other).await?;
    ensure!(
        matches!(renewal, Renewal::Good(_)),
        "another client's renewal said {renewal:?}"
    );
    other.free().await?;
    let mut again = b.mutex(&theirs)?;
    again.acquire_within(limit + Duration::from_secs(1)).await?;
    again.free().await
}
