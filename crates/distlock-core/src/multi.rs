//! Several locks at once: all or nothing, in one order for everybody.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use crate::acquire::Plan;
use crate::client::ClientInner;
use crate::entered::Entered;
use crate::error::{Error, ErrorKind, RunError};
use crate::guard::{Guard, Held};
use crate::hold::HoldState;
use crate::holds::Holds;
use crate::lock::{Lock, enter, nested};
use crate::settings::Wait;

/// Several locks to be taken together, not yet taken. See [`all`].
#[derive(Debug)]
#[must_use = "locks are not taken until `acquire`, `try_acquire` or `run` is called and awaited"]
pub struct All {
    locks: Vec<Lock>,
    wait: Wait,
}

/// Takes several locks, of the same or of different clients, all or nothing.
///
/// They are taken one after the other in an order that does not depend on how they are listed (engine, namespace,
/// key), so that callers who list them differently do not block each other; the same lock named twice is taken
/// once. Of each builder all settings count except its `wait`: there is one [`wait`](All::wait) for all.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// # use distlock_core::{Client, all, memory::Memory};
/// # let locks = Client::builder().memory(&Memory::new())?;
/// let both = all([locks.mutex("account:7"), locks.mutex("account:3")]).acquire().await?;
/// assert_eq!(both.tokens().len(), 2);
/// both.release().await?;
/// # Ok::<(), distlock_core::Error>(()) }).unwrap();
/// ```
pub fn all(locks: impl IntoIterator<Item = Lock>) -> All {
    All {
        locks: locks.into_iter().collect(),
        wait: Wait::Forever,
    }
}

impl All {
    /// How long to wait, in all, for all. Default: for ever.
    pub fn wait(mut self, wait: impl Into<Wait>) -> Self {
        self.wait = wait.into();
        self
    }

    /// Takes all.
    ///
    /// # Errors
    /// As [`Lock::acquire`], for the first lock that failed; those already taken are released.
    /// [`ErrorKind::InvalidConfig`] when none are named, or one is named in different ways.
    ///
    /// # Cancel safety
    /// Safe, as [`Lock::acquire`].
    pub async fn acquire(self) -> Result<Guard, Error> {
        let set = self.check()?;
        let Some(client) = set.plans.first().map(|p| p.client.clone()) else {
            return Err(none_named());
        };
        client.on_runtime(async move { set.take().await }).await?
    }

    /// Takes all if all are free: `None` if somebody else holds one.
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire), except busy.
    ///
    /// # Cancel safety
    /// Safe.
    pub async fn try_acquire(mut self) -> Result<Option<Guard>, Error> {
        self.wait = Wait::Try;
        match self.acquire().await {
            Ok(guard) => Ok(Some(guard)),
            Err(e) if e.kind() == ErrorKind::Busy => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Takes all, runs `body`, releases all; see [`Lock::run`].
    ///
    /// # Errors
    /// As [`Lock::run`]; the loss of one is the loss of all.
    ///
    /// # Cancel safety
    /// As [`Lock::run`].
    pub async fn run<T, E, F, Fut>(self, body: F) -> Result<T, RunError<E>>
    where
        F: FnOnce(Held) -> Fut,
        Fut: Future<Output = Result<T, E>>,
    {
        self.enter().await?.run(body).await
    }

    /// The first half of [`run`](Self::run): takes all, except those that an enclosing scope holds, which are
    /// re-entered. For `#[locked]`.
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire).
    ///
    /// # Cancel safety
    /// As [`acquire`](Self::acquire).
    #[doc(hidden)]
    pub async fn enter(self) -> Result<Entered, Error> {
        match self.enclosed()? {
            (nested, None) => Ok(Entered::new(nested, None)),
            (nested, Some((client, set))) => {
                let guard = client.on_runtime(async move { set.take().await }).await??;
                Ok(Entered::new(nested, Some(guard)))
            }
        }
    }

    /// As [`enter`](Self::enter), blocking this thread.
    ///
    /// # Errors
    /// As [`enter`](Self::enter), and [`ErrorKind::Unsupported`] inside async code.
    #[doc(hidden)]
    pub fn enter_blocking(self) -> Result<Entered, Error> {
        match self.enclosed()? {
            (nested, None) => Ok(Entered::new(nested, None)),
            (nested, Some((client, set))) => {
                let guard = crate::blocking::wait(&client, async move { set.take().await })??;
                Ok(Entered::new(nested, Some(guard)))
            }
        }
    }

    /// The holds of enclosing scopes, and what is left to take.
    #[expect(clippy::type_complexity, reason = "two callers, both right above")]
    fn enclosed(self) -> Result<(Holds, Option<(Arc<ClientInner>, Set)>), Error> {
        let mut set = self.check()?;
        let mut holds = Holds::None;
        let mut left = Vec::new();
        for plan in std::mem::take(&mut set.plans) {
            match nested(&plan)? {
                Some(hold) => holds.push(hold),
                None => left.push(plan),
            }
        }
        set.plans = left;
        let client = set.plans.first().map(|plan| plan.client.clone());
        match client {
            None if holds.is_empty() => Err(none_named()),
            client => Ok((holds, client.map(|client| (client, set)))),
        }
    }

    /// Checked, sorted, without doubles.
    fn check(self) -> Result<Set, Error> {
        let wait = self.wait;
        let mut plans = Vec::new();
        for lock in self.locks {
            let plan = lock.wait(wait).plan()?;
            let double = plans
                .iter()
                .find(|p: &&Plan| p.key == plan.key && Arc::ptr_eq(&p.client, &plan.client));
            match double {
                None => plans.push(plan),
                Some(double) if double.mode == plan.mode => {}
                Some(_) => {
                    let why = "the lock is named twice, as different kinds or modes";
                    return Err(plan.name(Error::new(ErrorKind::InvalidConfig, why)));
                }
            }
        }
        plans.sort_by(|a, b| place(a).cmp(&place(b)));
        // Two engines of the same kind, with the same namespace and key, have no order that others would share.
        let ordered = plans.windows(2).all(|p| place(&p[0]) != place(&p[1]));
        Ok(Set { plans, wait, ordered })
    }
}

/// Where a lock stands in everybody's order.
fn place(plan: &Plan) -> (&'static str, &str, &str) {
    (
        plan.client.observe.engine(),
        plan.client.engine.namespace().as_str(),
        plan.key.as_str(),
    )
}

fn none_named() -> Error {
    Error::new(ErrorKind::InvalidConfig, "no locks are named; name at least one")
}

/// What is taken together.
struct Set {
    plans: Vec<Plan>,
    wait: Wait,
    /// Whether everybody else takes them in the same order.
    ordered: bool,
}

impl Set {
    /// Takes all in order. If a member is lost meanwhile, or the order is not shared and one is busy for a while,
    /// all are given back and it begins anew.
    async fn take(&self) -> Result<Guard, Error> {
        let clock = self.plans[0].client.engine.clock();
        let start = clock.now();
        loop {
            let slice = Duration::from_millis(100).mul_f64(1.0 + 2.0 * clock.unit());
            let mut taken = Guard::new(Holds::None);
            let mut busy = None;
            for plan in &self.plans {
                match member(plan, self.patience(clock.now().since(start), slice)).await {
                    Ok(hold) => taken.push(hold),
                    Err(e) => {
                        busy = Some(e);
                        break;
                    }
                }
            }
            if busy.is_none() && taken.is_held() {
                return Ok(taken);
            }
            // A failure here is followed up in the background; what counts is the first error.
            let _ = taken.release().await;
            let out_of_time = matches!(self.wait, Wait::For(d) if clock.now().since(start) >= d);
            match busy {
                Some(e) if self.ordered || !e.is_contention() || out_of_time || self.wait == Wait::Try => {
                    return Err(e);
                }
                _ => clock.sleep(slice / 16).await,
            }
        }
    }

    /// How long to wait for one member.
    fn patience(&self, waited: Duration, slice: Duration) -> Wait {
        let left = match self.wait {
            Wait::Try => return Wait::Try,
            Wait::For(d) => d.saturating_sub(waited),
            Wait::Forever if self.ordered => return Wait::Forever,
            Wait::Forever => Duration::MAX,
        };
        Wait::For(if self.ordered { left } else { left.min(slice) })
    }
}

async fn member(plan: &Plan, wait: Wait) -> Result<Arc<HoldState>, Error> {
    match enter(plan)? {
        Some(hold) => Ok(hold),
        None => plan.acquire_within(wait).await,
    }
}
