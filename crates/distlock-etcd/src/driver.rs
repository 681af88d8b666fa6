//! The driver: what the core asks of the engine.

use std::sync::Arc;
use std::time::Duration;

use distlock_core::driver::{
    Claim, Death, Driver, DriverError, Hold, Holder, Inspect, Life, Loss, LostReason, MAX_TTL, Orders, Promises,
    Refusal, Renewal, TokenPromise, Wakes, Want,
};
use distlock_core::engine::Engine;
use futures_util::future::{BoxFuture, join_all};

use crate::ask;
use crate::claim::EtcdClaim;
use crate::client::Client;
use crate::failure::{Failure, Why};
use crate::heart::Heart;
use crate::holds::Holds;
use crate::name::Names;
use crate::place::Place;
use crate::record;
use crate::session::Fresh;
use crate::sessions::{Sessions, seconds};
use crate::watcher::Watcher;
use crate::wire::{LeaseGrantRequest, LeaseRevokeRequest};

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
        holder.here = holder.owner.strip_prefix(&client).is_some_and(|rest| rest.starts_with(':'));
        holder
    }


    /// A lease that nobody keeps alive.
    pub(crate) async fn grant_unkept(&self, ttl: Duration) -> Result<i64, Failure> {
        let grant = LeaseGrantRequest { ttl: seconds(ttl), id: 0 };
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
                let (Some(at), Some(token)) = (place.revision(), place.token()) else { continue };
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

    /// Reads a key whose watch ended, and watches it again.
    async fn see(&self, place: &Arc<Place>) -> Result<(), Renewal> {
        let Some(at) = place.revision() else { return Ok(()) };
        match self.client.call(ask::is_there(&place.key, at)).await {
            Ok(reply) if reply.succeeded => {
                place.arm(&self.watcher, reply.revision() + 1);
                Ok(())
            }
            Ok(_) => Err(Renewal::Lost(LostReason::Taken)),
            Err(failure) => Err(Renewal::Unknown(failure.into())),
        }
    }

    /// What a renewal can say without asking anybody.
    fn known(&self, hold: &Hold) -> Option<Renewal> {
        if hold.want.owner.client != self.engine.owners().client() && hold.want.life == Life::Process {
            return Some(Renewal::Lost(LostReason::Taken));
        }
        let Some(place) = self.holds.get(hold.want.owner.n) else {
            return (hold.want.life == Life::Process).then_some(Renewal::Lost(LostReason::Taken));
        };
        let why = place.gone().or_else(|| place.session.over());
        why.map(Renewal::Lost)
    }

    async fn renew_one(&self, hold: &Hold) -> Renewal {
        if let Some(known) = self.known(hold) {
            return known;
        }
        let mine = hold.want.owner.client == self.engine.owners().client();
        let place = self.holds.get(hold.want.owner.n).filter(|_| mine);
        let (Life::Process, Some(place)) = (hold.want.life, &place) else {
            return self.renew_lease(hold, place.as_deref()).await;
        };
        if place.is_blind()
            && let Err(answer) = self.see(place).await
        {
            return answer;
        }
        match place.session.fresh().await {
            Ok(valid_until) => place.gone().map_or(Renewal::Good(valid_until), Renewal::Lost),
            Err(Fresh::Over(why)) => Renewal::Lost(place.gone().unwrap_or(why)),
            Err(Fresh::Unknown(e)) => Renewal::Unknown(e),
        }
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
        Box::pin(async move {
            let each = holds.iter().enumerate().map(|(i, hold)| async move {
                answer(i, self.shared.renew_one(hold).await);
            });
            join_all(each).await;
        })
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.shared.sessions.close())
    }

    fn inspect(&self) -> Option<&dyn Inspect> {
        Some(self)
    }
}
