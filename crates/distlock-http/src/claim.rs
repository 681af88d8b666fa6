//! One contender.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use distlock_core::driver::{Claim, DriverError, Line, Released, Standing, Want};

use crate::attempt::{Attempt, Progress, path};
use crate::driver::Shared;
use crate::gateway::Over;
use crate::wire::{ReleaseBody, ReleaseView};

/// How long to look again without a ring: the grant comes by itself.
const RECHECK: Duration = Duration::from_secs(60);

/// See the module.
#[derive(Debug)]
pub(crate) struct HttpClaim {
    shared: Arc<Shared>,
    want: Arc<Want>,
    /// What makes a repeated request the same one.
    name: String,
    attempt: Option<Attempt>,
    /// Whether the gateway was ever asked.
    asked: bool,
    /// Held or released once.
    done: bool,
}

impl HttpClaim {
    pub(crate) fn new(shared: Arc<Shared>, want: Arc<Want>) -> Self {
        Self {
            name: want.owner.to_string(),
            shared,
            want,
            attempt: None,
            asked: false,
            done: false,
        }
    }
}

#[async_trait]
impl Claim for HttpClaim {
    async fn try_acquire(&mut self) -> Result<Standing, DriverError> {
        if self.done || self.shared.closing.is_cancelled() {
            return Err(DriverError::closed());
        }
        self.asked = true;
        let attempt = match &self.attempt {
            Some(attempt) => attempt,
            None => {
                let attempt = Attempt::start(&self.shared, &self.want, &self.name);
                self.attempt.insert(attempt)
            }
        };
        let (standing, over) = {
            let mut progress = attempt.progress().await;
            match &mut *progress {
                Progress::Held { grant, handle } => {
                    self.shared.holds.keep(self.want.owner, std::mem::take(handle));
                    (Ok(Standing::Held(*grant)), true)
                }
                Progress::Waiting { holder, ahead } => {
                    let standing = Standing::Waiting {
                        recheck: RECHECK,
                        holder: holder.clone(),
                        ahead: *ahead,
                    };
                    (Ok(standing), false)
                }
                Progress::Busy(holder) => {
                    let standing = Standing::Waiting {
                        recheck: match self.want.line {
                            Line::Join => Duration::from_millis(50),
                            Line::Never => RECHECK,
                        },
                        holder: holder.take(),
                        ahead: None,
                    };
                    (Ok(standing), true)
                }
                Progress::Failed(e) => (Err(e.take().unwrap_or_else(DriverError::closed)), true),
                Progress::Asking => (Err(DriverError::closed()), true),
            }
        };
        if over {
            self.done = matches!(standing, Ok(Standing::Held(_)));
            self.attempt = None;
        }
        standing
    }

    async fn release(&mut self, _keep: Option<Duration>) -> Result<Released, DriverError> {
        self.done = true;
        let handle = self.shared.holds.get(self.want.owner);
        if !self.asked && handle.is_none() {
            return Ok(Released::NotHeld);
        }
        let body = ReleaseBody {
            handle: handle.as_deref(),
            idempotency_key: self.asked.then_some(self.name.as_str()),
        };
        let released = self
            .shared
            .gateway
            .post::<ReleaseView>(&path(&self.want, "release"), &body)
            .await;
        let freed = match released {
            Ok((view, _)) => view.released,
            Err(e) if e.source.as_ref().is_some_and(|source| source.is::<Over>()) => false,
            Err(e) => return Err(e),
        };
        // Only now: until it was answered, the place in line was kept by the attempt.
        self.attempt = None;
        self.asked = false;
        self.shared.holds.forget(self.want.owner);
        Ok(if freed { Released::Freed } else { Released::NotHeld })
    }
}

impl Drop for HttpClaim {
    fn drop(&mut self) {
        self.shared.holds.forget(self.want.owner);
    }
}
