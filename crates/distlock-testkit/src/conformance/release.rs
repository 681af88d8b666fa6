//! Law 5: only the owner releases, in any state, any number of times.

use distlock_core::driver::{Holder, Life, Line, Mode, Released, Renewal, Standing, Want};

use super::peer::Contender;
use super::trial::{Proof, Trial, ensure, is_lost};

async fn expect(contender: &mut Contender, expected: Released, state: &str) -> Proof {
    let released = contender.release().await?;
    ensure!(released == expected, "releasing {state}: {released:?}");
    Ok(())
}

pub(super) async fn release_in_every_state(t: &Trial) -> Proof {
    let (a, b) = t.two_clients().await?;
    let key = t.key("k")?;
    let mut unused = a.mutex(&key)?;
    expect(&mut unused, Released::NotHeld, "an unused claim").await?;
    expect(&mut unused, Released::NotHeld, "an unused claim again").await?;
    let (mut holder, mut waiter) = (a.mutex(&key)?, b.mutex(&key)?);
    holder.take().await?;
    waiter.wait().await?;
    expect(&mut waiter, Released::NotHeld, "a waiter").await?;
    expect(&mut waiter, Released::NotHeld, "a waiter again").await?;
    expect(&mut holder, Released::Freed, "a holder").await?;
    for _ in 0..3 {
        expect(&mut holder, Released::NotHeld, "a holder again").await?;
    }
    let mut next = b.mutex(&key)?;
    next.take().await?;
    expect(&mut holder, Released::NotHeld, "what another one holds").await?;
    expect(&mut waiter, Released::NotHeld, "a former waiter").await?;
    next.free().await
}

pub(super) async fn release_by_a_stranger_changes_nothing(t: &Trial) -> Proof {
    let (a, b) = t.two_clients().await?;
    let key = t.key("k")?;
    let mut holder = a.mutex(&key)?;
    holder.take().await?;
    expect(&mut a.mutex(&key)?, Released::NotHeld, "a neighbour's hold").await?;
    expect(&mut b.mutex(&key)?, Released::NotHeld, "a stranger's hold").await?;
    b.mutex(&key)?.wait().await?;
    let renewal = a.renew(&holder).await?;
    ensure!(
        matches!(renewal, Renewal::Good(_)),
        "the holder's renewal said {renewal:?}"
    );
    holder.free().await
}

pub(super) async fn a_late_release_frees_nobody_else(t: &Trial) -> Proof {
    let (a, b) = t.two_clients().await?;
    let key = t.key("k")?;
    let mut late = a.lease(&key, t.ttl())?;
    late.take().await?;
    let mut next = b.mutex(&key)?;
    next.acquire_within(t.ttl() + t.slack()).await?;
    expect(&mut late, Released::NotHeld, "an expired hold").await?;
    let mut third = a.mutex(&key)?;
    third.wait().await?;
    third.release().await?;
    next.free().await
}

pub(super) async fn shared_releases_free_ones_own(t: &Trial) -> Proof {
    let (a, b) = t.two_clients().await?;
    let key = t.key("k")?;
    let (mut one, mut two) = (a.contender(&key, Mode::Read)?, b.contender(&key, Mode::Read)?);
    one.take().await?;
    two.take().await?;
    one.free().await?;
    expect(&mut one, Released::NotHeld, "a reader again").await?;
    let mut writer = a.contender(&key, Mode::Write)?;
    writer.wait().await?;
    two.free().await?;
    writer.acquire().await?;
    writer.free().await
}

pub(super) async fn a_lease_outlives_its_client(t: &Trial) -> Proof {
    let (a, b) = t.two_clients().await?;
    let watcher = t.client().await?;
    let key = t.key("k")?;
    let life = Life::Lease;
    let want = Want {
        life,
        ..a.want(&key, Mode::Mutex)
    };
    let mut first = a.claim(want)?;
    first.take().await?;
    a.driver.close().await;
    // Another process resumes the lease by its owner: it renews, and a claim of that owner only releases.
    let mut resumed = b.claim(Want {
        owner: first.want.owner,
        life,
        ..b.want(&key, Mode::Mutex)
    })?;
    let hold = first.hold();
    let answer = b.renew_all(&[hold]).await?.pop().flatten();
    ensure!(
        matches!(answer, Some(Renewal::Good(_))),
        "resuming said {answer:?}"
    );
    let mut other = watcher.mutex(&key)?;
    other.wait().await?;
    expect(&mut resumed, Released::Freed, "a resumed lease").await?;
    other.acquire().await?;
    other.free().await
}

pub(super) async fn keep_leaves_a_record(t: &Trial) -> Proof {
    let (a, b) = t.two_clients().await?;
    let key = t.key("k")?;
    let mut holder = a.mutex(&key)?;
    holder.take().await?;
    let keep = t.ttl();
    let mut waiter = b.mutex(&key)?;
    waiter.wait().await?;
    let before = a.now();
    let released = holder.release_keeping(Some(keep)).await?;
    ensure!(released == Released::Freed, "releasing with keep: {released:?}");
    let renewal = a.renew(&holder).await?;
    ensure!(is_lost(&renewal), "renewing what was released said {renewal:?}");
    expect(&mut holder, Released::NotHeld, "what is kept").await?;
    let mut passer = b.claim(Want {
        line: Line::Never,
        ..b.want(&key, Mode::Mutex)
    })?;
    match passer.look().await? {
        Standing::Waiting { holder, .. } if b.now().since(before) < keep => {
            let told = holder.as_ref().is_some_and(Holder::is_nobody);
            ensure!(told, "what is kept is shown as held by {holder:?}");
        }
        Standing::Waiting { .. } => {}
        Standing::Held(_) => {
            let kept = b.now().since(before);
            ensure!(kept >= keep, "kept for {kept:?}, not for {keep:?}");
            passer.free().await?;
        }
    }
    waiter.acquire_within(keep + t.slack()).await?;
    let kept = b.now().since(before);
    ensure!(kept >= keep, "kept for {kept:?}, not for {keep:?}");
    waiter.free().await
}

pub(super) async fn keep_of_a_waiter_keeps_nothing(t: &Trial) -> Proof {
    let (a, b) = t.two_clients().await?;
    let key = t.key("k")?;
    let (mut holder, mut waiter) = (a.mutex(&key)?, b.mutex(&key)?);
    holder.take().await?;
    waiter.wait().await?;
    let released = waiter.release_keeping(Some(t.patience() * 4)).await?;
    ensure!(released == Released::NotHeld, "a waiter released a hold");
    holder.free().await?;
    let mut next = a.mutex(&key)?;
    next.acquire().await?;
    next.free().await
}
