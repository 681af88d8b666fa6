//! Looking at locks, and breaking them.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use distlock_core::Key;
use distlock_core::driver::{Break, DriverError, Finding, Holder, Inspect, LockInfo, Mode, Reached, Refusal};
use distlock_core::line::{Turn, turn};
use futures_util::future::join_all;
use uuid::Uuid;
use zookeeper_client::{Client, Error};

use crate::call::{fault, flat};
use crate::config::Bridge;
use crate::contender::{self, permits};
use crate::doctor;
use crate::driver::{Shared, ZooKeeperDriver};
use crate::kinds::{LEASES, LOCKS, children, data};
use crate::node::{Label, Node, kazoo_line, line, prefix};
use crate::path::decode;
use crate::seat::ephemeral;
use crate::session::{Session, connector};

/// How often a break may find that the holder has just left.
const RETRIES: u32 = 8;

/// A lock as it stands: its contenders' nodes, and what they say.
struct Seen {
    info: LockInfo,
    /// The paths of the holders' nodes, and of what each is.
    holders: Vec<(String, Node)>,
}

impl Seen {
    fn put(&mut self, path: &str, node: Node, person: Holder, holds: bool) {
        if holds {
            self.holders.push((format!("{path}/{}", node.name), node));
            self.info.holders.push(person);
        } else {
            self.info.waiters.push(person);
        }
    }
}

impl Shared {
    async fn see(&self, session: &Arc<Session>, key: &Key) -> Result<Seen, DriverError> {
        let path = self.paths.of(key)?;
        let kids = children(session, &path).await?;
        let contenders: Vec<Node> = line(&kids)
            .into_iter()
            .filter(|n| n.label != Label::Lease)
            .collect();
        let mut seen = Seen {
            info: LockInfo::free(key.clone()),
            holders: Vec::new(),
        };
        if !contenders.is_empty() {
            let modes: Vec<Mode> = contenders.iter().map(|node| node.label.mode()).collect();
            let people = self
                .people(session, &path, &contenders, |_, node| node.label.mode())
                .await?;
            for (at, (node, person)) in contenders.into_iter().zip(people).enumerate() {
                let Some((person, _)) = person else { continue };
                seen.info.kind.get_or_insert(node.label.mode().kind());
                seen.put(&path, node, person, turn(&modes, at) == Turn::Mine);
            }
        } else if kids.iter().any(|name| name == LEASES || name == LOCKS) {
            self.see_semaphore(session, &path, &mut seen).await?;
        }
        if self.config.bridge == Bridge::Kazoo {
            self.see_kazoo(session, &path, &kids, &mut seen).await?;
        }
        seen.info.token = seen.info.holders.iter().filter_map(|holder| holder.token).max();
        Ok(seen)
    }

    /// Who is in kazoo's line. Ours stand in both, and the first of them in Curator's holds if it is first here, too.
    async fn see_kazoo(
        &self,
        session: &Arc<Session>,
        path: &str,
        kids: &[String],
        seen: &mut Seen,
    ) -> Result<(), DriverError> {
        let line = kazoo_line(kids);
        let mutex = |_: &[u8], _: &Node| Mode::Mutex;
        let people = self.people(session, path, &line, mutex).await?;
        for (at, (node, person)) in line.into_iter().zip(people).enumerate() {
            let Some((person, _)) = person else { continue };
            seen.info.kind.get_or_insert(Mode::Mutex.kind());
            let same = |holder: &Holder| holder.owner == person.owner;
            if seen.info.waiters.iter().any(same) {
                continue;
            }
            match seen.info.holders.iter().position(same) {
                Some(_) if at == 0 => seen.holders.push((format!("{path}/{}", node.name), node)),
                Some(waits) => {
                    seen.holders.remove(waits);
                    let person = seen.info.holders.remove(waits);
                    seen.info.waiters.push(person);
                }
                None => seen.put(path, node, person, at == 0),
            }
        }
        // As their nodes were made.
        seen.info.waiters.sort_by_key(|waiter| waiter.token);
        Ok(())
    }

    async fn see_semaphore(
        &self,
        session: &Arc<Session>,
        path: &str,
        seen: &mut Seen,
    ) -> Result<(), DriverError> {
        let slot = |data: &[u8], _: &Node| Mode::Slot {
            of: permits(data).unwrap_or(u32::MAX),
        };
        let dir = format!("{path}/{LEASES}");
        let leases = line(&children(session, &dir).await?);
        for (node, person) in leases
            .iter()
            .zip(self.people(session, &dir, &leases, slot).await?)
        {
            let Some((person, mode)) = person else { continue };
            seen.info.kind.get_or_insert(mode.kind());
            seen.holders.push((format!("{dir}/{}", node.name), node.clone()));
            seen.info.holders.push(person);
        }
        let dir = format!("{path}/{LOCKS}");
        let waiting = line(&children(session, &dir).await?);
        for (person, mode) in self
            .people(session, &dir, &waiting, slot)
            .await?
            .into_iter()
            .flatten()
        {
            seen.info.kind.get_or_insert(mode.kind());
            // Between its grant and its leaving the line a holder is in both.
            if seen
                .info
                .holders
                .iter()
                .all(|holder| holder.owner != person.owner)
            {
                seen.info.waiters.push(person);
            }
        }
        Ok(())
    }

    /// What these nodes say, as far as they are still there.
    async fn people(
        &self,
        session: &Arc<Session>,
        dir: &str,
        nodes: &[Node],
        mode: impl Fn(&[u8], &Node) -> Mode,
    ) -> Result<Vec<Option<(Holder, Mode)>>, DriverError> {
        let reads = nodes
            .iter()
            .map(async |node| data(session, &format!("{dir}/{}", node.name)).await);
        let mut people = Vec::with_capacity(nodes.len());
        for (node, read) in nodes.iter().zip(join_all(reads).await) {
            people.push(read?.map(|(data, stat)| {
                let mode = mode(&data, node);
                (
                    contender::read(self.client(), &node.name, mode, &data, &stat),
                    mode,
                )
            }));
        }
        Ok(people)
    }

    /// Deletes the holders' nodes; with a grace, puts one of ours into the place of the first, all at once. Whether
    /// they were still there.
    async fn take_away(&self, session: &Arc<Session>, seen: &Seen, how: &Break) -> Result<bool, DriverError> {
        let grace = if how.grace.is_zero() {
            None
        } else {
            Some(self.grace_session(how.grace).await?)
        };
        let client;
        let call = session.call()?;
        let mut writer = match &grace {
            Some((own, _)) => {
                client = own.clone();
                client.new_multi_writer()
            }
            None => call.client.new_multi_writer(),
        };
        let blocker = |path: &str, node: &Node| {
            // Alone in its place: a broken reader's would let other readers in.
            let label = if node.label == Label::Read {
                Label::Write
            } else {
                node.label
            };
            let dir = path.rsplit_once('/').map_or("", |(dir, _)| dir);
            format!("{dir}/{}{:010}", prefix(Uuid::new_v4(), label), node.sequence)
        };
        let mut kept = Vec::new();
        for (at, (path, node)) in seen.holders.iter().enumerate() {
            writer.add_delete(path, None).map_err(fault)?;
            if grace.is_some() && (at == 0 || matches!(node.label, Label::Lease | Label::Kazoo)) {
                let path = blocker(path, node);
                let about = contender::grace(how.reason.as_deref());
                writer
                    .add_create(&path, about.as_bytes(), &ephemeral(self.config.acl))
                    .map_err(fault)?;
                kept.push(path);
            }
        }
        match call.answer(async { writer.commit().await.map_err(flat) }).await {
            Ok(_) => {}
            Err(Error::NoNode) => return Ok(false),
            Err(e) => return Err(fault(e)),
        }
        if let Some((client, until)) = grace {
            let clock = self.engine.clock().clone();
            self.engine.spawn(async move {
                clock.sleep_until(until).await;
                for path in kept {
                    // Without an answer the session's end does it.
                    let _ = client.delete(&path, None).await;
                }
            });
        }
        Ok(true)
    }

    /// A session that keeps a node for a grace: it is not closed with this client, so that a command may break a
    /// lock and end; its node then lives as long as the servers let the session live.
    async fn grace_session(
        &self,
        grace: Duration,
    ) -> Result<(Client, distlock_core::clock::Moment), DriverError> {
        let clock = self.engine.clock().clone();
        let connector = connector(&self.config)
            .with_session_timeout(grace)
            .with_detached();
        let (hosts, limit) = (self.config.hosts.join(","), self.config.connect_timeout);
        let opening = self.engine.spawn(async move {
            let client = clock
                .timeout(limit, connector.connect(&hosts))
                .await
                .unwrap_or(Err(Error::Timeout));
            // Counted from here: the holder is told after this.
            client.map(|client| (client, clock.now() + grace + limit_of(grace)))
        });
        opening
            .await
            .map_err(|e| DriverError::unavailable(Reached::No, e))?
            .map_err(fault)
    }

    /// All keys of this namespace that have a node, in order.
    async fn keys(&self, session: &Arc<Session>) -> Result<Vec<Key>, DriverError> {
        let (root, encoded) = self.paths.root();
        if !encoded {
            let why = "listing with exact names: any node may be a lock; ask for one by its name";
            return Err(DriverError::refused(Refusal::Unsupported(why.into())));
        }
        let mut keys: Vec<Key> = children(session, root)
            .await?
            .iter()
            .filter_map(|part| decode(part))
            .collect();
        keys.sort();
        Ok(keys)
    }
}

/// The commit that starts the grace takes a little time of it.
fn limit_of(grace: Duration) -> Duration {
    (grace / 10).min(Duration::from_secs(1))
}

#[async_trait]
impl Inspect for ZooKeeperDriver {
    async fn list(
        &self,
        prefix: &str,
        after: Option<&Key>,
        limit: usize,
    ) -> Result<Vec<LockInfo>, DriverError> {
        let session = self.0.session()?;
        let mut page = Vec::new();
        for key in self.0.keys(&session).await? {
            if page.len() >= limit {
                break;
            }
            if !key.as_str().starts_with(prefix) || after.is_some_and(|after| key <= *after) {
                continue;
            }
            let seen = self.0.see(&session, &key).await?;
            // A container stays for a while after its last use.
            if !seen.info.holders.is_empty() || !seen.info.waiters.is_empty() {
                page.push(seen.info);
            }
        }
        Ok(page)
    }

    async fn inspect(&self, key: &Key) -> Result<LockInfo, DriverError> {
        let session = self.0.session()?;
        // The server that we are connected to may be behind; people expect to see what they have just done.
        let call = session.call()?;
        call.answer(call.client.sync("/")).await.map_err(fault)?;
        Ok(self.0.see(&session, key).await?.info)
    }

    async fn break_lock(&self, key: &Key, how: &Break) -> Result<Vec<Holder>, DriverError> {
        let session = self.0.session()?;
        for _ in 0..RETRIES {
            let call = session.call()?;
            call.answer(call.client.sync("/")).await.map_err(fault)?;
            let seen = self.0.see(&session, key).await?;
            if how.expect.is_some() && how.expect != seen.info.token {
                return Err(DriverError::refused(Refusal::TokenMismatch {
                    have: seen.info.token,
                }));
            }
            if seen.holders.is_empty() || self.0.take_away(&session, &seen, how).await? {
                return Ok(seen.info.holders);
            }
        }
        Err(DriverError::unavailable(
            Reached::No,
            "the holders change faster than they can be broken",
        ))
    }

    async fn doctor(&self) -> Result<Vec<Finding>, DriverError> {
        doctor::examine(&self.0).await
    }
}
