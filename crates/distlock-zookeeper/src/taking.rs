//! Mutexes and read/write locks: one line, each watches the one that it waits for.

use std::sync::Arc;

use distlock_core::driver::{DriverError, Holder, Line, Reached, Want};
use distlock_core::line::{Turn, turn};
use uuid::Uuid;
use zookeeper_client::Error;

use crate::call::fault;
use crate::kinds::{data, mismatch, not_a_semaphore, other_line};
use crate::node::{Node, kazoo_line};
use crate::seat::{At, Seat};
use crate::session::Session;
use crate::watches::{Watched, Watches};

/// How often one look may find that the one to watch has just gone.
const RETRIES: u32 = 16;

/// What a look found.
#[derive(Debug)]
pub(crate) enum Found {
    Mine(At),
    Behind { holder: Option<Holder>, ahead: u32 },
}

/// What a look needs of the client.
pub(crate) struct Eyes<'a> {
    pub(crate) want: &'a Want,
    pub(crate) session: &'a Arc<Session>,
    pub(crate) client: Uuid,
    pub(crate) watches: &'a Watches,
}

impl Eyes<'_> {
    /// A node, for people.
    pub(crate) async fn holder(&self, dir: &str, node: &Node) -> Result<Option<Holder>, DriverError> {
        let mode = match node.label {
            crate::node::Label::Lease => self.want.mode,
            label => label.mode(),
        };
        let seen = data(self.session, &format!("{dir}/{}", node.name)).await?;
        Ok(seen.map(|(data, stat)| crate::contender::read(self.client, &node.name, mode, &data, &stat)))
    }

    /// Watches a node, unless `watched` does: whether it is still there. Its data is read along, because a read
    /// leaves no watch behind when there is no node.
    pub(crate) async fn watch(
        &self,
        path: String,
        watched: &mut Option<Watched>,
    ) -> Result<bool, DriverError> {
        if watched.as_ref().is_some_and(|w| w.watches(&path)) {
            return Ok(true);
        }
        let call = self.session.call()?;
        let watcher = match call.answer(call.client.get_and_watch_data(&path)).await {
            Ok((_, _, watcher)) => watcher,
            Err(Error::NoNode) => return Ok(false),
            Err(e) => return Err(fault(e)),
        };
        *watched = Some(self.watches.ring(path, watcher, self.want.bell.clone()));
        Ok(true)
    }
}

#[derive(Debug)]
pub(crate) struct Taking {
    seat: Seat,
    watched: Option<Watched>,
}

impl Taking {
    pub(crate) fn new(seat: Seat) -> Self {
        Self { seat, watched: None }
    }

    pub(crate) async fn look(&mut self, eyes: &Eyes<'_>) -> Result<Found, DriverError> {
        for _ in 0..RETRIES {
            let sight = self.seat.sit(eyes.session).await?;
            // Whoever came first decides the kind.
            if let Some(have) = other_line(&sight.line[..sight.me], eyes.want) {
                self.leave().await?;
                return Err(mismatch(have, eyes.want));
            }
            if let Err(e) = not_a_semaphore(eyes.session, &self.seat.dir, &sight.children, eyes.want).await {
                self.leave().await?;
                return Err(e);
            }
            let modes: Vec<_> = sight.line.iter().map(|node| node.label.mode()).collect();
            let kazoo = match &sight.at.kazoo {
                Some(_) => kazoo_line(&sight.children),
                None => Vec::new(),
            };
            let second = sight
                .at
                .kazoo
                .as_ref()
                .and_then(|name| kazoo.iter().position(|node| node.name == *name));
            // The one to wait for, and the holder.
            let (before, first) = match (turn(&modes, sight.me), second) {
                (Turn::Behind(ahead), _) => (&sight.line[ahead], &sight.line[0]),
                (Turn::Mine, Some(me @ 1..)) => (&kazoo[me - 1], &kazoo[0]),
                (Turn::Mine, _) => {
                    self.watched = None;
                    return Ok(Found::Mine(sight.at));
                }
            };
            if eyes.want.line == Line::Join {
                let path = self.seat.path(&before.name);
                if !eyes.watch(path, &mut self.watched).await? {
                    continue;
                }
            }
            let holder = eyes.holder(&self.seat.dir, first).await?;
            if eyes.want.line == Line::Never {
                self.leave().await?;
            }
            return Ok(Found::Behind {
                holder,
                ahead: sight.me.max(second.unwrap_or(0)).try_into().unwrap_or(u32::MAX),
            });
        }
        Err(DriverError::unavailable(
            Reached::No,
            "the line moves faster than it can be read",
        ))
    }

    pub(crate) async fn leave(&mut self) -> Result<bool, DriverError> {
        self.watched = None;
        self.seat.leave().await
    }
}
