//! The driver: what the core asks of the engine.

use std::sync::Arc;
use std::time::Duration;

use distlock_core::driver::{
    Claim, Death, Driver, DriverError, Hold, Holder, Inspect, Loss, MAX_TTL, Orders, Promises, Refusal,
    Renewal, TokenPromise, Wakes, Want,
};
use distlock_core::engine::Engine;
use futures_util::future::BoxFuture;

use crate::ask;
use crate::claim::EtcdClaim;
use crate::client::Client;
use crate::failure::Failure;
use crate::heart::Heart;
use crate::holds::Holds;
use crate::name::Names;
use crate::place::Place;
use crate::record;
use crate::sessions::{Sessions, seconds};
use crate::watcher::Watcher;
use crate::wire::LeaseGrantRequest;

/// How long a hold lives before its key is watched: most are released sooner, and need no watch.
const YOUNG: Duration = Duration::from_millis(200);

/// What the claims of one client share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) engine: Engine,
    pub(crate) client: Arc<Client>,
    pub(crate) names: Names,
    pub(crate) heart: Heart,
    pub(crate) watcher: Watcher,
    pub(crate) sessions: Sessions,
    pub(crate) holds: Holds,
}

impl Shared {
    pub(crate) fn new(engine: Engine, client: Client) -> Arc<Self> {
        let client = Arc::new(client);
        let heart = Heart::start(&engine, client.clone());
        let names = Names::new(engine.namespace().clone());
        Arc::new(Self {
            watcher: Watcher::start(&engine, client.clone()),
            sessions: Sessions::new(engine.clone(), client.clone(), heart.clone(), names.sessions()),
            holds: Holds::default(),
            engine,
            client,
            names,
            heart,
        })
    }

    /// Marks a holder that is this very client.
    pub(crate) fn holder(&self, mut holder: Holder) -> Holder {
        let client = self.engine.owners().client().to_string();
        holder.here = holder
            .owner
            .strip_prefix(&client)
            .is_some_and(|rest| rest.starts_with(':'));
        holder
    }

    /// A lease that nobody keeps alive.
    pub(crate) async fn grant_unkept(&self, ttl: Duration) -> Result<i64, Failure> {
        let grant = LeaseGrantRequest {
            ttl: seconds(ttl),
            id: 0,
        };
        Ok(self.client.call(grant).await?.id)
    }

    /// Watches the key of a new hold, and notes its token there, if it is still held in a moment.
    pub(crate) fn settle(self: &Arc<Self>, place: &Arc<Place>, value: &[u8]) {
        if !self.holds.young(place, value) {
            return;
        }
        let shared = self.clone();
        self.engine.spawn(async move {
            shared.engine.clock().sleep(YOUNG).await;
            for (place, value) in shared.holds.grown() {
                let (Some(at), Some(token)) = (place.revision(), place.token()) else {
                    continue;
                };
                place.arm(&shared.watcher, i64::try_from(token.get()).unwrap_or(at) + 1);
                if i64::try_from(token.get()) != Ok(at) {
                    // It waited: its token is not its create revision. For people who look; a failure is no loss.
                    let value = record::with(&value, "token", &token.to_string());
                    let note = ask::rewrite(place.key.clone().into_bytes(), at, value, None);
                    let _ = shared.client.call(note).await;
                }
            }
        });
    }
}

/// The etcd engine.
#[derive(Debug)]
pub(crate) struct EtcdDriver {
    pub(crate) shared: Arc<Shared>,
}

impl Driver for EtcdDriver {
    fn promises(&self) -> Promises {
        let mut promises = Promises::new("etcd");
        promises.order = Orders::AlwaysFifo;
        promises.shared = true;
        promises.slots = true;
        promises.token = TokenPromise::Durable;
        promises.ttl = Duration::from_secs(1)..=MAX_TTL;
        promises.wakes = Wakes::Notified;
        promises.loss = Loss::BeforeRegrant;
        promises.death = Death::AtTtl;
        promises.lease_records = true;
        promises.keep = true;
        promises
    }

    fn claim(&self, want: Arc<Want>) -> Result<Box<dyn Claim>, DriverError> {
        if want.ttl < Duration::from_secs(1) || want.ttl > MAX_TTL {
            let why = format!("ttl={:?} is out of etcd's range of 1s to 366 days", want.ttl);
            return Err(DriverError::refused(Refusal::InvalidConfig(why)));
        }
        let lock = self.shared.names.lock(&want.key).map_err(DriverError::refused)?;
        Ok(Box::new(EtcdClaim::new(self.shared.clone(), want, lock)))
    }

    fn renew<'a>(
        &'a self,
        holds: &'a [Hold],
        answer: &'a (dyn Fn(usize, Renewal) + Send + Sync),
    ) -> BoxFuture<'a, ()> {
        Box::pin(self.shared.renew(holds, answer))
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.shared.sessions.close())
    }

    fn inspect(&self) -> Option<&dyn Inspect> {
        Some(self)
    }
}
