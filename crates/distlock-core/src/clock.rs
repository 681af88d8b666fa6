//! Time: one clock for the core and the engines, real or manual.
//!
//! The real clock counts suspended time (`CLOCK_BOOTTIME` on Linux), because a lease runs on while a laptop or a
//! virtual machine sleeps. It is corrected for time namespaces, so that all processes of a host read the same
//! value. Clients' wall clocks are never used.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::ops::Add;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::sync::Notify;

/// A point on a [`Clock`]: nanoseconds since the host's boot, or since a manual clock's start.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(u64);

impl Moment {
    /// The start of the clock.
    pub const START: Moment = Moment(0);
    /// Later than every other moment.
    pub const FAR: Moment = Moment(u64::MAX);

    /// The moment that many nanoseconds after the clock's start.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the clock's start.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// The time from `earlier` to `self`; zero if `earlier` is later.
    pub fn since(self, earlier: Moment) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// `self` moved back, not before the clock's start.
    pub fn before(self, by: Duration) -> Moment {
        Moment(self.0.saturating_sub(nanos(by)))
    }
}

impl Add<Duration> for Moment {
    type Output = Moment;
    /// Saturates at [`Moment::FAR`].
    fn add(self, by: Duration) -> Moment {
        Moment(self.0.saturating_add(nanos(by)))
    }
}

impl fmt::Debug for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::FAR {
            f.write_str("far")
        } else {
            write!(f, "{:?}", Duration::from_nanos(self.0))
        }
    }
}

fn nanos(d: Duration) -> u64 {
    u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)
}

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
        if self.clock.now() >= self.due {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(id) = self.id {
            self.clock.timers().lock().by_due.remove(&(self.due, id));
        }
    }
}

/// The pending timers of one clock.
#[derive(Default)]
pub struct Timers {
    pending: Mutex<Pending>,
    /// Wakes the driver when a timer is due before its alarm.
    kick: Notify,
    /// Counts what happens, so that a manual clock can tell when all is idle.
    activity: AtomicU64,
}

#[derive(Default)]
struct Pending {
    by_due: BTreeMap<(Moment, u64), Waker>,
    next: u64,
    /// The driver's present alarm. It is never put off before it has passed: moving it for each short sleep that
    /// comes and goes would wake the driver all the time.
    alarm: Option<Moment>,
}

impl fmt::Debug for Timers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Timers")
            .field("pending", &self.lock().by_due.len())
            .finish_non_exhaustive()
    }
}

impl Timers {
    fn lock(&self) -> MutexGuard<'_, Pending> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers (or refreshes) a timer.
    fn set(&self, due: Moment, id: Option<u64>, waker: &Waker) -> u64 {
        self.activity.fetch_add(1, Ordering::Relaxed);
        let mut p = self.lock();
        let id = id.unwrap_or_else(|| {
            p.next += 1;
            p.next
        });
        p.by_due
            .entry((due, id))
            .and_modify(|w| w.clone_from(waker))
            .or_insert_with(|| waker.clone());
        let sooner = p.alarm.is_none_or(|alarm| due < alarm);
        if sooner {
            p.alarm = Some(due);
        }
        drop(p);
        if sooner {
            self.kick.notify_one();
        }
        id
    }

    fn alarm_passed(&self) {
        self.lock().alarm = None;
    }

    /// Wakes all timers that are due by `now`; returns when the next one is.
    fn fire(&self, now: Moment) -> Option<Moment> {
        let mut p = self.lock();
        let later = p.by_due.split_off(&(Moment(now.0.saturating_add(1)), 0));
        let due = std::mem::replace(&mut p.by_due, later);
        let next = p.by_due.keys().next().map(|(due, _)| *due);
        p.alarm = next;
        drop(p);
        for waker in due.into_values() {
            waker.wake();
        }
        next
    }

    fn next_due(&self) -> Option<Moment> {
        self.lock().by_due.keys().next().map(|(due, _)| *due)
    }
}

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
pub struct ManualClock(Arc<Manual>);

#[derive(Default, Debug)]
struct Manual {
    now: AtomicU64,
    timers: Timers,
}

impl ManualClock {
    /// A clock at its start.
    pub fn new() -> Self {
        Self::default()
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

#[cfg(any(target_os = "linux", target_os = "android"))]
fn boot_now() -> Moment {
    use std::sync::OnceLock;
    /// What a time namespace adds to CLOCK_BOOTTIME; without the correction a process in one would judge another
    /// process's deadlines wrongly.
    static OFFSET: OnceLock<i64> = OnceLock::new();
    let t = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let raw = (t.tv_sec as u64)
        .wrapping_mul(1_000_000_000)
        .wrapping_add(t.tv_nsec as u64);
    Moment(raw.saturating_add_signed(-*OFFSET.get_or_init(namespace_offset)))
}

/// The `boottime` line of `/proc/self/timens_offsets`, in nanoseconds; see time_namespaces(7).
#[cfg(any(target_os = "linux", target_os = "android"))]
fn namespace_offset() -> i64 {
    let Ok(text) = std::fs::read_to_string("/proc/self/timens_offsets") else {
        return 0;
    };
    text.lines()
        .filter_map(|line| {
            let mut words = line.split_whitespace();
            let clock = words.next()?;
            let (secs, nanos) = (
                words.next()?.parse::<i64>().ok()?,
                words.next()?.parse::<i64>().ok()?,
            );
            matches!(clock, "boottime" | "7")
                .then(|| secs.saturating_mul(1_000_000_000).saturating_add(nanos))
        })
        .next()
        .unwrap_or(0)
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn boot_now() -> Moment {
    use std::sync::OnceLock;
    use std::time::Instant;
    static START: OnceLock<Instant> = OnceLock::new();
    Moment(nanos(START.get_or_init(Instant::now).elapsed()).saturating_add(1))
}

/// Waiting for a moment of the host's clock, suspended time included.
#[cfg(any(target_os = "linux", target_os = "android"))]
mod alarm {
    use rustix::fd::OwnedFd;
    use rustix::time::{
        Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
        timerfd_settime,
    };
    use tokio::io::unix::AsyncFd;

    use super::{Moment, boot_now};

    /// A `timerfd` on CLOCK_BOOTTIME where it can be had; otherwise tokio's timer in slices of at most a second,
    /// since that one does not count suspended time.
    pub(super) struct Alarm(Option<AsyncFd<OwnedFd>>);

    impl Alarm {
        pub(super) fn new() -> Self {
            let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
            let Ok(fd) = timerfd_create(TimerfdClockId::Boottime, flags) else {
                return Self(None);
            };
            // SAFETY: an `OwnedFd` is open, gives the same descriptor each time, and is closed only by its drop,
            // which the `AsyncFd` owns.
            #[allow(unsafe_code)]
            let fd = unsafe { AsyncFd::register(fd) };
            Self(fd.ok())
        }

        pub(super) async fn wait(&mut self, due: Moment) {
            let Some(fd) = &self.0 else {
                return super::slice(due).await;
            };
            let left = due.since(boot_now());
            // Zero would disarm the timer.
            let left = left.max(std::time::Duration::from_nanos(1));
            let Ok(value) = Timespec::try_from(left) else {
                return super::slice(due).await;
            };
            let zero = Timespec {
                tv_sec: 0,
                tv_nsec: 0,
            };
            let spec = Itimerspec {
                it_interval: zero,
                it_value: value,
            };
            if timerfd_settime(fd, TimerfdTimerFlags::empty(), &spec).is_err() {
                return super::slice(due).await;
            }
            if let Ok(mut ready) = fd.readable().await {
                let mut count = [0u8; 8];
                let _ = rustix::io::read(fd, &mut count);
                ready.clear_ready();
            }
        }
    }
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
mod alarm {
    pub(super) struct Alarm;

    impl Alarm {
        pub(super) fn new() -> Self {
            Self
        }

        pub(super) async fn wait(&mut self, due: super::Moment) {
            super::slice(due).await;
        }
    }
}

/// One slice of waiting for `due`: the caller looks at the clock again afterwards.
async fn slice(due: Moment) {
    tokio::time::sleep(due.since(boot_now()).min(Duration::from_secs(1))).await;
}

#[cfg(test)]
mod tests {
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
