//! Laws 4 and 6: renewals, and how long a hold is valid.

use std::time::Duration;

use distlock_core::clock::Moment;
use distlock_core::driver::{Hold, Mode, Renewal};

use super::peer::{Contender, Peer, pause};
use super::trial::{Failure, Proof, Trial, ensure, is_lost};

/// Renews three times a TTL until that long has passed.
async fn keep_alive(t: &Trial, client: &Peer, holder: &Contender, time: Duration) -> Proof {
    let end = client.now() + time;
    while client.now() < end {
        let renewal = client.renew(holder).await?;
        ensure!(
            matches!(renewal, Renewal::Good(_)),
            "a renewal in time said {renewal:?}"
        );
        tokio::time::sleep(t.ttl() / 4).await;
    }
    Ok(())
}

/// Waits until a lease that was renewed no more must be over.
async fn outlive(t: &Trial, client: &Peer, holder: &Contender) -> Proof {
    let mut next = client.mutex(&holder.want.key)?;
    next.acquire_within(t.ttl() + t.slack()).await?;
    next.free().await
}

pub(super) async fn renewal_prolongs(t: &Trial) -> Proof {
    let (a, b) = t.two_clients().await?;
    let key = t.key("k")?;
    let mut holder = a.lease(&key, t.ttl())?;
    holder.take().await?;
    let mut waiter = b.mutex(&key)?;
    keep_alive(t, &a, &holder, t.ttl() * 2).await?;
    waiter.wait().await?;
    holder.free().await?;
    waiter.acquire().await?;
    waiter.free().await
}

pub(super) async fn extension_can_be_longer(t: &Trial) -> Proof {
    let (a, b) = t.two_clients().await?;
    let key = t.key("k")?;
    let mut holder = a.lease(&key, t.ttl())?;
    let first = holder.take().await?.valid_until;
    let longer = Hold {
        ttl: t.ttl() * 4,
        ..holder.hold()
    };
    let answer = a.renew_all(&[longer]).await?.pop().flatten();
    let Some(Renewal::Good(until)) = answer else {
        return Err(Failure::new(format!("an extension said {answer:?}")));
    };
    ensure!(
        until > first + t.ttl(),
        "extended from {first:?} to {until:?} only"
    );
    let mut other = b.mutex(&key)?;
    while a.now() < first + t.ttl() {
        other.wait().await?;
        pause().await;
    }
    other.release().await?;
    holder.free().await
}

pub(super) async fn a_lease_that_is_not_renewed_ends(t: &Trial) -> Proof {
    let (a, b) = t.two_clients().await?;
    let key = t.key("k")?;
    let mut holder = a.lease(&key, t.ttl())?;
    holder.take().await?;
    outlive(t, &b, &holder).await
}

pub(super) async fn nobody_is_granted_before_the_end(t: &Trial) -> Proof {
    let (a, b) = t.two_clients().await?;
    let key = t.key("k")?;
    let mut holder = a.lease(&key, t.ttl())?;
    let valid_until = holder.take().await?.valid_until;
    let mut next = b.mutex(&key)?;
    next.acquire_within(t.ttl() + t.slack()).await?;
    let granted = b.now();
    ensure!(
        granted >= valid_until,
        "granted at {granted:?}, before {valid_until:?}"
    );
    next.free().await
}

pub(super) async fn validity_is_conservative(t: &Trial) -> Proof {
    let client = t.client().await?;
    let (mut grants, mut renewals) = (Lateness::default(), Lateness::default());
    for i in 0..20 {
        let mut holder = client.mutex(&t.key(&i.to_string())?)?;
        let before = client.now();
        let valid_until = holder.take().await?.valid_until;
        grants.note(&client, before, valid_until)?;
        let before = client.now();
        match client.renew(&holder).await? {
            Renewal::Good(until) => renewals.note(&client, before, until)?,
            other => return Err(Failure::new(format!("a renewal in time said {other:?}"))),
        }
        holder.free().await?;
    }
    grants.is_conservative()?;
    renewals.is_conservative()
}

/// By how much the moment from which a lease is counted lies after the request's beginning, next to how long the
/// request took. The first request of a connection may spend long before it is sent, so the best round counts.
#[derive(Default)]
struct Lateness(Vec<(Duration, Duration)>);

impl Lateness {
    fn note(&mut self, client: &Peer, before: Moment, valid_until: Moment) -> Proof {
        let after = client.now();
        ensure!(
            valid_until <= after + client.ttl,
            "valid for longer than the lease"
        );
        ensure!(valid_until > after, "no longer valid when granted");
        let late = valid_until.since(before + client.ttl);
        self.0.push((late, after.since(before)));
        Ok(())
    }

    fn is_conservative(&self) -> Proof {
        // An engine on the same clock may count from the moment at which it applied the request.
        let early = |(late, took): &(Duration, Duration)| *late <= (*took / 2).max(Duration::from_micros(50));
        ensure!(
            self.0.iter().any(early),
            "the lease is counted from the reply, not from the request: {:?}",
            self.0
        );
        Ok(())
    }
}

pub(super) async fn renewal_of_a_released_hold_never_acquires(t: &Trial) -> Proof {
    let (a, b) = t.two_clients().await?;
    let key = t.key("k")?;
    let mut holder = a.mutex(&key)?;
    holder.take().await?;
    holder.free().await?;
    never_acquires(&a, &b, &holder).await
}

/// Whether renewing says Lost each time, and takes nothing, whether the key is free, held or free again.
async fn never_acquires(a: &Peer, b: &Peer, former: &Contender) -> Proof {
    let key = &former.want.key;
    for _ in 0..2 {
        let renewal = a.renew(former).await?;
        ensure!(
            is_lost(&renewal),
            "the key is free, and a renewal said {renewal:?}"
        );
        let mut next = b.contender(key, former.want.mode)?;
        next.take().await?;
        let renewal = a.renew(former).await?;
        ensure!(
            is_lost(&renewal),
            "another one holds, and a renewal said {renewal:?}"
        );
        next.free().await?;
    }
    Ok(())
}

pub(super) async fn renewal_of_an_expired_hold_never_acquires(t: &Trial) -> Proof {
    let (a, b) = t.two_clients().await?;
    let key = t.key("k")?;
    let mut holder = a.lease(&key, t.ttl())?;
    holder.take().await?;
    outlive(t, &b, &holder).await?;
    never_acquires(&a, &b, &holder).await
}

pub(super) async fn renewal_by_a_stranger_changes_nothing(t: &Trial) -> Proof {
    let (a, b) = t.two_clients().await?;
    let key = t.key("k")?;
    let mut holder = a.mutex(&key)?;
    holder.take().await?;
    let stranger = b.mutex(&key)?;
    let renewal = b.renew(&stranger).await?;
    ensure!(is_lost(&renewal), "a stranger's renewal said {renewal:?}");
    let renewal = a.renew(&holder).await?;
    ensure!(
        matches!(renewal, Renewal::Good(_)),
        "the holder's renewal said {renewal:?}"
    );
    holder.free().await
}

pub(super) async fn renewal_in_batches(t: &Trial) -> Proof {
    let client = t.client().await?;
    let mut all = Vec::new();
    for i in 0..120 {
        let mut holder = client.contender(&t.key(&i.to_string())?, Mode::Mutex)?;
        holder.take().await?;
        all.push(holder);
    }
    all[37].free().await?;
    let holds: Vec<Hold> = all.iter().map(Contender::hold).collect();
    let answers = client.renew_all(&holds).await?;
    for (i, answer) in answers.iter().enumerate() {
        let Some(answer) = answer else {
            return Err(Failure::new(format!("no answer for hold {i}")));
        };
        let right = match answer {
            Renewal::Good(_) => i != 37,
            Renewal::Lost(_) => i == 37,
            Renewal::Unknown(_) => false,
        };
        ensure!(right, "hold {i} was answered {answer:?}");
    }
    for (i, holder) in all.iter_mut().enumerate() {
        if i != 37 {
            holder.free().await?;
        }
    }
    Ok(())
}
