//! A clock that moves only when told to.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::{Moment, Timers};

/// A clock that stands still until it is advanced: for tests and simulations.
///
/// With it no thread is started; the keeper and the clean-up are tasks of the (current-thread) runtime that built
/// the client.
///
/// ```
/// # use std::time::Duration;
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// use distlock_core::clock::{Clock, ManualClock};
/// let time = ManualClock::new();
/// let clock = Clock::Manual(time.clone());
/// let sleeper = tokio::spawn(clock.sleep(Duration::from_secs(3600)));
/// tokio::task::yield_now().await;
/// time.advance(Duration::from_secs(3600)).await;
/// sleeper.await.unwrap();
/// # }
/// ```
#[derive(Clone, Default, Debug)]
pub struct ManualClock(pub(super) Arc<Manual>);

#[derive(Default, Debug)]
pub(super) struct Manual {
    now: AtomicU64,
    pub(super) timers: Timers,
    random: AtomicU64,
}

impl ManualClock {
    /// A clock at its start.
    pub fn new() -> Self {
        Self::default()
    }

    /// A clock at its start whose random numbers begin elsewhere: a simulation replays exactly by its seed.
    pub fn seeded(seed: u64) -> Self {
        let clock = Self::default();
        clock.0.random.store(seed, Ordering::Relaxed);
        clock
    }

    /// The next number of the SplitMix64 sequence (Steele, Lea, Flood, 2014), in [0, 1).
    pub(super) fn unit(&self) -> f64 {
        const STEP: u64 = 0x9E37_79B9_7F4A_7C15;
        let mut z = self
            .0
            .random
            .fetch_add(STEP, Ordering::Relaxed)
            .wrapping_add(STEP);
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Now.
    pub fn now(&self) -> Moment {
        self.0.timers.activity.fetch_add(1, Ordering::Relaxed);
        Moment(self.0.now.load(Ordering::Acquire))
    }

    /// Moves the clock, firing each timer on its way at its own moment, in order, and returns when every task that
    /// this woke is idle again. Call it on the current-thread runtime that the clock's users run on.
    pub async fn advance(&self, by: Duration) {
        let target = Moment(self.0.now.load(Ordering::Acquire)) + by;
        self.settle().await;
        while let Some(due) = self.0.timers.next_due().filter(|due| *due <= target) {
            self.0.now.fetch_max(due.0, Ordering::AcqRel);
            self.0.timers.fire(due);
            self.settle().await;
        }
        self.0.now.fetch_max(target.0, Ordering::AcqRel);
        self.settle().await;
    }

    /// Moves the clock without letting anybody run in between: what a process sees that was stopped for `by`.
    pub async fn jump(&self, by: Duration) {
        let target = Moment(self.0.now.load(Ordering::Acquire)) + by;
        self.0.now.fetch_max(target.0, Ordering::AcqRel);
        self.0.timers.fire(target);
        self.settle().await;
    }

    /// When the next timer is due.
    pub fn next_due(&self) -> Option<Moment> {
        self.0.timers.next_due()
    }

    /// Lets all other tasks run until nothing touches the clock any more.
    pub async fn settle(&self) {
        const QUIET: u32 = 16;
        let mut quiet = 0;
        let mut seen = self.0.timers.activity.load(Ordering::Relaxed);
        while quiet < QUIET {
            tokio::task::yield_now().await;
            let now = self.0.timers.activity.load(Ordering::Relaxed);
            quiet = if now == seen { quiet + 1 } else { 0 };
            seen = now;
        }
    }
}
