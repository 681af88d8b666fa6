//! The driver: what the core asks of the engine.

use std::sync::Arc;
use std::time::Duration;

use distlock_core::driver::{
    Claim, Death, Driver, DriverError, Hold, Inspect, Life, Loss, Mode, Order, Orders, Promises, Refusal,
    Renewal, TokenPromise, Wakes, Want,
};
use distlock_core::engine::Engine;
use futures_util::future::BoxFuture;
use tokio_util::sync::CancellationToken;

use crate::claim::HttpClaim;
use crate::config::invalid;
use crate::gateway::Gateway;
use crate::renew::Holds;
use crate::wire::EngineView;

/// A lease that is shorter is over before it is of use, two hops away.
const LEAST: Duration = Duration::from_millis(100);

/// What the claims of one client share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) engine: Engine,
    pub(crate) gateway: Arc<Gateway>,
    pub(crate) holds: Holds,
    pub(crate) closing: CancellationToken,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct HttpDriver {
    pub(crate) shared: Arc<Shared>,
    promises: Promises,
}

impl HttpDriver {
    pub(crate) fn new(engine: Engine, gateway: Arc<Gateway>, view: EngineView) -> Self {
        let there = &view.promises;
        let mut promises = Promises::new("http");
        promises.order = match there.order.as_str() {
            "any_or_fifo" => Orders::AnyOrFifo,
            "always_fifo" => Orders::AlwaysFifo,
            _ => Orders::Any,
        };
        promises.shared = there.shared;
        promises.slots = there.slots;
        promises.token = match there.token.as_str() {
            "durable" => TokenPromise::Durable,
            "best_effort" => TokenPromise::BestEffort {
                unless: "what makes the tokens of the engine behind the gateway step back (see /v1/engine)",
            },
            _ => TokenPromise::None,
        };
        let least = Duration::from_millis(there.ttl_min_ms).max(LEAST);
        promises.ttl = least..=Duration::from_millis(there.ttl_max_ms).max(least);
        promises.wakes = if there.notified {
            Wakes::Notified
        } else {
            Wakes::Paced
        };
        promises.loss = if there.loss_before_regrant {
            Loss::BeforeRegrant
        } else {
            Loss::OnNotice
        };
        // The gateway does not watch over those whom it granted a lease.
        promises.death = Death::AtTtl;
        promises.lease_records = !view.bound_to_gateway;
        promises.keep = false;
        Self {
            shared: Arc::new(Shared {
                engine,
                gateway,
                holds: Holds::default(),
                closing: CancellationToken::new(),
            }),
            promises,
        }
    }
}

impl Driver for HttpDriver {
    fn promises(&self) -> Promises {
        self.promises.clone()
    }

    fn claim(&self, want: Arc<Want>) -> Result<Box<dyn Claim>, DriverError> {
        let p = &self.promises;
        if !p.ttl.contains(&want.ttl) {
            let (least, most) = (p.ttl.start(), p.ttl.end());
            return Err(invalid(format!(
                "the TTL {:?} is not within {least:?} to {most:?}",
                want.ttl
            )));
        }
        let missing = match want.mode {
            Mode::Read | Mode::Write if !p.shared => "read/write locks",
            Mode::Slot { .. } if !p.slots => "semaphores",
            Mode::Slot { of: 0 } => return Err(invalid("a semaphore has at least 1 permit, not 0")),
            _ if want.order == Order::Fifo && p.order == Orders::Any => "Order::Fifo",
            _ if want.life == Life::Lease && !p.lease_records => "leases that outlive the gateway's session",
            _ => return Ok(Box::new(HttpClaim::new(self.shared.clone(), want))),
        };
        let why = format!("{missing}: the engine behind the gateway has none");
        Err(DriverError::refused(Refusal::Unsupported(why)))
    }

    fn renew<'a>(
        &'a self,
        holds: &'a [Hold],
        answer: &'a (dyn Fn(usize, Renewal) + Send + Sync),
    ) -> BoxFuture<'a, ()> {
        Box::pin(self.shared.renew(holds, answer))
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        self.shared.closing.cancel();
        Box::pin(std::future::ready(()))
    }

    fn inspect(&self) -> Option<&dyn Inspect> {
        Some(self)
    }
}
