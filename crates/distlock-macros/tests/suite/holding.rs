//! What holds while the body runs.

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
