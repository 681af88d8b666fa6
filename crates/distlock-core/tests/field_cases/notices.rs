//! Notices that get lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use distlock_core::Client;
use distlock_core::bell::Bell;
use distlock_core::driver::{
    Claim, Driver, DriverError, Hold, Order, Promises, Released, Renewal, Standing, Want,
};
use distlock_core::engine::Engine;
use futures_util::future::BoxFuture;
use tokio::task::JoinHandle;

use crate::{MS, SECS, Scene};

/// The memory engine, of whose notices to this client one in two hundred is lost.
#[derive(Debug)]
struct HardOfHearing {
    engine: Arc<dyn Driver>,
    lost: Arc<AtomicU64>,
    rings: Arc<AtomicU64>,
}

impl Driver for HardOfHearing {
    fn promises(&self) -> Promises {
        self.engine.promises()
    }

    fn claim(&self, want: Arc<Want>) -> Result<Box<dyn Claim>, DriverError> {
        let bell = Bell::new();
        let (rings, lost) = (self.rings.clone(), self.lost.clone());
        let (hears, told) = (bell.clone(), want.bell.clone());
        let carries = tokio::spawn(async move {
            loop {
                hears.rung().await;
                match rings.fetch_add(1, Ordering::Relaxed) % 200 {
                    199 => _ = lost.fetch_add(1, Ordering::Relaxed),
                    _ => told.ring(),
                }
            }
        });
        let Want {
            owner,
            mode,
            order,
            line,
            life,
            ttl,
            ..
        } = *want;
        let (key, label, reason) = (want.key.clone(), want.label.clone(), want.reason.clone());
        let want = Want {
            key,
            owner,
            mode,
            order,
            line,
            life,
            ttl,
            label,
            reason,
            bell,
        };
        let claim = self.engine.claim(Arc::new(want))?;
        Ok(Box::new(Contender { claim, carries }))
    }

    fn renew<'a>(
        &'a self,
        holds: &'a [Hold],
        answer: &'a (dyn Fn(usize, Renewal) + Send + Sync),
    ) -> BoxFuture<'a, ()> {
        self.engine.renew(holds, answer)
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        self.engine.close()
    }
}

#[derive(Debug)]
struct Contender {
    claim: Box<dyn Claim>,
    carries: JoinHandle<()>,
}

#[async_trait]
impl Claim for Contender {
    async fn try_acquire(&mut self) -> Result<Standing, DriverError> {
        self.claim.try_acquire().await
    }

    async fn release(&mut self, keep: Option<Duration>) -> Result<Released, DriverError> {
        self.claim.release(keep).await
    }
}

impl Drop for Contender {
    fn drop(&mut self) {
        self.carries.abort();
    }
}

#[tokio::test]
async fn f30_thirty_thousand_hand_overs_outlast_lost_notices() {
    const HAND_OVERS: u64 = 30_000;
    /// A waiter looks again when the lease in its way must be over.
    const TTL: Duration = Duration::from_millis(300);
    let scene = Scene::new();
    let (lost, rings) = (Arc::<AtomicU64>::default(), Arc::<AtomicU64>::default());
    let counts = Arc::new((AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0)));
    let clients: Vec<Client> = (0..4)
        .map(|_| {
            let hard_of_hearing = |engine: Engine| {
                Ok(Arc::new(HardOfHearing {
                    engine: scene.memory.driver(engine),
                    lost: lost.clone(),
                    rings: rings.clone(),
                }) as Arc<dyn Driver>)
            };
            scene.builder().build_now(hard_of_hearing).unwrap()
        })
        .collect();
    let start = clients[0].clock().now();
    for n in 0..20 {
        let (client, counts) = (clients[n % 4].clone(), counts.clone());
        tokio::spawn(async move {
            let (grants, released, longest) = &*counts;
            let clock = client.clock().clone();
            let now = || clock.now().since(start).as_micros() as u64;
            loop {
                let guard = client
                    .mutex("k")
                    .ttl(TTL)
                    .order(Order::Fifo)
                    .acquire()
                    .await
                    .unwrap();
                if grants.fetch_add(1, Ordering::Relaxed) > 0 {
                    longest.fetch_max(now() - released.load(Ordering::Relaxed), Ordering::Relaxed);
                }
                clock.sleep(MS(5)).await;
                released.store(now(), Ordering::Relaxed);
                guard.release().await.unwrap();
            }
        });
    }
    let mut before = 0;
    while counts.0.load(Ordering::Relaxed) < HAND_OVERS {
        scene.time.advance(SECS(1)).await;
        let now = counts.0.load(Ordering::Relaxed);
        assert!(now > before, "nobody got in for a second, after {now}");
        before = now;
    }
    let (lost, longest) = (lost.load(Ordering::Relaxed), counts.2.load(Ordering::Relaxed));
    assert!(
        lost > 50,
        "vacuous: {lost} notices lost of {}",
        rings.load(Ordering::Relaxed)
    );
    assert!(Duration::from_micros(longest) <= TTL, "free for {longest} µs");
}
