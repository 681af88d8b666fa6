//! The host's clock, suspended time included.

use std::time::Duration;

use super::Moment;
#[cfg(not(any(target_os = "linux", target_os = "android")))]
use super::moment::nanos;

#[cfg(any(target_os = "linux", target_os = "android"))]
pub(super) fn boot_now() -> Moment {
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
pub(super) fn boot_now() -> Moment {
    use std::sync::OnceLock;
    use std::time::Instant;
    static START: OnceLock<Instant> = OnceLock::new();
    Moment(nanos(START.get_or_init(Instant::now).elapsed()).saturating_add(1))
}

/// Waiting for a moment of the host's clock, suspended time included.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub(super) mod alarm {
    use rustix::fd::OwnedFd;
    use rustix::time::{
        Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
        timerfd_settime,
    };
    use tokio::io::unix::AsyncFd;

    use super::{Moment, boot_now};

    /// A `timerfd` on CLOCK_BOOTTIME where it can be had; otherwise tokio's timer in slices of at most a second,
    /// since that one does not count suspended time.
    pub(in crate::clock) struct Alarm(Option<AsyncFd<OwnedFd>>);

    impl Alarm {
        pub(in crate::clock) fn new() -> Self {
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

        pub(in crate::clock) async fn wait(&mut self, due: Moment) {
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
pub(super) mod alarm {
    pub(in crate::clock) struct Alarm;

    impl Alarm {
        pub(in crate::clock) fn new() -> Self {
            Self
        }

        pub(in crate::clock) async fn wait(&mut self, due: super::Moment) {
            super::slice(due).await;
        }
    }
}

/// One slice of waiting for `due`: the caller looks at the clock again afterwards.
async fn slice(due: Moment) {
    tokio::time::sleep(due.since(boot_now()).min(Duration::from_secs(1))).await;
}
