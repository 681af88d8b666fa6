//! What happens when somebody else has the lock.

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
