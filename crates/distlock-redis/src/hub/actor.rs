//! The hub's actor: the only one that subscribes and unsubscribes, so that the two never pass each other.

use std::sync::Arc;
use std::time::Duration;

use distlock_core::clock::Moment;
use distlock_core::driver::DriverError;
use futures_util::{TryStreamExt, stream};
use redis::{Cmd, Value};

use super::{Hub, Live, ring};
use crate::dial::Link;
use crate::fault::{Fault, elsewhere};
use crate::script::CHECK;
use crate::slot::slot;

/// How long after its acquisition a hold is checked and tracked, at most.
const TICK: Duration = Duration::from_millis(300);
/// How long a channel without waiters stays subscribed.
const LINGER: Duration = Duration::from_secs(2);
/// How often the connection is probed: a half-open one says nothing by itself.
const HEARTBEAT: Duration = Duration::from_secs(2);
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// Channels in one SUBSCRIBE, keys in one check.
const BATCH: usize = 200;
/// Checks on their way at once: in a cluster, one is about one slot, and there are many.
const AT_ONCE: usize = 32;

pub(super) async fn run(hub: Arc<Hub>) {
    let clock = hub.engine.clock().clone();
    let mut pause = FIRST_PAUSE;
    while !hub.lock().closed {
        match hub.dial().await {
            Ok((epoch, link, ear)) => {
                let serving = hub.serve(&link, &ear);
                tokio::select! {
                    ended = serving => match ended {
                        Ok(()) => pause = FIRST_PAUSE,
                        Err(fault) => tracing::debug!(error = %fault.error, "the subscription connection was lost"),
                    },
                    () = hub.links.site().moved(epoch) => pause = FIRST_PAUSE,
                }
                link.shun();
                ear.shun();
            }
            Err(e) => tracing::debug!(error = %e, "no subscription connection"),
        }
        hub.down();
        if hub.lock().closed {
            break;
        }
        clock.sleep(pause.mul_f64(rand::random_range(0.5..1.0))).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

impl Hub {
    /// The connection, and the one on which waiters are heard: the same, unless they are told in shards.
    async fn dial(self: &Arc<Self>) -> Result<(u64, Link, Link), DriverError> {
        let hears = || {
            let heard = self.clone();
            move |info| heard.hear(&info)
        };
        let (epoch, link) = self.links.dial(hears()).await?;
        let ear = match self.sharded {
            true => self.links.dial(hears()).await?.1,
            false => link.clone(),
        };
        Ok((epoch, link, ear))
    }

    /// The connection is gone: nobody is subscribed, and waiters are not kept waiting for a confirmation.
    fn down(&self) {
        let mut state = self.lock();
        state.link = None;
        state.channels.retain(|_, channel| {
            channel.live = false;
            channel.asked.clear();
            !channel.bells.is_empty()
        });
    }

    /// Serves one connection until it is lost (`Ok` if it was of use for a while).
    async fn serve(&self, link: &Link, ear: &Link) -> Result<(), Fault> {
        let clock = self.engine.clock();
        let patience = self.links.patience();
        let tracks = link.start_tracking(patience).await.is_ok();
        if link.is_over() {
            return Err(Fault::silent());
        }
        self.lock().link = Some(Live {
            link: link.clone(),
            tracks,
        });
        link.subscribe(std::slice::from_ref(&self.own), patience).await?;
        self.subscribe_missing(ear).await?;
        let mut unchecked = self.everyone_looks();
        let mut tick = clock.now() + TICK;
        let mut heartbeat = clock.now() + HEARTBEAT;
        loop {
            if unchecked.is_empty() {
                let due = if self.lock().fresh.is_empty() {
                    heartbeat
                } else {
                    tick.min(heartbeat)
                };
                tokio::select! { () = self.work.notified() => {}, () = clock.sleep_until(due) => {} }
            }
            if link.is_over() || ear.is_over() || self.lock().closed {
                return Ok(());
            }
            self.subscribe_missing(ear).await?;
            let now = clock.now();
            {
                let mut state = self.lock();
                unchecked.append(&mut state.stirred);
                if now >= tick {
                    // Without tracking there is nothing to be gained from a look at a new hold.
                    let fresh = state.list_fresh();
                    unchecked.extend(fresh.into_iter().filter(|_| tracks));
                    tick = now + TICK;
                }
            }
            let batch = unchecked.split_off(unchecked.len().saturating_sub(BATCH));
            self.check(link, tracks, batch).await?;
            if now >= heartbeat {
                self.unsubscribe_idle(ear, now).await?;
                let mut ping = Cmd::new();
                ping.arg("PING");
                link.ask(&ping, patience).await?;
                if self.sharded {
                    ear.ask(&ping, patience).await?;
                }
                heartbeat = clock.now() + HEARTBEAT;
            }
        }
    }

    /// Whatever was published or changed while nobody listened: all waiters look once, and so do holders whose keys
    /// do not tell. Gives the other holders' keys. They are checked here, many in one script, and only those that
    /// are gone are rung: a renewal for each of very many holds at once would keep this thread from reading answers.
    fn everyone_looks(&self) -> Vec<Arc<str>> {
        let mut state = self.lock();
        state.list_fresh();
        let waiters = state.channels.values().flat_map(|c| &c.bells);
        ring(waiters.map(|(_, bell)| bell));
        let holders = state.holds.values().flatten();
        ring(holders.filter(|e| !e.tracked).map(|e| &e.bell));
        state.holds.keys().cloned().collect()
    }

    async fn subscribe_missing(&self, link: &Link) -> Result<(), Fault> {
        loop {
            let missing: Vec<String> = {
                let state = self.lock();
                let missing = state
                    .channels
                    .iter()
                    .filter(|(_, c)| !c.live && (!c.bells.is_empty()));
                missing.map(|(name, _)| name.clone()).take(BATCH).collect()
            };
            if missing.is_empty() {
                return Ok(());
            }
            if let Err(fault) = self.subscribe(link, &missing).await {
                if link.is_over() {
                    return Err(fault);
                }
                // Refused (ACL, a slot that is elsewhere): these waiters ask at intervals instead.
                match elsewhere(&fault.error) {
                    Some(_) => tracing::debug!(error = %fault.error, "cannot subscribe"),
                    None => tracing::warn!(error = %fault.error, "cannot subscribe; waiters will poll"),
                }
                let mut state = self.lock();
                for name in &missing {
                    if let Some(channel) = state.channels.get_mut(name) {
                        channel.asked.clear();
                    }
                }
                return Ok(());
            }
            if self.sharded {
                continue;
            }
            let mut state = self.lock();
            for name in &missing {
                if let Some(channel) = state.channels.get_mut(name) {
                    channel.confirm();
                }
            }
        }
    }

    async fn subscribe(&self, link: &Link, channels: &[String]) -> Result<(), Fault> {
        match self.sharded {
            true => link.subscribe_shards(channels, self.links.patience()).await,
            false => link.subscribe(channels, self.links.patience()).await,
        }
    }

    async fn unsubscribe_idle(&self, link: &Link, now: Moment) -> Result<(), Fault> {
        let idle: Vec<String> = {
            let mut state = self.lock();
            let idle = state.channels.iter_mut().filter(|(_, c)| {
                c.live && c.bells.is_empty() && c.idle_since.is_some_and(|since| now.since(since) >= LINGER)
            });
            // From here on it counts as unsubscribed: a waiter that comes now is subscribed again after this.
            idle.map(|(name, channel)| {
                channel.live = false;
                name.clone()
            })
            .take(BATCH)
            .collect()
        };
        if !idle.is_empty() {
            let patience = self.links.patience();
            match self.sharded {
                true => link.unsubscribe_shards(&idle, patience).await?,
                false => link.unsubscribe(&idle, patience).await?,
            }
            let mut state = self.lock();
            state.channels.retain(|_, c| c.live || !c.bells.is_empty());
        }
        self.subscribe_missing(link).await
    }

    /// Looks at these keys and has them tracked; rings for those that are not held any more.
    async fn check(&self, link: &Link, tracks: bool, mut keys: Vec<Arc<str>>) -> Result<(), Fault> {
        keys.sort_unstable();
        keys.dedup();
        let mut held: Vec<(Arc<str>, Arc<str>)> = {
            let state = self.lock();
            let entries = keys
                .iter()
                .filter_map(|key| state.holds.get(key).map(|entries| (key, entries)));
            entries
                .flat_map(|(key, entries)| {
                    entries
                        .iter()
                        .filter(|e| e.tracked)
                        .map(move |e| (key.clone(), e.owner.clone()))
                })
                .collect()
        };
        let slot_of = |(key, _): &(Arc<str>, Arc<str>)| if self.clustered { slot(key) } else { 0 };
        held.sort_by_cached_key(slot_of);
        let slots = held.chunk_by(|a, b| slot_of(a) == slot_of(b));
        let batches = slots.flat_map(|same| same.chunks(BATCH)).map(Ok);
        stream::iter(batches)
            .try_for_each_concurrent(AT_ONCE, |batch| self.check_batch(link, tracks, batch))
            .await
    }

    /// The same for keys that are in one slot.
    async fn check_batch(
        &self,
        link: &Link,
        tracks: bool,
        batch: &[(Arc<str>, Arc<str>)],
    ) -> Result<(), Fault> {
        let mut call = CHECK.call(batch.len());
        for (key, _) in batch {
            call.arg(&**key);
        }
        for (_, owner) in batch {
            call.arg(&**owner);
        }
        let keys: Vec<&str> = batch.iter().map(|(key, _)| &**key).collect();
        let patience = self.links.patience();
        let track = async {
            match tracks {
                true => link.track(&keys, false, patience).await,
                false => Ok(()),
            }
        };
        // In this order: whatever changes after the look is told.
        let answers = match tokio::join!(track, link.run(&CHECK, &call, patience)) {
            (Ok(()), Ok(Value::Array(answers))) => answers,
            (Ok(()), Ok(_)) => return Ok(()),
            // They have gone with their slot, or are going: the renewal finds them.
            (Err(fault), _) | (_, Err(fault)) if elsewhere(&fault.error).is_some() => {
                vec![Value::Int(0); batch.len()]
            }
            (Err(fault), _) | (_, Err(fault)) => return Err(fault),
        };
        let state = self.lock();
        for ((key, owner), answer) in batch.iter().zip(answers) {
            if answer == Value::Int(0) {
                let gone = state
                    .holds
                    .get(key)
                    .into_iter()
                    .flatten()
                    .filter(|e| e.owner == *owner);
                ring(gone.map(|e| &e.bell));
            }
        }
        Ok(())
    }
}
