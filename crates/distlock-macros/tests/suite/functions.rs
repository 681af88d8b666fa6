//! What may carry the attribute.

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
