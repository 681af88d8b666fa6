//! What an engine must refuse, and how.

use std::time::Duration;

use distlock_core::driver::{
    Claim, DriverError, DriverErrorKind, Life, Mode, Order, Orders, Reached, Refusal, Want,
};

use super::peer::{Contender, Peer};
use super::trial::{Failure, Proof, Trial, ensure, refused};

async fn mismatch(contender: &mut Contender) -> Proof<(String, String)> {
    let e = refused(contender.claim.try_acquire().await)?;
    match e.kind {
        DriverErrorKind::Refused(Refusal::KindMismatch { have, want }) => Ok((have, want)),
        other => Err(Failure::new(format!(
            "refused as {other:?}, not as a kind mismatch"
        ))),
    }
}

pub(super) async fn a_key_is_one_kind_of_lock(t: &Trial) -> Proof {
    let (a, b) = t.two_clients().await?;
    let mut modes = vec![Mode::Mutex];
    if t.promises.shared {
        modes.extend([Mode::Read, Mode::Write]);
    }
    if t.promises.slots {
        modes.push(Mode::Slot { of: 2 });
    }
    for have in &modes {
        for want in modes.iter().filter(|want| want.kind() != have.kind()) {
            let key = t.key(&format!("{have:?}/{want:?}"))?;
            let mut holder = a.contender(&key, *have)?;
            holder.take().await?;
            mismatch(&mut b.contender(&key, *want)?).await?;
            holder.free().await?;
            let mut next = b.contender(&key, *want)?;
            next.acquire().await?;
            next.free().await?;
        }
    }
    Ok(())
}

pub(super) async fn a_semaphore_has_one_size(t: &Trial) -> Proof {
    let (a, b) = t.two_clients().await?;
    let key = t.key("k")?;
    let mut holder = a.contender(&key, Mode::Slot { of: 3 })?;
    holder.take().await?;
    let (have, want) = mismatch(&mut b.contender(&key, Mode::Slot { of: 17 })?).await?;
    ensure!(
        have.contains('3') && want.contains("17"),
        "the refusal names {have:?} and {want:?}, not 3 and 17"
    );
    holder.free().await
}

pub(super) async fn ttl_out_of_range_is_refused(t: &Trial) -> Proof {
    let client = t.client().await?;
    let key = t.key("k")?;
    let (floor, ceiling) = (*t.promises.ttl.start(), *t.promises.ttl.end());
    ensure!(floor <= ceiling, "no TTL is allowed: {floor:?} to {ceiling:?}");
    for ttl in [floor / 2, ceiling + Duration::from_secs(1), Duration::ZERO] {
        let want = Want {
            ttl,
            ..client.want(&key, Mode::Mutex)
        };
        let e = refused(client.driver.claim(want.into()))?;
        ensure!(
            matches!(e.kind, DriverErrorKind::Refused(Refusal::InvalidConfig(_))),
            "a TTL of {ttl:?} is refused as {:?}",
            e.kind
        );
    }
    Ok(())
}

fn unsupported(what: &str, result: Result<Box<dyn Claim>, DriverError>) -> Proof {
    let e = refused(result).map_err(|e| Failure::new(format!("{what}: {e}")))?;
    ensure!(
        matches!(e.kind, DriverErrorKind::Refused(Refusal::Unsupported(_))),
        "{what} is refused as {:?}",
        e.kind
    );
    ensure!(
        e.reached == Reached::No && !e.retry,
        "{what}: trying again cannot help"
    );
    Ok(())
}

pub(super) async fn what_is_not_promised_is_refused(t: &Trial) -> Proof {
    let client: &Peer = &*t.client().await?;
    let key = t.key("k")?;
    let want = |mode| client.want(&key, mode);
    let claim = |want: Want| client.driver.claim(want.into());
    if !t.promises.shared {
        unsupported("a reader", claim(want(Mode::Read)))?;
        unsupported("a writer", claim(want(Mode::Write)))?;
    }
    if !t.promises.slots {
        unsupported("a slot", claim(want(Mode::Slot { of: 2 })))?;
    }
    if t.promises.order == Orders::Any {
        let order = Order::Fifo;
        unsupported(
            "FIFO",
            claim(Want {
                order,
                ..want(Mode::Mutex)
            }),
        )?;
    }
    if !t.promises.lease_records {
        let life = Life::Lease;
        unsupported(
            "a lease",
            claim(Want {
                life,
                ..want(Mode::Mutex)
            }),
        )?;
    }
    Ok(())
}
