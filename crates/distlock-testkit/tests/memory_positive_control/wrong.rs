//! A driver that does everything as the memory engine does, but one thing.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use distlock_core::bell::Bell;
use distlock_core::clock::Clock;
use distlock_core::driver::{
    Break, Claim, Driver, DriverError, Grant, Hold, Holder, Inspect, Line, LockInfo, Mode, Order, Orders,
    Promises, Released, Renewal, Standing, Want,
};
use distlock_core::engine::Engine;
use distlock_core::{FencingToken, Key};
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, join_all};

use super::Sabotage;
use super::Sabotage::*;

pub(crate) struct Wrong {
    pub(crate) inner: Arc<dyn Driver>,
    pub(crate) engine: Engine,
    pub(crate) how: Sabotage,
}

impl fmt::Debug for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a memory engine with {:?}", self.how)
    }
}

impl Driver for Wrong {
    fn promises(&self) -> Promises {
        let mut promises = self.inner.promises();
        if self.how == AnotherOrderIsPromised {
            promises.order = Orders::Any;
        }
        promises
    }

    fn claim(&self, want: Arc<Want>) -> Result<Box<dyn Claim>, DriverError> {
        let mut changed = Want {
            key: want.key.clone(),
            owner: want.owner,
            mode: want.mode,
            order: want.order,
            line: want.line,
            life: want.life,
            ttl: want.ttl,
            label: want.label.clone(),
            reason: want.reason.clone(),
            bell: want.bell.clone(),
        };
        match (self.how, want.mode) {
            (TwoHoldersOfAMutex, Mode::Mutex) => changed.mode = Mode::Slot { of: 2 },
            (ReadersAreAlone, Mode::Read) => changed.mode = Mode::Write,
            (OneSlotTooMany, Mode::Slot { of }) => changed.mode = Mode::Slot { of: of + 1 },
            (SizesAreIgnored, Mode::Slot { .. }) => changed.mode = Mode::Slot { of: 100 },
            (WritersShare, Mode::Write) => changed.mode = Mode::Read,
            (KeysLoseTheirEnd, _) => {
                let mut name: Vec<char> = want.key.as_str().chars().collect();
                name.pop();
                changed.key = Key::new(name.into_iter().collect::<String>()).unwrap();
            }
            (LeasesNeverEnd, _) => {
                changed.ttl = Duration::from_secs(3600);
                changed.order = Order::Fifo;
            }
            (KeysLoseTheirCase, _) => changed.key = Key::new(want.key.as_str().to_lowercase()).unwrap(),
            (TriesQueue, _) => {
                changed.line = Line::Join;
                changed.order = Order::Fifo;
            }
            (FifoIsIgnored, _) => changed.order = Order::Any,
            (NoBell, _) => changed.bell = Bell::new(),
            (AnyTtlGoes, _) => changed.ttl = want.ttl.clamp(Duration::from_secs(1), Duration::from_secs(60)),
            _ => {}
        }
        let changed = Arc::new(changed);
        if self.how == ClaimsAskAtOnce {
            let early = self.inner.claim(changed.clone())?.try_acquire().now_or_never();
            drop(early);
        }
        let again = self.how == ClaimsServeForEver;
        Ok(Box::new(WrongClaim {
            claim: self.inner.claim(changed.clone())?,
            again: again.then(|| (self.inner.clone(), changed.clone())),
            inner: self.inner.clone(),
            clock: self.engine.clock().clone(),
            want: changed,
            how: self.how,
        }))
    }

    fn renew<'a>(
        &'a self,
        holds: &'a [Hold],
        answer: &'a (dyn Fn(usize, Renewal) + Send + Sync),
    ) -> BoxFuture<'a, ()> {
        let one = async move |(at, hold): (usize, &Hold)| {
            let answer = |_: usize, renewal| {
                let renewal = match (self.how, renewal) {
                    (RenewalsAlwaysSayGood, _) => Renewal::Good(self.engine.clock().now() + hold.ttl),
                    (_, renewal) => renewal,
                };
                if self.how != RenewalsAreOneShort || at + 1 < holds.len() {
                    answer(at, renewal);
                }
            };
            if self.how == RenewalsAreNotSent {
                return answer(0, Renewal::Good(self.engine.clock().now() + hold.ttl));
            }
            if self.how == RenewalsAcquire
                && let Ok(Standing::Held(grant)) =
                    self.inner.claim(hold.want.clone()).unwrap().try_acquire().await
            {
                return answer(0, Renewal::Good(grant.valid_until));
            }
            let mut hold = hold.clone();
            if self.how == RenewalsForgetTheirTtl {
                hold.ttl = hold.want.ttl;
            }
            self.inner.renew(&[hold], &answer).await;
        };
        Box::pin(async move {
            join_all(holds.iter().enumerate().map(one)).await;
        })
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        if self.how == CloseIsIgnored {
            return Box::pin(async {});
        }
        self.inner.close()
    }

    fn inspect(&self) -> Option<&dyn Inspect> {
        Some(self)
    }
}

#[async_trait::async_trait]
impl Inspect for Wrong {
    async fn list(
        &self,
        prefix: &str,
        after: Option<&Key>,
        limit: usize,
    ) -> Result<Vec<LockInfo>, DriverError> {
        let mut page = self.inner.inspect().unwrap().list(prefix, after, limit).await?;
        if self.how == ListIsUnsorted {
            page.reverse();
        }
        Ok(page)
    }

    async fn inspect(&self, key: &Key) -> Result<LockInfo, DriverError> {
        let mut info = self.inner.inspect().unwrap().inspect(key).await?;
        match self.how {
            NobodyIsSeen => info = LockInfo::free(key.clone()),
            HereIsEverywhere => info.holders.iter_mut().for_each(|h| h.here = true),
            _ => {}
        }
        Ok(info)
    }

    async fn break_lock(&self, key: &Key, how: &Break) -> Result<Vec<Holder>, DriverError> {
        let mut how = how.clone();
        match self.how {
            BreakIsBlind => how.expect = None,
            BreakHasNoGrace => how.grace = Duration::ZERO,
            _ => {}
        }
        self.inner.inspect().unwrap().break_lock(key, &how).await
    }
}

struct WrongClaim {
    claim: Box<dyn Claim>,
    again: Option<(Arc<dyn Driver>, Arc<Want>)>,
    inner: Arc<dyn Driver>,
    clock: Clock,
    want: Arc<Want>,
    how: Sabotage,
}

impl fmt::Debug for WrongClaim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.claim.fmt(f)
    }
}

impl WrongClaim {
    fn grant(&self, mut grant: Grant) -> Grant {
        match self.how {
            NoTokens => grant.token = None,
            TheSameToken => grant.token = grant.token.map(|_| FencingToken::new(7)),
            SlotsHaveTokens => grant.token = Some(FencingToken::new(7)),
            ValidFromTheReply => grant.valid_until = self.clock.now() + self.want.ttl,
            _ => {}
        }
        grant
    }
}

#[async_trait::async_trait]
impl Claim for WrongClaim {
    async fn try_acquire(&mut self) -> Result<Standing, DriverError> {
        if let Some((driver, want)) = &self.again {
            self.claim = driver.claim(want.clone())?;
        }
        let standing = self.claim.try_acquire().await?;
        if self.how == ValidFromTheReply {
            // The way of the reply.
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        Ok(match standing {
            Standing::Held(grant) => Standing::Held(self.grant(grant)),
            Standing::Waiting {
                holder,
                ahead,
                recheck,
            } => {
                let recheck = if self.how == RecheckIsZero {
                    Duration::ZERO
                } else {
                    recheck
                };
                Standing::Waiting {
                    holder,
                    ahead,
                    recheck,
                }
            }
        })
    }

    async fn release(&mut self, keep: Option<Duration>) -> Result<Released, DriverError> {
        match self.how {
            ReleasesAreForgotten => Ok(Released::Freed),
            ReleasesAlwaysSayFreed => self.claim.release(keep).await.map(|_| Released::Freed),
            KeepIsIgnored => self.claim.release(None).await,
            AnyoneReleases => {
                let eyes = self.inner.inspect().unwrap();
                let freed = !eyes
                    .break_lock(&self.want.key, &Break::default())
                    .await?
                    .is_empty();
                self.claim.release(None).await?;
                Ok(if freed { Released::Freed } else { Released::NotHeld })
            }
            _ => self.claim.release(keep).await,
        }
    }
}
