//! What a function under `#[locked]` does, on the memory engine.

use std::fmt::Display;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use distlock::memory::Memory;
use distlock::{Client, Error, ErrorKind, FencingToken, Held, IntoKey, Locks, assert_locked, key, locked};
use tracing::instrument;

/// Two clients of one engine: `other` sees what another process would see.
#[derive(Clone, Debug)]
struct Pair {
    locks: Locks,
    other: Locks,
}

impl Pair {
    fn new() -> Self {
        let memory = Memory::new();
        let client = || {
            Locks::from(
                Client::builder()
                    .memory(&memory)
                    .expect("the memory engine starts"),
            )
        };
        Self {
            locks: client(),
            other: client(),
        }
    }

    async fn is_taken(&self, key: impl IntoKey) -> bool {
        self.other
            .mutex(key)
            .try_acquire()
            .await
            .expect("the engine answers")
            .is_none()
    }
}

mod keys {
    use super::*;

    struct Shop {
        pair: Pair,
        name: String,
    }

    impl Shop {
        fn region(&self) -> &str {
            "eu"
        }

        #[locked(key = "{{x}}:{self.name}:{self.region()}:{ids[0]}:100%", locks = self.pair.locks)]
        async fn close(&self, ids: &[u64]) -> Result<(), Error> {
            assert!(
                self.pair
                    .is_taken(key!["{x}", self.name, "eu", ids[0], "100%"])
                    .await
            );
            Ok(())
        }
    }

    #[tokio::test]
    async fn a_key_is_made_of_arguments_fields_and_calls_as_by_key() {
        let shop = Shop {
            pair: Pair::new(),
            name: "a:b".to_owned(),
        };
        shop.close(&[42]).await.unwrap();
        assert!(
            !shop.pair.is_taken("{x}:a%3Ab:eu:42:100%25").await,
            "released at the end"
        );
    }

    #[locked(key = "order:{id}", locks = pair.locks)]
    async fn changes_its_argument(pair: &Pair, mut id: u64) -> Result<u64, Error> {
        id += 1;
        assert!(pair.is_taken("order:1").await && !pair.is_taken("order:2").await);
        Ok(id)
    }

    #[tokio::test]
    async fn the_key_is_made_once_at_entry() {
        assert_eq!(changes_its_argument(&Pair::new(), 1).await.unwrap(), 2);
    }

    #[locked(keys = ["account:{from}", "account:{to}"], locks = pair.locks, wait = "try", guard = held)]
    async fn transfer(
        pair: &Pair,
        from: u64,
        to: u64,
        deeper: bool,
    ) -> Result<Vec<Option<FencingToken>>, Error> {
        assert!(pair.is_taken(key!["account", from]).await && pair.is_taken(key!["account", to]).await);
        if deeper {
            let inner = Box::pin(transfer(pair, to, from, false)).await?;
            assert_eq!(inner, tokens(&held), "a nested call re-enters");
            let more = Box::pin(transfer(pair, from, 99, false)).await?;
            assert!(
                tokens(&held).contains(&more[0]),
                "it re-enters one and takes the other"
            );
            assert!(!pair.is_taken("account:99").await);
        }
        Ok(tokens(&held))
    }

    fn tokens(held: &Held) -> Vec<Option<FencingToken>> {
        held.tokens().into_iter().map(|(_, token)| token).collect()
    }

    #[tokio::test]
    async fn several_keys_are_taken_all_or_nothing_and_nest() {
        let pair = Pair::new();
        assert_eq!(transfer(&pair, 7, 3, true).await.unwrap().len(), 2);
        assert_eq!(
            transfer(&pair, 5, 5, false).await.unwrap().len(),
            1,
            "the same key twice is one lock"
        );
        let three = pair.other.mutex("account:3").acquire().await.unwrap();
        assert_eq!(
            transfer(&pair, 7, 3, false).await.unwrap_err().kind(),
            ErrorKind::Busy
        );
        assert!(!pair.is_taken("account:7").await);
        three.release().await.unwrap();
    }

    #[locked(key = "{name}", locks = pair.locks)]
    async fn any_key(pair: &Pair, name: &str, ran: &AtomicBool) -> Result<(), Error> {
        ran.store(true, Ordering::SeqCst);
        Ok(())
    }

    #[tokio::test]
    async fn a_key_that_turns_out_to_be_bad_is_an_error_and_the_body_does_not_run() {
        let (pair, ran) = (Pair::new(), AtomicBool::new(false));
        for bad in ["", "a\nb", &"x".repeat(513)] {
            assert_eq!(
                any_key(&pair, bad, &ran).await.unwrap_err().kind(),
                ErrorKind::InvalidKey
            );
        }
        assert!(!ran.load(Ordering::SeqCst));
    }
}

mod busy {
    use super::*;

    #[locked(key = "k", locks = pair.locks, wait = "20ms")]
    async fn waits(pair: &Pair, ran: &AtomicU32) -> Result<(), Error> {
        ran.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }

    #[locked(key = "k", locks = pair.locks, wait = "try")]
    async fn tries(pair: &Pair, ran: &AtomicU32) -> Result<(), Error> {
        ran.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }

    #[locked(key = "k", locks = locks, wait = "try")]
    fn tries_blocking(locks: &Locks, ran: &AtomicU32) -> Result<(), Error> {
        ran.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }

    #[tokio::test]
    async fn f04_the_body_never_runs_without_the_lock() {
        let (pair, ran) = (Pair::new(), Arc::new(AtomicU32::new(0)));
        let held = pair.other.mutex("k").acquire().await.unwrap();
        assert_eq!(waits(&pair, &ran).await.unwrap_err().kind(), ErrorKind::Timeout);
        assert_eq!(tries(&pair, &ran).await.unwrap_err().kind(), ErrorKind::Busy);
        let (locks, seen) = (pair.locks.clone(), ran.clone());
        let blocking = tokio::task::spawn_blocking(move || tries_blocking(&locks, &seen))
            .await
            .unwrap();
        assert_eq!(blocking.unwrap_err().kind(), ErrorKind::Busy);
        assert_eq!(ran.load(Ordering::SeqCst), 0);

        held.release().await.unwrap();
        waits(&pair, &ran).await.unwrap();
        tries(&pair, &ran).await.unwrap();
        assert_eq!(ran.load(Ordering::SeqCst), 2);
    }

    #[locked(key = "skip:{name}", locks = pair.locks, wait = "try", on_busy = skip(Ok(measure(name).await)))]
    async fn skips(pair: Pair, name: String) -> Result<usize, Error> {
        drop((pair, name));
        Ok(0)
    }

    async fn measure(name: String) -> usize {
        name.len()
    }

    #[locked(key = "k", locks = pair.locks, wait = "try", on_busy = call(instead))]
    async fn calls(pair: &Pair) -> Result<String, Error> {
        Ok("ran".to_owned())
    }

    fn instead(busy: Error) -> Result<String, Error> {
        Ok(format!("{:?}", busy.kind()))
    }

    #[tokio::test]
    async fn skip_and_call_stand_in_for_a_busy_lock_with_all_arguments() {
        let pair = Pair::new();
        assert_eq!(skips(pair.clone(), "four".to_owned()).await.unwrap(), 0);
        assert_eq!(calls(&pair).await.unwrap(), "ran");
        let held = pair.other.mutex("skip:four").acquire().await.unwrap();
        let other = pair.other.mutex("k").acquire().await.unwrap();
        assert_eq!(skips(pair.clone(), "four".to_owned()).await.unwrap(), 4);
        assert_eq!(calls(&pair).await.unwrap(), "Busy");
        held.release().await.unwrap();
        other.release().await.unwrap();
    }

    #[locked(key = "{name}", locks = pair.locks, on_busy = skip(Ok(7)))]
    async fn skips_busy_only(pair: &Pair, name: &str) -> Result<u32, Error> {
        Ok(1)
    }

    #[tokio::test]
    async fn other_failures_are_not_skipped() {
        let refused = skips_busy_only(&Pair::new(), "").await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::InvalidKey);
    }
}

mod functions {
    use super::*;

    #[derive(Debug, PartialEq)]
    enum OrderError {
        Lock(ErrorKind),
        Unknown(u64),
    }

    impl From<Error> for OrderError {
        fn from(e: Error) -> Self {
            Self::Lock(e.kind())
        }
    }

    impl From<std::num::ParseIntError> for OrderError {
        fn from(_: std::num::ParseIntError) -> Self {
            Self::Unknown(0)
        }
    }

    #[locked(key = "k", locks = pair.locks)]
    async fn own_errors(pair: &Pair, id: &str) -> Result<u64, OrderError> {
        let id = id.parse()?;
        if id == 13 {
            return Err(OrderError::Unknown(id));
        }
        Ok(id)
    }

    #[locked(key = "k", locks = pair.locks, wait = "try")]
    async fn boxed_errors(pair: &Pair) -> Result<(), Box<dyn std::error::Error>> {
        Err("mine")?
    }

    #[tokio::test]
    async fn the_bodys_errors_come_through_and_release_the_lock() {
        let pair = Pair::new();
        assert_eq!(own_errors(&pair, "7").await, Ok(7));
        assert_eq!(own_errors(&pair, "13").await, Err(OrderError::Unknown(13)));
        assert_eq!(own_errors(&pair, "x").await, Err(OrderError::Unknown(0)));
        assert_eq!(boxed_errors(&pair).await.unwrap_err().to_string(), "mine");
        assert!(!pair.is_taken("k").await);
        let held = pair.other.mutex("k").acquire().await.unwrap();
        let busy = boxed_errors(&pair).await.unwrap_err();
        assert!(
            busy.downcast_ref::<Error>().is_some_and(Error::is_contention),
            "{busy}"
        );
        held.release().await.unwrap();
    }

    struct Counter {
        pair: Pair,
        n: u32,
    }

    impl Counter {
        #[locked(key = "n", locks = self.pair.locks)]
        async fn add(&mut self, by: u32) -> Result<&mut u32, Error> {
            assert!(self.pair.is_taken("n").await);
            self.n += by;
            Ok(&mut self.n)
        }

        #[locked(key = "n:{self.n}", locks = self.pair.locks)]
        async fn take(self) -> Result<u32, Error> {
            Ok(self.n)
        }

        #[locked(key = "n", locks = self.pair.locks)]
        async fn show<'a, T: Display + ?Sized>(
            &self,
            what: &'a T,
            more: impl Display,
        ) -> Result<(&'a T, String), Error> {
            Ok((what, format!("{what}{more}{}", self.n)))
        }
    }

    #[tokio::test]
    async fn methods_of_any_self_generics_and_borrowed_results_work() {
        let mut counter = Counter {
            pair: Pair::new(),
            n: 1,
        };
        *counter.add(2).await.unwrap() += 4;
        assert_eq!(counter.show("a", 'b').await.unwrap(), ("a", "ab7".to_owned()));
        assert_eq!(counter.take().await.unwrap(), 7);
    }

    #[locked(key = "{a}:{b}", locks = pair.locks)]
    async fn patterns(pair: &Pair, (a, b): (u32, u32), [c, ..]: [u32; 2]) -> Result<u32, Error> {
        assert!(pair.is_taken("1:2").await);
        Ok(a + b + c)
    }

    #[locked(key = "future", locks = pair.locks)]
    fn by_hand<'a>(pair: &'a Pair) -> Pin<Box<dyn Future<Output = Result<u32, Error>> + Send + 'a>> {
        let seven = 7;
        Box::pin(async move {
            assert!(pair.is_taken("future").await);
            Ok(seven)
        })
    }

    #[locked(key = "future", locks = pair.locks)]
    #[allow(clippy::manual_async_fn, reason = "the form that is tested")]
    fn opaque(pair: &Pair) -> impl Future<Output = Result<impl Display, Error>> {
        async move {
            assert!(pair.is_taken("future").await);
            Ok(7)
        }
    }

    #[tokio::test]
    async fn patterns_and_functions_that_return_futures_work() {
        let pair = Pair::new();
        assert_eq!(patterns(&pair, (1, 2), [3, 4]).await.unwrap(), 6);
        let future = by_hand(&pair);
        assert!(
            !pair.is_taken("future").await,
            "the lock is taken when the future runs, not when it is made"
        );
        assert_eq!(future.await.unwrap(), 7);
        assert_eq!(opaque(&pair).await.unwrap().to_string(), "7");
        assert!(!pair.is_taken("future").await);
    }

    #[async_trait::async_trait]
    trait Close {
        async fn close(&mut self, id: u64, name: String) -> Result<String, OrderError>;
    }

    #[async_trait::async_trait]
    impl Close for Counter {
        #[locked(key = "{self.n}:{id}:{name}", locks = self.pair.locks, guard = held)]
        async fn close(&mut self, id: u64, name: String) -> Result<String, OrderError> {
            assert!(held.is_held() && self.pair.is_taken(key!["1", id, name]).await);
            self.n += 1;
            if id == 0 {
                return Err(OrderError::Unknown(id));
            }
            Ok(name)
        }
    }

    #[tokio::test]
    async fn methods_of_an_async_trait_work() {
        let mut counter: Box<dyn Close> = Box::new(Counter {
            pair: Pair::new(),
            n: 1,
        });
        assert_eq!(counter.close(7, "x".to_owned()).await.unwrap(), "x");
    }

    #[instrument(skip_all, err)]
    #[locked(key = "{id}", locks = pair.locks, wait = "try")]
    async fn instrumented_above(pair: &Pair, id: u64) -> Result<bool, Error> {
        Ok(pair.is_taken(key![id]).await)
    }

    #[locked(key = "{id}", locks = pair.locks, wait = "try")]
    #[instrument(skip_all, err)]
    async fn instrumented_below(pair: &Pair, id: u64) -> Result<bool, Error> {
        Ok(pair.is_taken(key![id]).await)
    }

    #[tokio::test]
    async fn instrument_may_stand_above_or_below() {
        let pair = Pair::new();
        assert!(instrumented_above(&pair, 1).await.unwrap());
        assert!(instrumented_below(&pair, 1).await.unwrap());
        let held = pair.other.mutex("1").acquire().await.unwrap();
        assert!(instrumented_above(&pair, 1).await.is_err());
        assert!(instrumented_below(&pair, 1).await.is_err());
        held.release().await.unwrap();
    }

    #[tokio::test]
    async fn the_future_is_send_and_may_be_spawned() {
        let pair = Pair::new();
        let (a, b) = (pair.clone(), pair.clone());
        let one = tokio::spawn(async move { own_errors(&a, "1").await });
        let two = tokio::spawn(async move { own_errors(&b, "2").await });
        assert_eq!((one.await.unwrap(), two.await.unwrap()), (Ok(1), Ok(2)));
    }

    #[locked(key = "k", locks = locks, guard = held)]
    fn blocking(locks: &Locks, text: String, nested: bool) -> Result<String, Error> {
        held.ensure()?;
        if nested {
            return blocking(locks, text, false);
        }
        Ok(text + "!")
    }

    #[locked(keys = ["k", "l"], locks = locks)]
    fn opaque_blocking(locks: &Locks) -> Result<impl Display, Error> {
        blocking(locks, "b".to_owned(), false)
    }

    #[test]
    fn functions_that_are_not_async_work_without_a_runtime_and_nest() {
        assert_eq!(
            blocking(&Pair::new().locks, "a".to_owned(), true)
                .unwrap()
                .to_string(),
            "a!"
        );
    }

    #[tokio::test]
    async fn a_blocking_function_is_refused_inside_async_code() {
        let Err(refused) = blocking(&Pair::new().locks, "a".to_owned(), false) else {
            panic!("it ran")
        };
        assert_eq!(refused.kind(), ErrorKind::Unsupported);
    }
}

mod holding {
    use super::*;

    #[locked(key = "outer:{n}", locks = pair.locks, wait = "try", guard = held)]
    async fn recurse(pair: &Pair, n: u32, depth: u32) -> Result<Option<FencingToken>, Error> {
        // Gives a sibling its turn while the lock is held.
        tokio::task::yield_now().await;
        if depth > 0 {
            assert_eq!(Box::pin(recurse(pair, n, depth - 1)).await?, held.token());
            assert!(
                held.is_held() && pair.is_taken(key!["outer", n]).await,
                "the inner end does not release"
            );
        }
        Ok(held.token())
    }

    #[tokio::test]
    async fn nested_calls_reenter_with_the_same_token() {
        let pair = Pair::new();
        let first = recurse(&pair, 1, 3).await.unwrap();
        assert!(first.is_some() && recurse(&pair, 1, 0).await.unwrap() > first);
    }

    #[tokio::test]
    async fn siblings_exclude_each_other() {
        let pair = Pair::new();
        let outcomes = tokio::join!(recurse(&pair, 1, 1), recurse(&pair, 1, 1));
        assert!(outcomes.0.is_ok() != outcomes.1.is_ok(), "{outcomes:?}");
    }

    #[locked(key = "rw", kind = read, locks = pair.locks, wait = "try")]
    async fn reads(pair: &Pair) -> Result<(), Error> {
        let other = pair
            .other
            .rw("rw")
            .read()
            .try_acquire()
            .await?
            .expect("readers share");
        assert!(pair.other.rw("rw").write().try_acquire().await?.is_none());
        other.release().await?;
        Ok(())
    }

    #[locked(key = "rw", kind = write, order = fifo, fenced, reason = "a test", locks = pair.locks, guard = held)]
    async fn writes(pair: &Pair) -> Result<(), Error> {
        assert!(held.token().is_some() && pair.other.rw("rw").read().try_acquire().await?.is_none());
        reads_inside(pair).await
    }

    #[locked(key = "rw", kind = read, locks = pair.locks)]
    async fn reads_inside(pair: &Pair) -> Result<(), Error> {
        Ok(())
    }

    const PERMITS: u32 = 2;

    #[locked(key = "sem", kind = permits(PERMITS), locks = pair.locks, wait = "try")]
    async fn permitted(pair: &Pair) -> Result<(), Error> {
        let second = pair
            .other
            .semaphore("sem", 2)
            .try_acquire()
            .await?
            .expect("two permits");
        assert!(pair.other.semaphore("sem", 2).try_acquire().await?.is_none());
        second.release().await?;
        Ok(())
    }

    #[tokio::test]
    async fn all_kinds_of_locks_work() {
        let pair = Pair::new();
        reads(&pair).await.unwrap();
        writes(&pair).await.unwrap();
        permitted(&pair).await.unwrap();
    }

    const TTL: Duration = Duration::from_secs(5);

    #[locked(key = "slow", locks = pair.locks, ttl = TTL, max_hold = "50ms", expect = "10ms")]
    async fn hangs(pair: &Pair, dropped: OnDrop) -> Result<(), Error> {
        let _dropped = dropped;
        std::future::pending().await
    }

    struct OnDrop(Arc<AtomicBool>);

    impl Drop for OnDrop {
        fn drop(&mut self) {
            self.0.store(true, Ordering::SeqCst);
        }
    }

    #[tokio::test]
    async fn a_lost_lock_drops_the_body_and_is_an_error_that_names_it() {
        let (pair, dropped) = (Pair::new(), Arc::new(AtomicBool::new(false)));
        let lost = hangs(&pair, OnDrop(dropped.clone())).await.unwrap_err();
        assert_eq!(lost.kind(), ErrorKind::Lost);
        assert!(
            lost.to_string().contains("\"slow\"") && lost.to_string().contains("max_hold"),
            "{lost}"
        );
        assert!(dropped.load(Ordering::SeqCst));
    }

    #[locked(key = "slow", locks = locks, max_hold = "20ms", guard = held)]
    fn hangs_blocking(locks: &Locks) -> Result<u32, Error> {
        while held.ensure().is_ok() {
            std::thread::yield_now();
        }
        Ok(1)
    }

    #[test]
    fn a_blocking_function_is_told_of_the_loss_and_so_is_its_caller() {
        assert_eq!(
            hangs_blocking(&Pair::new().locks).unwrap_err().kind(),
            ErrorKind::Lost
        );
    }

    #[locked(key = "p", locks = pair.locks)]
    async fn panics(pair: Pair) -> Result<(), Error> {
        panic!("in the body")
    }

    #[tokio::test]
    async fn a_panic_in_the_body_releases() {
        let pair = Pair::new();
        assert!(tokio::spawn(panics(pair.clone())).await.unwrap_err().is_panic());
        pair.other
            .mutex("p")
            .wait(Duration::from_secs(5))
            .acquire()
            .await
            .unwrap()
            .release()
            .await
            .unwrap();
    }

    async fn needs_the_lock(id: u64) {
        assert_locked!("order:{id}");
    }

    #[locked(key = "order:{id}", locks = pair.locks)]
    async fn has_the_lock(pair: &Pair, id: u64, asked: u64) -> Result<(), Error> {
        needs_the_lock(asked).await;
        Ok(())
    }

    #[tokio::test]
    async fn assert_locked_knows_the_enclosing_locks() {
        let pair = Pair::new();
        has_the_lock(&pair, 1, 1).await.unwrap();
        assert!(
            tokio::spawn(async move { has_the_lock(&pair, 1, 2).await })
                .await
                .unwrap_err()
                .is_panic()
        );
        assert!(tokio::spawn(needs_the_lock(1)).await.unwrap_err().is_panic());
    }
}
