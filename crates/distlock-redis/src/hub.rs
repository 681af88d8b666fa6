//! What the server tells us: messages for waiters, and changes of keys that we hold.
//!
//! One connection of the engine thread serves the whole client. It subscribes to the channels of all waiters, and
//! it has the server *track* the keys of holds (`CLIENT TRACKING`): when one is deleted, evicted, expired, flushed or
//! forced open by somebody else, the server says so, and a look at the key decides. Renewals go over the same
//! connection, with `NOLOOP`, so they are not told back. The bells are rung where the server's word is read, without
//! another hop; the actor in [`actor`] only subscribes, checks and reconnects.

mod actor;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use distlock_core::bell::Bell;
use distlock_core::clock::Moment;
use distlock_core::engine::Engine;
use redis::{PushInfo, PushKind, Value};
use tokio::sync::{Notify, oneshot};

use crate::config::Config;
use crate::dial::Link;
use crate::links::Links;
use crate::names::client_channel;

/// The client's ear.
#[derive(Debug)]
pub(crate) struct Hub {
    engine: Engine,
    links: Arc<Links>,
    /// The channel on which others tell us that they broke a lock of ours.
    own: String,
    /// The server is a node of a cluster: one request is about one slot.
    clustered: bool,
    /// Waiters are told in the shard of their lock, and heard on a connection of its own: the server may end such a
    /// subscription unasked, which a connection with other requests on it would take for the answer to one of them.
    sharded: bool,
    state: Mutex<State>,
    work: Notify,
}

#[derive(Debug, Default)]
struct State {
    channels: HashMap<String, Channel>,
    /// Holds by key, but for the fresh ones.
    holds: HashMap<Arc<str>, Vec<Arc<Entry>>>,
    next: u64,
    /// Holds to be listed and tracked at the next tick: most locks are released before it, and cost nothing.
    fresh: Vec<Arc<Entry>>,
    /// Keys that changed and are to be looked at now.
    stirred: Vec<Arc<str>>,
    running: bool,
    closed: bool,
    link: Option<Live>,
}

/// The connection while it is up.
#[derive(Debug, Clone)]
pub(crate) struct Live {
    pub(crate) link: Link,
    /// Whether the server tracks keys for it.
    pub(crate) tracks: bool,
}

#[derive(Debug, Default)]
struct Channel {
    bells: Vec<(u64, Bell)>,
    /// Whether the server confirmed the subscription on the present connection.
    live: bool,
    asked: Vec<oneshot::Sender<()>>,
    idle_since: Option<Moment>,
}

#[derive(Debug)]
struct Entry {
    key: Arc<str>,
    owner: Arc<str>,
    bell: Bell,
    tracked: bool,
    place: AtomicU8,
}

/// Where an [`Entry`] is. It is listed under the hub's lock only; it is over at any time.
mod place {
    pub(super) const FRESH: u8 = 0;
    pub(super) const LISTED: u8 = 1;
    pub(super) const OVER: u8 = 2;
}

/// With so many fresh holds, those that are over are forgotten before the tick: it may be long in coming.
const MANY: usize = 1 << 14;

/// A waiter's bell on a channel; it is taken off when this is dropped.
#[derive(Debug)]
pub(crate) struct Armed {
    hub: Arc<Hub>,
    channel: String,
    id: u64,
}

/// A holder's bell on a key; it is taken off when this is dropped.
#[derive(Debug)]
pub(crate) struct Watched {
    hub: Arc<Hub>,
    entry: Arc<Entry>,
}

impl Hub {
    pub(crate) fn new(engine: Engine, links: Arc<Links>, config: &Config) -> Arc<Self> {
        let own = client_channel(engine.owners().client());
        Arc::new(Self {
            engine,
            links,
            own,
            clustered: config.clustered,
            sharded: config.sharded == Some(true),
            state: Mutex::default(),
            work: Notify::new(),
        })
    }

    /// Puts a bell on a channel, before anything was sent: see [`Armed::heard`].
    pub(crate) fn arm(self: &Arc<Self>, channel: String, bell: Bell) -> Armed {
        let mut state = self.lock();
        state.next += 1;
        let id = state.next;
        let entry = state.channels.entry(channel.clone()).or_default();
        entry.bells.push((id, bell));
        entry.idle_since = None;
        self.start(&mut state);
        drop(state);
        self.work.notify_one();
        Armed {
            hub: self.clone(),
            channel,
            id,
        }
    }

    /// Puts a bell on a key that is held by `owner`. `tracked`: the key says by itself whether it is still held.
    pub(crate) fn watch(
        self: &Arc<Self>,
        key: &Arc<str>,
        owner: &Arc<str>,
        tracked: bool,
        bell: Bell,
    ) -> Watched {
        let entry = Arc::new(Entry {
            key: key.clone(),
            owner: owner.clone(),
            bell,
            tracked,
            place: AtomicU8::new(place::FRESH),
        });
        let mut state = self.lock();
        let first = state.fresh.is_empty();
        state.fresh.push(entry.clone());
        if state.fresh.len().is_multiple_of(MANY) {
            state.fresh.retain(|e| !e.is_over());
        }
        self.start(&mut state);
        drop(state);
        if first {
            self.work.notify_one();
        }
        Watched {
            hub: self.clone(),
            entry,
        }
    }

    /// Rings for everybody whose key or channel has gone to another server.
    pub(crate) fn part_with(&self, gone: impl Fn(&str) -> bool) {
        let state = self.lock();
        let waiters = state.channels.iter().filter(|(name, _)| gone(name));
        ring(waiters.flat_map(|(_, c)| &c.bells).map(|(_, bell)| bell));
        let holds = state.holds.iter().filter(|(key, _)| gone(key));
        ring(holds.flat_map(|(_, entries)| entries).map(|e| &e.bell));
        ring(
            state
                .fresh
                .iter()
                .filter(|e| !e.is_over() && gone(&e.key))
                .map(|e| &e.bell),
        );
    }

    /// The connection, if it is up.
    pub(crate) fn live(&self) -> Option<Live> {
        self.lock().link.clone().filter(|live| !live.link.is_over())
    }

    /// Ends the actor and its connection.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.work.notify_one();
    }

    fn start(self: &Arc<Self>, state: &mut State) {
        if !state.running && !state.closed {
            state.running = true;
            self.engine.spawn(actor::run(self.clone()));
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hears what the server says unasked.
    fn hear(&self, info: &PushInfo) {
        match info.kind {
            PushKind::SSubscribe => {
                let mut state = self.lock();
                if let Some(channel) = text(info.data.first()).and_then(|name| state.channels.get_mut(name)) {
                    channel.confirm();
                }
            }
            // Asked for, when nobody waits; or the slot has gone.
            PushKind::SUnsubscribe => {
                let mut state = self.lock();
                if let Some(channel) = text(info.data.first()).and_then(|name| state.channels.get_mut(name)) {
                    channel.live = false;
                    ring(channel.bells.iter().map(|(_, bell)| bell));
                }
            }
            PushKind::Message | PushKind::SMessage => {
                let (Some(channel), Some(payload)) = (text(info.data.first()), text(info.data.get(1))) else {
                    return;
                };
                let state = self.lock();
                if channel == self.own {
                    let fresh = state.fresh.iter().filter(|e| *e.key == *payload);
                    let holds = state.holds.get(payload).into_iter().flatten();
                    ring(holds.chain(fresh).map(|e| &e.bell));
                } else if let Some(channel) = state.channels.get(channel) {
                    ring(channel.bells.iter().map(|(_, bell)| bell));
                }
            }
            PushKind::Invalidate => {
                let mut state = self.lock();
                match info.data.first() {
                    Some(Value::Array(keys)) => {
                        for key in keys.iter().filter_map(|k| text(Some(k))) {
                            let known = state.holds.get_key_value(key).map(|(key, _)| key.clone());
                            state.stirred.extend(known);
                        }
                    }
                    // The whole database was flushed.
                    _ => state.stirred = state.holds.keys().cloned().collect(),
                }
                if !state.stirred.is_empty() {
                    self.work.notify_one();
                }
            }
            PushKind::Disconnection => self.work.notify_one(),
            _ => {}
        }
    }
}

impl Armed {
    /// Resolves when the server confirmed the subscription.
    pub(crate) async fn heard(&self) {
        let asked = {
            let mut state = self.hub.lock();
            match state.channels.get_mut(&self.channel) {
                Some(channel) if !channel.live => {
                    let (tell, asked) = oneshot::channel();
                    channel.asked.push(tell);
                    asked
                }
                _ => return,
            }
        };
        // A sender that is dropped says that the subscription failed for now.
        let _ = asked.await;
    }

    /// Whether a release would be heard now.
    pub(crate) fn is_live(&self) -> bool {
        self.hub
            .lock()
            .channels
            .get(&self.channel)
            .is_some_and(|c| c.live)
    }
}

impl Drop for Armed {
    fn drop(&mut self) {
        let now = self.hub.engine.clock().now();
        if let Some(channel) = self.hub.lock().channels.get_mut(&self.channel) {
            channel.bells.retain(|(id, _)| *id != self.id);
            if channel.bells.is_empty() {
                channel.idle_since = Some(now);
            }
        }
    }
}

impl Channel {
    fn confirm(&mut self) {
        self.live = true;
        for asked in self.asked.drain(..) {
            let _ = asked.send(());
        }
    }
}

impl State {
    /// Lists the fresh holds that are not over yet; gives the keys of those that are tracked.
    fn list_fresh(&mut self) -> Vec<Arc<str>> {
        let mut keys = Vec::new();
        for entry in std::mem::take(&mut self.fresh) {
            if !entry.becomes_listed() {
                continue;
            }
            if entry.tracked {
                keys.push(entry.key.clone());
            }
            self.holds.entry(entry.key.clone()).or_default().push(entry);
        }
        keys
    }
}

impl Entry {
    fn is_over(&self) -> bool {
        self.place.load(Ordering::Acquire) == place::OVER
    }

    fn becomes_listed(&self) -> bool {
        let listed =
            self.place
                .compare_exchange(place::FRESH, place::LISTED, Ordering::AcqRel, Ordering::Acquire);
        listed.is_ok()
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        if self.entry.place.swap(place::OVER, Ordering::AcqRel) != place::LISTED {
            return;
        }
        let mut state = self.hub.lock();
        if let Some(entries) = state.holds.get_mut(&self.entry.key) {
            entries.retain(|e| !Arc::ptr_eq(e, &self.entry));
            if entries.is_empty() {
                state.holds.remove(&self.entry.key);
            }
        }
    }
}

fn ring<'a>(bells: impl Iterator<Item = &'a Bell>) {
    for bell in bells {
        bell.ring();
    }
}

fn text(value: Option<&Value>) -> Option<&str> {
    match value? {
        Value::BulkString(bytes) => std::str::from_utf8(bytes).ok(),
        Value::SimpleString(text) => Some(text),
        _ => None,
    }
}
