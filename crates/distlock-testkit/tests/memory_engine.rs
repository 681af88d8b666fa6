//! The memory engine by itself: what it does beyond the conformance suite, with time that tests move by hand.
#![allow(clippy::unwrap_used, reason = "a test fails by it")]

use std::sync::Arc;
use std::time::Duration;

use distlock_core::bell::Bell;
use distlock_core::clock::{Clock, ManualClock};
use distlock_core::driver::{
    Break, Claim, Driver, Hold, Inspect, Life, Line, LostReason, Mode, Order, Released, Renewal, Standing,
    Want,
};
use distlock_core::engine::Engine;
use distlock_core::memory::{Answer, Call, Fault, Memory, Rule};
use distlock_core::{Key, Namespace};

const TTL: Duration = Duration::from_secs(30);

struct World {
    time: ManualClock,
    memory: Memory,
}

struct Client {
    engine: Engine,
    driver: Arc<dyn Driver>,
}

impl World {
    fn new() -> Self {
        Self {
            time: ManualClock::new(),
            memory: Memory::new(),
        }
    }

    fn client(&self) -> Client {
        let clock = Clock::Manual(self.time.clone());
        let (engine, _) = Engine::start(clock, Namespace::default(), None).unwrap();
        let driver = self.memory.driver(engine.clone());
        Client { engine, driver }
    }
}

impl Client {
    fn want(&self, key: &str) -> Want {
        Want {
            key: Key::new(key).unwrap(),
            owner: self.engine.owners().next(),
            mode: Mode::Mutex,
            order: Order::Any,
            line: Line::Join,
            life: Life::Process,
            ttl: TTL,
            label: None,
            reason: None,
            bell: Bell::new(),
        }
    }

    fn claim(&self, want: Want) -> (Arc<Want>, Box<dyn Claim>) {
        let want = Arc::new(want);
        (want.clone(), self.driver.claim(want).unwrap())
    }

    async fn renew(&self, want: &Arc<Want>) -> Renewal {
        let hold = Hold {
            want: want.clone(),
            mark: 0,
            ttl: want.ttl,
            floor: None,
        };
        let answer = std::sync::Mutex::new(None);
        self.driver
            .renew(&[hold], &|_, a| *answer.lock().unwrap() = Some(a))
            .await;
        answer.into_inner().unwrap().expect("the memory engine answers")
    }

    fn inspect(&self) -> &dyn Inspect {
        self.driver.inspect().unwrap()
    }
}

fn is_held(standing: &Standing) -> bool {
    matches!(standing, Standing::Held(_))
}

async fn hold(client: &Client, key: &str) -> (Arc<Want>, Box<dyn Claim>) {
    let (want, mut claim) = client.claim(client.want(key));
    assert!(is_held(&claim.try_acquire().await.unwrap()));
    (want, claim)
}

#[tokio::test]
async fn a_release_wakes_one_waiter_and_no_herd() {
    let world = World::new();
    let client = world.client();
    let (_, mut holder) = hold(&client, "k").await;
    let mut waiters = Vec::new();
    for _ in 0..10 {
        let (want, mut claim) = client.claim(client.want("k"));
        assert!(!is_held(&claim.try_acquire().await.unwrap()));
        waiters.push((want, claim));
    }
    holder.release(None).await.unwrap();
    let rung = waiters.iter().filter(|(want, _)| want.bell.take()).count();
    assert_eq!(rung, 1);
}

#[tokio::test]
async fn a_writer_that_leaves_wakes_the_readers_before_the_next_writer() {
    let world = World::new();
    let client = world.client();
    let want = |mode, order| Want {
        mode,
        order,
        ..client.want("k")
    };
    let (_, mut holder) = client.claim(want(Mode::Write, Order::Fifo));
    assert!(is_held(&holder.try_acquire().await.unwrap()));
    let mut line = Vec::new();
    for mode in [Mode::Read, Mode::Read, Mode::Write, Mode::Read] {
        let (want, mut claim) = client.claim(want(mode, Order::Fifo));
        assert!(!is_held(&claim.try_acquire().await.unwrap()));
        line.push((want, claim));
    }
    holder.release(None).await.unwrap();
    let rung: Vec<_> = line.iter().map(|(want, _)| want.bell.take()).collect();
    assert_eq!(rung, [true, true, false, false]);
}

#[tokio::test]
async fn a_waiter_that_leaves_passes_the_ring_on() {
    let world = World::new();
    let client = world.client();
    let (_, mut holder) = hold(&client, "k").await;
    let (_, mut first) = client.claim(client.want("k"));
    let (second, mut claim) = client.claim(client.want("k"));
    first.try_acquire().await.unwrap();
    claim.try_acquire().await.unwrap();
    holder.release(None).await.unwrap();
    assert_eq!(first.release(None).await.unwrap(), Released::NotHeld);
    assert!(second.bell.take());
}

#[tokio::test]
async fn a_lease_runs_out_by_the_clock_and_its_holder_learns_why() {
    let world = World::new();
    let client = world.client();
    let (want, _claim) = hold(&client, "k").await;
    world.time.advance(TTL - Duration::from_nanos(1)).await;
    assert!(matches!(client.renew(&want).await, Renewal::Good(_)));
    world.time.advance(TTL).await;
    assert!(matches!(
        client.renew(&want).await,
        Renewal::Lost(LostReason::Expired)
    ));
}

#[tokio::test]
async fn waiters_look_again_when_the_lease_ends() {
    let world = World::new();
    let client = world.client();
    let (_, _gone) = client.claim(client.want("k"));
    let (_holder, _claim) = hold(&client, "k").await;
    let (_, mut waiter) = client.claim(client.want("k"));
    world.time.advance(TTL - Duration::from_millis(3)).await;
    let Standing::Waiting { recheck, holder, .. } = waiter.try_acquire().await.unwrap() else {
        panic!("held by two");
    };
    assert_eq!(recheck, Duration::from_millis(3));
    assert!(holder.unwrap().here);
    world.time.advance(recheck).await;
    assert!(is_held(&waiter.try_acquire().await.unwrap()));
}

#[tokio::test]
async fn a_broken_holder_is_told_the_reason() {
    let world = World::new();
    let (a, b) = (world.client(), world.client());
    let (want, mut claim) = hold(&a, "k").await;
    let how = Break {
        grace: Duration::from_secs(5),
        reason: Some("stuck".into()),
        ..Break::default()
    };
    let told = b.inspect().break_lock(&want.key, &how).await.unwrap();
    assert_eq!(told.len(), 1);
    assert!(!told[0].here);
    assert!(want.bell.take());
    let reason = Some("stuck".to_owned());
    assert!(matches!(a.renew(&want).await, Renewal::Lost(LostReason::Broken { reason: r }) if r == reason));
    assert_eq!(claim.release(None).await.unwrap(), Released::NotHeld);
    let (_, mut next) = b.claim(b.want("k"));
    assert!(!is_held(&next.try_acquire().await.unwrap()));
    world.time.advance(Duration::from_secs(5)).await;
    assert!(is_held(&next.try_acquire().await.unwrap()));
}

#[tokio::test]
async fn many_keys_leave_neither_records_nor_smaller_tokens() {
    let world = World::new();
    let client = world.client();
    let mut first = client.claim(client.want("busy")).1;
    let Standing::Held(before) = first.try_acquire().await.unwrap() else {
        panic!()
    };
    first.release(None).await.unwrap();
    for i in 0..20_000 {
        let (_, mut claim) = hold(&client, &format!("order:{i}")).await;
        claim.release(None).await.unwrap();
    }
    let text = format!("{:?}", world.memory);
    let records: usize = text.trim_matches(|c: char| !c.is_ascii_digit()).parse().unwrap();
    assert!(records < 3_000, "{text}");
    let mut again = client.claim(client.want("busy")).1;
    let Standing::Held(after) = again.try_acquire().await.unwrap() else {
        panic!()
    };
    assert!(after.token > before.token);
}

#[tokio::test]
async fn faults_strike_the_requests_that_they_name() {
    let world = World::new();
    let (a, b) = (world.client(), world.client());
    let faults = world.memory.faults();
    faults.record();
    faults.add(
        Rule::new(Call::Try, Fault::NotSent)
            .of(&**b.engine.owners())
            .skip(1),
    );
    let (_, mut first) = a.claim(a.want("a"));
    assert!(is_held(&first.try_acquire().await.unwrap()));
    let (_, mut one) = b.claim(b.want("b"));
    assert!(is_held(&one.try_acquire().await.unwrap()));
    let (_, mut two) = b.claim(b.want("c"));
    assert!(two.try_acquire().await.is_err());
    assert!(is_held(&two.try_acquire().await.unwrap()));
    assert_eq!(faults.pending(), 0);
    let answers: Vec<_> = faults.history().into_iter().map(|e| e.answer).collect();
    assert_eq!(answers.len(), 4);
    assert_eq!(answers[2], Answer::NotApplied);
}

#[tokio::test]
async fn a_late_request_lands_after_its_caller_has_released() {
    let world = World::new();
    let client = world.client();
    let delay = Duration::from_secs(2);
    world.memory.faults().queue(Call::Try, Fault::Late(delay));
    let (want, mut claim) = client.claim(client.want("k"));
    assert!(futures_util::poll!(claim.try_acquire()).is_pending());
    assert_eq!(claim.release(None).await.unwrap(), Released::NotHeld);
    world.time.advance(delay).await;
    let now = client.inspect().inspect(&want.key).await.unwrap();
    assert_eq!(now.holders.len(), 1);
    // The core chases it: the same claim releases again.
    assert_eq!(claim.release(None).await.unwrap(), Released::Freed);
}

#[tokio::test]
async fn a_partition_ends_by_the_clock_or_when_healed() {
    let world = World::new();
    let (a, b) = (world.client(), world.client());
    let faults = world.memory.faults();
    let (want, _claim) = hold(&a, "k").await;
    faults.partition_for(&**a.engine.owners(), Duration::from_secs(1));
    assert!(matches!(a.renew(&want).await, Renewal::Unknown(_)));
    assert!(a.inspect().inspect(&want.key).await.is_err());
    assert_eq!(b.inspect().list("", None, 9).await.unwrap().len(), 1);
    world.time.advance(Duration::from_secs(1)).await;
    assert!(matches!(a.renew(&want).await, Renewal::Good(_)));
    faults.partition(want.owner);
    assert!(matches!(a.renew(&want).await, Renewal::Unknown(_)));
    faults.heal(want.owner);
    assert!(matches!(a.renew(&want).await, Renewal::Good(_)));
}

#[tokio::test]
async fn stolen_expired_and_deleted_holds_are_lost_and_their_holders_told() {
    let world = World::new();
    let client = world.client();
    let faults = world.memory.faults();
    let key = Key::new("k").unwrap();
    let (want, mut claim) = hold(&client, "k").await;
    let stolen = faults.steal(&key, Duration::from_secs(1)).unwrap();
    assert!(want.bell.take());
    assert!(matches!(client.renew(&want).await, Renewal::Lost(_)));
    assert_eq!(claim.release(None).await.unwrap(), Released::NotHeld);
    assert_eq!(faults.expire(&key), 1);
    let (want, mut claim) = client.claim(client.want("k"));
    let Standing::Held(grant) = claim.try_acquire().await.unwrap() else {
        panic!()
    };
    assert!(grant.token > Some(stolen));
    assert_eq!(faults.delete(&key), 1);
    assert!(want.bell.take());
    assert!(matches!(
        client.renew(&want).await,
        Renewal::Lost(LostReason::Taken)
    ));
}
