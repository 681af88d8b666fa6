//! One contender.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use distlock_core::FencingToken;
use distlock_core::driver::{
    About, Claim, DriverError, Grant, Line, Mode, Reached, Released, Standing, Want,
};

use crate::config::Bridge;
use crate::driver::Shared;
use crate::kinds::{LEASES, LOCKS};
use crate::node::Label;
use crate::registry::Held;
use crate::seat::Seat;
use crate::slots::Slots;
use crate::taking::{Eyes, Found, Taking};

/// Watches ring waiters; this is the net under them.
const RECHECK: Duration = Duration::from_secs(5);

#[derive(Debug)]
enum Recipe {
    Line(Taking),
    Slots(Slots),
}

#[derive(Debug)]
pub(crate) struct ZooKeeperClaim {
    shared: Arc<Shared>,
    want: Arc<Want>,
    recipe: Recipe,
    path: String,
    held: bool,
    released: bool,
}

impl ZooKeeperClaim {
    pub(crate) fn new(shared: Arc<Shared>, want: Arc<Want>, path: String) -> Self {
        let acl = shared.config.acl;
        let data = About::of(&want).to_string().into_bytes();
        let seat = |label| Seat::new(path.clone(), label, data.clone(), acl);
        let line = |seat| Recipe::Line(Taking::new(seat));
        let recipe = match want.mode {
            Mode::Mutex if shared.config.bridge == Bridge::Kazoo => line(seat(Label::Lock).with_kazoo()),
            Mode::Mutex => line(seat(Label::Lock)),
            Mode::Write => line(seat(Label::Write)),
            Mode::Read => line(seat(Label::Read)),
            Mode::Slot { of } => {
                let turn = Seat::new(format!("{path}/{LOCKS}"), Label::Lock, data.clone(), acl);
                let lease = Seat::new(format!("{path}/{LEASES}"), Label::Lease, data.clone(), acl);
                Recipe::Slots(Slots::new(path.clone(), of, turn, lease))
            }
        };
        Self {
            shared,
            want,
            recipe,
            path,
            held: false,
            released: false,
        }
    }
}

#[async_trait]
impl Claim for ZooKeeperClaim {
    async fn try_acquire(&mut self) -> Result<Standing, DriverError> {
        if self.held || self.released || self.shared.is_closed() {
            return Err(DriverError::closed());
        }
        let began = self.shared.engine.clock().now();
        let session = self.shared.session()?;
        self.shared.registry.join(self.want.owner, &self.want.bell);
        let eyes = Eyes {
            want: &self.want,
            session: &session,
            client: self.shared.client(),
            watches: &self.shared.watches,
        };
        let (found, chased) = match &mut self.recipe {
            Recipe::Line(taking) => (taking.look(&eyes).await?, None),
            Recipe::Slots(slots) => slots.look(&eyes).await?,
        };
        if let Some((session, path)) = chased {
            self.shared.chase(session, path);
        }
        let at = match found {
            Found::Mine(at) => at,
            Found::Behind { holder, ahead } => {
                if self.want.line == Line::Never {
                    self.shared.registry.leave(&self.want.owner);
                }
                return Ok(Standing::Waiting {
                    recheck: RECHECK,
                    holder,
                    ahead: Some(ahead),
                });
            }
        };
        let valid_until = session.deadline().min(began + self.want.ttl);
        if session.has_ended() || valid_until <= self.shared.engine.clock().now() {
            return Err(DriverError::unavailable(
                Reached::Yes,
                "the session ended or may have ended meanwhile",
            ));
        }
        self.held = true;
        let dir = if let Mode::Slot { .. } = self.want.mode {
            format!("{}/{LEASES}", self.path)
        } else {
            self.path.clone()
        };
        let paths = at.names().map(|name| format!("{dir}/{name}")).collect();
        let held = Held::new(at.session, paths);
        self.shared.hold(&self.want, held);
        let token = self.want.mode.is_exclusive().then(|| FencingToken::new(at.czxid));
        Ok(Standing::Held(Grant {
            token,
            valid_until,
            mark: 0,
        }))
    }

    async fn release(&mut self, _keep: Option<Duration>) -> Result<Released, DriverError> {
        self.released = true;
        self.shared.registry.leave(&self.want.owner);
        let left = match &mut self.recipe {
            Recipe::Line(taking) => taking.leave().await?,
            Recipe::Slots(slots) => slots.leave().await?,
        };
        Ok(if self.held && left {
            Released::Freed
        } else {
            Released::NotHeld
        })
    }
}

impl Drop for ZooKeeperClaim {
    fn drop(&mut self) {
        self.shared.registry.leave(&self.want.owner);
    }
}
