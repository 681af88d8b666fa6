//! The claims of a client that the engine thread has to tell of changes.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use distlock_core::OwnerId;
use distlock_core::bell::Bell;
use futures_util::FutureExt;
use futures_util::future::select_all;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;
use zookeeper_client::EventType;

use crate::session::Session;

/// A hold: its node, or its nodes in several lines. It lasts as long as all of them.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) session: Arc<Session>,
    pub(crate) nodes: Vec<HeldNode>,
    gone: AtomicBool,
    watched: AtomicBool,
}

/// One node of a hold.
#[derive(Debug)]
pub(crate) struct HeldNode {
    pub(crate) path: String,
    /// The number of the connection on which the node was last seen and is watched; 0 before that.
    verified: AtomicU64,
}

impl Held {
    pub(crate) fn new(session: Arc<Session>, paths: Vec<String>) -> Arc<Self> {
        let node = |path| HeldNode {
            path,
            verified: AtomicU64::new(0),
        };
        Arc::new(Self {
            session,
            nodes: paths.into_iter().map(node).collect(),
            gone: AtomicBool::new(false),
            watched: AtomicBool::new(false),
        })
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }

    /// A node does not exist, or not in this session.
    pub(crate) fn is_lost(&self) {
        self.gone.store(true, Ordering::Release);
    }

    /// Whether an event of the present connection would tell of the end of a node.
    pub(crate) fn is_verified(&self) -> bool {
        let connection = self.session.connection();
        let told = |node: &HeldNode| node.verified.load(Ordering::Acquire) == connection;
        self.nodes.iter().all(told)
    }

    /// The nodes were seen on this connection, and are watched.
    pub(crate) fn seen(&self, connection: u64) {
        if self.watched.load(Ordering::Acquire) {
            for node in &self.nodes {
                node.verified.fetch_max(connection, Ordering::AcqRel);
            }
        }
    }

    /// Whether the caller is the one who shall watch.
    pub(crate) fn start_watch(&self) -> bool {
        !self.watched.swap(true, Ordering::AcqRel)
    }

    /// Watches the nodes until one of them or the session ends, and rings.
    pub(crate) async fn watch(self: Arc<Self>, bell: Bell) {
        select_all(self.nodes.iter().map(|node| self.watch_node(node).boxed())).await;
        if self.is_gone() || self.session.has_ended() {
            bell.ring();
            return;
        }
        self.watched.store(false, Ordering::Release);
        for node in &self.nodes {
            node.verified.store(0, Ordering::Release);
        }
    }

    /// Resolves when the node is gone, when the session has ended, or when the node cannot be watched now.
    async fn watch_node(&self, node: &HeldNode) {
        while let Ok(call) = self.session.call() {
            match call.answer(call.client.check_and_watch_stat(&node.path)).await {
                Ok((Some(stat), watcher)) if stat.ephemeral_owner == self.session.id() => {
                    node.verified.fetch_max(call.connection, Ordering::AcqRel);
                    drop(call);
                    // Other events: its data changed (Curator's `Revoker` writes there), or the session ended.
                    if watcher.changed().await.event_type == EventType::NodeDeleted {
                        self.is_lost();
                    }
                }
                Ok(_) => self.is_lost(),
                // Watched again by the next renewal.
                Err(_) => return,
            }
            if self.is_gone() || self.session.has_ended() {
                return;
            }
        }
    }
}

#[derive(Debug, Default)]
struct Member {
    bell: Bell,
    held: Option<Arc<Held>>,
}

/// Who waits or holds.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    members: Mutex<HashMap<OwnerId, Member>>,
    /// Holds so young that their nodes are not watched yet.
    young: Mutex<Vec<OwnerId>>,
    /// Tells renewals that wait for an answer that holds were lost meanwhile.
    losses: Notify,
}

impl Registry {
    fn lock(&self) -> MutexGuard<'_, HashMap<OwnerId, Member>> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn young(&self) -> MutexGuard<'_, Vec<OwnerId>> {
        self.young.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn join(&self, owner: OwnerId, bell: &Bell) {
        self.lock().entry(owner).or_insert_with(|| Member {
            bell: bell.clone(),
            held: None,
        });
    }

    /// A new hold; whether it is the first since [`grown`](Self::grown).
    pub(crate) fn hold(&self, owner: OwnerId, bell: &Bell, held: Arc<Held>) -> bool {
        self.lock().insert(
            owner,
            Member {
                bell: bell.clone(),
                held: Some(held),
            },
        );
        let mut young = self.young();
        young.push(owner);
        young.len() == 1
    }

    /// Those of the young holds that are still held.
    pub(crate) fn grown(&self) -> Vec<(Arc<Held>, Bell)> {
        let young = std::mem::take(&mut *self.young());
        let members = self.lock();
        let held = young.iter().filter_map(|owner| {
            let member = members.get(owner)?;
            Some((member.held.clone()?, member.bell.clone()))
        });
        held.collect()
    }

    pub(crate) fn held(&self, owner: &OwnerId) -> Option<Arc<Held>> {
        self.lock().get(owner)?.held.clone()
    }

    /// What is held in this session, each with whom to tell.
    pub(crate) fn held_in(&self, session: &Arc<Session>) -> Vec<(Arc<Held>, Bell)> {
        let members = self.lock();
        let held = members
            .values()
            .filter_map(|member| Some((member.held.clone()?, member.bell.clone())));
        held.filter(|(held, _)| Arc::ptr_eq(&held.session, session))
            .collect()
    }

    pub(crate) fn leave(&self, owner: &OwnerId) {
        self.lock().remove(owner);
    }

    /// Resolves after the next [`tell_losses`](Self::tell_losses), once enabled.
    pub(crate) fn losses(&self) -> Notified<'_> {
        self.losses.notified()
    }

    /// Holds were found to be lost.
    pub(crate) fn tell_losses(&self) {
        self.losses.notify_waiters();
    }

    pub(crate) fn ring_all(&self) {
        self.tell_losses();
        self.lock().values().for_each(|member| member.bell.ring());
    }

    pub(crate) fn ring_holders(&self) {
        self.lock()
            .values()
            .filter(|member| member.held.is_some())
            .for_each(|member| member.bell.ring());
    }
}
