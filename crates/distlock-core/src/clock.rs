//! Time: one clock for the core and the engines, real or manual.
//!
//! The real clock counts suspended time (`CLOCK_BOOTTIME` on Linux), because a lease runs on while a laptop or a
//! virtual machine sleeps. It is corrected for time namespaces, so that all processes of a host read the same
//! value. Clients' wall clocks are never used.

mod boot;
mod manual;
mod moment;
mod timers;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use self::boot::{alarm, boot_now};
pub use self::manual::ManualClock;
pub use self::moment::Moment;
pub use self::timers::Timers;

/// The clock of a client. Cheap to clone; clones are the same clock.
#[derive(Clone)]
pub enum Clock {
    /// The host's clock. Its timers fire on the client's engine thread, whatever runtime the sleeper is on.
    Boot(Arc<Timers>),
    /// A clock that only moves by [`ManualClock::advance`].
    Manual(ManualClock),
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Boot(_) => f.write_str("Clock::Boot"),
            Self::Manual(c) => write!(f, "Clock::Manual({:?})", c.now()),
        }
    }
}

impl Clock {
    /// The host's clock, with its own timers. They fire only while [`Clock::drive`] runs somewhere.
    pub fn boot() -> Self {
        Self::Boot(Arc::default())
    }

    /// Now.
    pub fn now(&self) -> Moment {
        match self {
            Self::Boot(_) => boot_now(),
            Self::Manual(c) => c.now(),
        }
    }

    /// Resolves at `due`.
    ///
    /// # Cancel safety
    /// Safe.
    pub fn sleep_until(&self, due: Moment) -> Sleep {
        Sleep {
            clock: self.clone(),
            due,
            id: None,
        }
    }

    /// Resolves after `d`.
    pub fn sleep(&self, d: Duration) -> Sleep {
        self.sleep_until(self.now() + d)
    }

    /// Limits `future` to `d` of this clock: `None` if the time ran out first (the future is dropped then).
    pub async fn timeout<F: Future>(&self, d: Duration, future: F) -> Option<F::Output> {
        self.deadline(self.now() + d, future).await
    }

    /// Limits `future` to the time before `due`: `None` if that came first (the future is dropped then).
    pub async fn deadline<F: Future>(&self, due: Moment, future: F) -> Option<F::Output> {
        let mut future = std::pin::pin!(future);
        let mut sleep = self.sleep_until(due);
        std::future::poll_fn(|cx| {
            if let Poll::Ready(out) = future.as_mut().poll(cx) {
                return Poll::Ready(Some(out));
            }
            Pin::new(&mut sleep).poll(cx).map(|()| None)
        })
        .await
    }

    /// A random number in [0, 1), for jitter. A manual clock gives a sequence that its seed determines.
    pub fn unit(&self) -> f64 {
        match self {
            Self::Boot(_) => rand::random(),
            Self::Manual(c) => c.unit(),
        }
    }

    fn timers(&self) -> &Timers {
        match self {
            Self::Boot(timers) => timers,
            Self::Manual(c) => &c.0.timers,
        }
    }

    /// Fires the timers of the host's clock, for ever. The engine thread runs this; it must have tokio's I/O and
    /// time drivers. A manual clock needs no driving.
    pub async fn drive(&self) {
        let Self::Boot(timers) = self else {
            return std::future::pending().await;
        };
        let mut alarm = alarm::Alarm::new();
        loop {
            let kicked = timers.kick.notified();
            match timers.fire(boot_now()) {
                None => kicked.await,
                Some(next) => {
                    tokio::select! { () = alarm.wait(next) => {}, () = kicked => {} }
                    timers.alarm_passed();
                }
            }
        }
    }
}

/// The future of [`Clock::sleep_until`].
#[derive(Debug)]
#[must_use = "a sleep does nothing unless it is awaited"]
pub struct Sleep {
    clock: Clock,
    due: Moment,
    id: Option<u64>,
}

impl Sleep {
    /// The moment at which it resolves.
    pub fn due(&self) -> Moment {
        self.due
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.clock.now() >= self.due {
            return Poll::Ready(());
        }
        self.id = Some(self.clock.timers().set(self.due, self.id, cx.waker()));
        // A manual clock may be advanced by another thread between the look above and the registration.
        match &self.clock {
            Clock::Manual(clock) if clock.now() >= self.due => Poll::Ready(()),
            _ => Poll::Pending,
        }
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(id) = self.id {
            self.clock.timers().remove(self.due, id);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[tokio::test]
    async fn a_manual_clock_fires_in_order_and_waits_for_chains() {
        let time = ManualClock::new();
        let clock = Clock::Manual(time.clone());
        let seen = Arc::new(Mutex::new(Vec::new()));
        for (name, step) in [("b", 20), ("a", 10)] {
            let (clock, seen) = (clock.clone(), seen.clone());
            tokio::spawn(async move {
                for i in 1..=2 {
                    clock.sleep(Duration::from_millis(step)).await;
                    seen.lock()
                        .unwrap()
                        .push(format!("{name}{i}@{}", clock.now().as_nanos() / 1_000_000));
                }
            });
        }
        time.advance(Duration::from_millis(100)).await;
        assert_eq!(*seen.lock().unwrap(), ["a1@10", "b1@20", "a2@20", "b2@40"]);
        assert_eq!(time.next_due(), None);
    }

    #[tokio::test]
    async fn a_dropped_sleep_leaves_no_timer() {
        let time = ManualClock::new();
        let clock = Clock::Manual(time.clone());
        assert!(clock.timeout(Duration::from_secs(5), async {}).await.is_some());
        {
            let mut sleep = clock.sleep(Duration::from_secs(1));
            assert!(futures_util::poll!(&mut sleep).is_pending());
            assert!(time.next_due().is_some());
        }
        assert_eq!(time.next_due(), None);
    }

    #[tokio::test]
    async fn the_boot_clock_wakes_sleepers_of_any_order() {
        let clock = Clock::boot();
        let driver = {
            let clock = clock.clone();
            tokio::spawn(async move { clock.drive().await })
        };
        let start = clock.now();
        let long = clock.sleep(Duration::from_millis(60));
        let short = clock.sleep(Duration::from_millis(10));
        tokio::join!(long, short);
        assert!(clock.now().since(start) >= Duration::from_millis(60));
        driver.abort();
    }
}
