//! Semaphores, as Curator's `InterProcessSemaphoreV2`: whoever is first in the line `locks` waits until `leases` has
//! room, takes a lease and leaves the line.

use std::sync::Arc;

use distlock_core::driver::{DriverError, Holder, Kind, Line, Reached};
use futures_util::future::join;
use zookeeper_client::Error;

use crate::call::fault;
use crate::contender::permits;
use crate::kinds::{children, data, mismatch, other_line};
use crate::node::{Node, line};
use crate::seat::{At, Seat};
use crate::session::Session;
use crate::taking::{Eyes, Found};
use crate::watches::Watched;

const RETRIES: u32 = 16;

#[derive(Debug)]
pub(crate) struct Slots {
    path: String,
    of: u32,
    turn: Seat,
    lease: Seat,
    watched: Option<Watched>,
}

/// A node to delete in the background.
pub(crate) type Chased = Option<(Arc<Session>, String)>;

impl Slots {
    pub(crate) fn new(path: String, of: u32, turn: Seat, lease: Seat) -> Self {
        Self {
            path,
            of,
            turn,
            lease,
            watched: None,
        }
    }

    /// One look, and what is left to delete after a grant: a place in line whose delete was not answered.
    pub(crate) async fn look(&mut self, eyes: &Eyes<'_>) -> Result<(Found, Chased), DriverError> {
        match self.try_look(eyes).await {
            Err(e) if matches!(e.kind, distlock_core::driver::DriverErrorKind::Refused(_)) => {
                self.leave().await?;
                Err(e)
            }
            other => other,
        }
    }

    async fn try_look(&mut self, eyes: &Eyes<'_>) -> Result<(Found, Chased), DriverError> {
        for _ in 0..RETRIES {
            // A lease of an attempt whose end nobody saw. Whoever is first in line may be waiting for it.
            if self.lease.is_taken_in(eyes.session) {
                let lease = self.lease.sit(eyes.session).await?;
                if lease.me < self.of as usize {
                    return Ok(self.granted(lease.at));
                }
                self.lease.leave().await?;
            }
            let sight = self.turn.sit(eyes.session).await?;
            let ahead = sight.me.try_into().unwrap_or(u32::MAX);
            let taken = self.room(eyes).await?;
            if sight.me > 0 {
                let before = &sight.line[sight.me - 1];
                if eyes.want.line == Line::Join
                    && !eyes
                        .watch(self.turn.path(&before.name), &mut self.watched)
                        .await?
                {
                    continue;
                }
                return self.behind(eyes, &taken, ahead).await;
            }
            if taken.len() >= self.of as usize {
                if eyes.want.line == Line::Join && !self.watch_leases(eyes).await? {
                    continue;
                }
                return self.behind(eyes, &taken, ahead).await;
            }
            // The place in line is left in the same trip, so that a grant leaves nobody behind it.
            let (lease, left) = join(self.lease.sit(eyes.session), self.turn.leave()).await;
            let lease = lease?;
            if lease.me < self.of as usize {
                return Ok(self.granted(lease.at));
            }
            // Somebody took a lease without waiting in line.
            left?;
            self.lease.leave().await?;
        }
        Err(DriverError::unavailable(
            Reached::No,
            "the line moves faster than it can be read",
        ))
    }

    fn granted(&mut self, at: At) -> (Found, Chased) {
        self.watched = None;
        (Found::Mine(at), self.turn.hand_over())
    }

    /// The leases in use. Refuses when the key is another kind of lock, or a semaphore of another size.
    async fn room(&self, eyes: &Eyes<'_>) -> Result<Vec<Node>, DriverError> {
        let (here, leases) = join(
            children(eyes.session, &self.path),
            children(eyes.session, &self.lease.dir),
        )
        .await;
        if let Some(have) = other_line(&line(&here?), eyes.want) {
            return Err(mismatch(have, eyes.want));
        }
        let leases = line(&leases?);
        if let Some(first) = leases.first() {
            let seen = data(eyes.session, &self.lease.path(&first.name)).await?;
            if let Some(of) = seen
                .and_then(|(data, _)| permits(&data))
                .filter(|of| *of != self.of)
            {
                return Err(mismatch(Kind::Semaphore { of }, eyes.want));
            }
        }
        Ok(leases)
    }

    /// Watches the leases: whether there is still no room.
    async fn watch_leases(&mut self, eyes: &Eyes<'_>) -> Result<bool, DriverError> {
        if self.watched.as_ref().is_some_and(|w| w.watches(&self.lease.dir)) {
            return Ok(true);
        }
        let call = eyes.session.call()?;
        match call
            .answer(call.client.list_and_watch_children(&self.lease.dir))
            .await
        {
            Ok((children, watcher)) => {
                let dir = self.lease.dir.clone();
                self.watched = Some(eyes.watches.ring(dir, watcher, eyes.want.bell.clone()));
                Ok(line(&children).len() >= self.of as usize)
            }
            Err(Error::NoNode) => Ok(false),
            Err(e) => Err(fault(e)),
        }
    }

    async fn behind(
        &mut self,
        eyes: &Eyes<'_>,
        taken: &[Node],
        ahead: u32,
    ) -> Result<(Found, Chased), DriverError> {
        let holder: Option<Holder> = match taken.first() {
            Some(first) => eyes.holder(&self.lease.dir, first).await?,
            None => None,
        };
        if eyes.want.line == Line::Never {
            self.leave().await?;
        }
        Ok((Found::Behind { holder, ahead }, None))
    }

    /// Whether a lease was given back.
    pub(crate) async fn leave(&mut self) -> Result<bool, DriverError> {
        self.watched = None;
        let lease = self.lease.leave().await?;
        self.turn.leave().await?;
        Ok(lease)
    }
}
