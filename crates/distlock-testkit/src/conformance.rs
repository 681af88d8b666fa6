//! The conformance suite: what every engine must do, as cases over the [port](distlock_core::driver).
//!
//! An engine proves itself by describing how to reach it, a [`Deployment`], and one line:
//!
//! ```
//! use std::time::Duration;
//! use distlock_core::memory::Memory;
//! use distlock_testkit::conformance::{Client, Connected, Deployment};
//!
//! struct InMemory(Memory);
//!
//! #[async_trait::async_trait]
//! impl Deployment for InMemory {
//!     async fn client(&self) -> Connected {
//!         Client::start(async |engine| Ok(self.0.driver(engine))).await
//!     }
//!     fn ttl(&self) -> Duration {
//!         Duration::from_millis(200)
//!     }
//! }
//!
//! distlock_testkit::conformance!(InMemory(Memory::new())); // one `#[test]` for each case
//! # fn main() {}
//! ```
//!
//! The cases are chosen by what the engine [promises](distlock_core::driver::Promises); the others are reported as skipped, with the reason.
//! [`run`] proves a deployment at run time and gives a [`Report`]: each case, and the eight criteria by which a
//! production lock is judged, as a table.

use std::error::Error as StdError;
use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use distlock_core::Namespace;
use distlock_core::clock::Clock;
use distlock_core::driver::Driver;
use distlock_core::engine::{Engine, EngineThread};

mod attempts;
mod breaking;
mod case;
mod crash;
mod exclusion;
mod fairness;
mod inspection;
mod peer;
mod refusals;
mod release;
mod renewal;
mod report;
mod tokens;
mod trial;
mod waiting;

pub use self::case::{Case, Criterion, cases};
pub use self::report::{Outcome, Report, Verdict};
pub use self::trial::Failure;

use self::trial::Trial;

/// An error of a deployment.
pub type BoxError = Box<dyn StdError + Send + Sync>;

/// What [`Deployment::client`] returns.
pub type Connected = Result<Client, BoxError>;

/// No case may take longer than this, whatever it waits for.
const CASE_LIMIT: Duration = Duration::from_secs(120);

/// How to reach the engine that is to be proven, and how fast it is.
#[async_trait]
pub trait Deployment: Send + Sync + 'static {
    /// A new client with its own identity and its own connections, as another process would have.
    ///
    /// # Errors
    /// Whatever keeps the client from connecting; it fails the case.
    async fn client(&self) -> Connected;

    /// A short lease for the cases that wait until it has run out.
    fn ttl(&self) -> Duration {
        Duration::from_secs(1)
    }

    /// How long after its end a lease may still be in force (ticks of a server's clock, a busy machine).
    fn slack(&self) -> Duration {
        Duration::from_secs(3)
    }

    /// How long a step may take that should happen at once.
    fn patience(&self) -> Duration {
        Duration::from_secs(15)
    }
}

#[async_trait]
impl<D: Deployment + ?Sized> Deployment for Arc<D> {
    async fn client(&self) -> Connected {
        (**self).client().await
    }

    fn ttl(&self) -> Duration {
        (**self).ttl()
    }

    fn slack(&self) -> Duration {
        (**self).slack()
    }

    fn patience(&self) -> Duration {
        (**self).patience()
    }
}

/// One client of a deployment: a driver, and the engine thread that it lives on.
#[derive(Debug)]
pub struct Client {
    pub(crate) driver: Arc<dyn Driver>,
    pub(crate) engine: Engine,
    pub(crate) thread: EngineThread,
}

impl Client {
    /// A client from its parts. The suite measures in real time: the engine's clock is the host's.
    pub fn new(driver: Arc<dyn Driver>, engine: Engine, thread: EngineThread) -> Self {
        Self {
            driver,
            engine,
            thread,
        }
    }

    /// A client on a new engine thread, with the default namespace.
    ///
    /// # Errors
    /// What `connect` returns, or the failure to start the thread.
    pub async fn start<E>(connect: impl AsyncFnOnce(Engine) -> Result<Arc<dyn Driver>, E>) -> Result<Self, E>
    where
        E: From<io::Error>,
    {
        let (engine, thread) =
            Engine::start(Clock::boot(), Namespace::default(), Some("conformance".into()))?;
        let driver = connect(engine.clone()).await?;
        Ok(Self::new(driver, engine, thread))
    }
}

/// Proves one case, by its name.
///
/// # Panics
/// When the case fails, with the reason; or when there is no such case.
pub async fn check(name: &str, deployment: impl Deployment) {
    let case = cases().find(|case| case.name == name);
    let case = case.unwrap_or_else(|| panic!("there is no conformance case {name:?}"));
    match prove(&case, Arc::new(deployment)).await {
        Outcome::Proven => {}
        Outcome::Skipped(why) => {
            #[expect(clippy::print_stdout, reason = "for the reader of the test's output")]
            {
                println!("skipped: {why}");
            }
        }
        Outcome::Failed(why) => panic!("{}: {why}", case.about),
    }
}

/// Proves all cases, one after the other.
pub async fn run(deployment: impl Deployment) -> Report {
    let deployment: Arc<dyn Deployment> = Arc::new(deployment);
    let mut report = Report::default();
    for case in cases() {
        let start = Instant::now();
        let outcome = prove(&case, deployment.clone()).await;
        report.add(case, outcome, start.elapsed());
    }
    report
}

/// Proves one case, in a task of its own, so that a panic of the engine is a failure of the case.
pub async fn prove(case: &Case, deployment: Arc<dyn Deployment>) -> Outcome {
    let (needs, prove) = (case.needs, case.prove);
    let mut task = tokio::spawn(async move {
        let trial = match Trial::start(deployment).await {
            Ok(trial) => trial,
            Err(why) => return Outcome::Failed(why),
        };
        if let Some(missing) = trial.lacks(needs) {
            trial.end().await;
            return Outcome::Skipped(missing);
        }
        let proof = prove(&trial).await;
        trial.end().await;
        match proof {
            Ok(()) => Outcome::Proven,
            Err(why) => Outcome::Failed(why),
        }
    });
    match tokio::time::timeout(CASE_LIMIT, &mut task).await {
        Ok(Ok(outcome)) => outcome,
        Ok(Err(e)) => Outcome::Failed(Failure::new(format!("the case ended early: {e}"))),
        Err(_) => {
            task.abort();
            Outcome::Failed(Failure::new(format!("not finished after {CASE_LIMIT:?}")))
        }
    }
}

/// Runs a future to its end on a new runtime: the body of the tests that [`conformance!`](crate::conformance!) makes.
#[doc(hidden)]
pub fn block_on(future: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime starts")
        .block_on(future);
}
