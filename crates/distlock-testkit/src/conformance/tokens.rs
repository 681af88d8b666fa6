//! Law 3: fencing tokens.

use distlock_core::driver::{Mode, TokenPromise};

use super::trial::{Proof, Trial, ensure};

pub(super) async fn exclusive_holds_have_tokens(t: &Trial) -> Proof {
    let client = t.client().await?;
    let promised = t.promises.token != TokenPromise::None;
    let mut modes = vec![Mode::Mutex];
    if t.promises.shared {
        modes.extend([Mode::Write, Mode::Read]);
    }
    if t.promises.slots {
        modes.push(Mode::Slot { of: 2 });
    }
    for mode in modes {
        let mut holder = client.contender(&t.key(&format!("{mode:?}"))?, mode)?;
        let token = holder.take().await?.token;
        let expected = promised && mode.is_exclusive();
        ensure!(token.is_some() == expected, "the token of {mode:?} is {token:?}");
        holder.free().await?;
    }
    Ok(())
}

pub(super) async fn tokens_grow(t: &Trial) -> Proof {
    grow(t, Mode::Mutex).await
}

pub(super) async fn writers_tokens_grow(t: &Trial) -> Proof {
    grow(t, Mode::Write).await
}

async fn grow(t: &Trial, mode: Mode) -> Proof {
    let (a, b) = t.two_clients().await?;
    let key = t.key("k")?;
    let mut last = None;
    for _ in 0..15 {
        for client in [&a, &b] {
            let mut holder = client.contender(&key, mode)?;
            let token = holder.take().await?.token;
            ensure!(token > last, "token {token:?} after {last:?}");
            last = token;
            holder.free().await?;
        }
    }
    Ok(())
}

pub(super) async fn tokens_grow_over_an_expiry(t: &Trial) -> Proof {
    let (a, b) = t.two_clients().await?;
    let key = t.key("k")?;
    let first = a.lease(&key, t.ttl())?.take().await?.token;
    let mut next = b.mutex(&key)?;
    let second = next.acquire_within(t.ttl() + t.slack()).await?.token;
    ensure!(second > first, "token {second:?} after {first:?}");
    next.free().await
}

pub(super) async fn tokens_grow_when_the_key_was_idle(t: &Trial) -> Proof {
    let client = t.client().await?;
    let key = t.key("k")?;
    let mut holder = client.mutex(&key)?;
    let first = holder.take().await?.token;
    holder.free().await?;
    for i in 0..50 {
        let mut other = client.mutex(&t.key(&format!("other {i}"))?)?;
        other.take().await?;
        other.free().await?;
    }
    let mut again = client.mutex(&key)?;
    let second = again.take().await?.token;
    ensure!(second > first, "token {second:?} after {first:?}");
    again.free().await
}
