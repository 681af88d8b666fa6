//! How long to wait before asking again: back-off, jitter, floors. Pure.

use std::time::Duration;

/// The margin that is taken off every lease: 1 % of it, at least 50 ms, but never more than a tenth.
///
/// It covers clock rates that differ and the time between the guard's look at its clock and the act that follows.
pub(crate) fn margin(ttl: Duration) -> Duration {
    (ttl / 100).max(Duration::from_millis(50)).min(ttl / 10)
}

/// When a hold is renewed, counted from the last renewal.
pub(crate) fn renew_after(ttl: Duration) -> Duration {
    ttl / 3
}

/// The grid on which renewals fall due, so that batches form.
pub(crate) fn grid(ttl: Duration) -> Duration {
    (ttl / 30).max(Duration::from_millis(1))
}

/// Between `d/2` and `d`, by a random `unit` in [0, 1): desynchronises clients that failed together.
fn jittered(d: Duration, unit: f64) -> Duration {
    d.mul_f64(0.5 + unit.clamp(0.0, 1.0) / 2.0)
}

/// Exponential back-off with jitter, reset by any success.
#[derive(Debug, Clone)]
pub(crate) struct Backoff {
    next: Duration,
    first: Duration,
    most: Duration,
}

impl Backoff {
    /// For an engine that does not answer.
    pub(crate) fn new(first: Duration, most: Duration) -> Self {
        Self {
            next: first,
            first,
            most: most.max(first),
        }
    }

    /// For a waiting caller: 10 ms to 1 s.
    pub(crate) fn waiting() -> Self {
        Self::new(Duration::from_millis(10), Duration::from_secs(1))
    }

    /// For the renewals and releases of one lease: many tries within it.
    pub(crate) fn within(ttl: Duration) -> Self {
        let first = (ttl / 100).clamp(Duration::from_millis(2), Duration::from_millis(50));
        Self::new(
            first,
            (ttl / 12).clamp(Duration::from_millis(5), Duration::from_secs(1)),
        )
    }

    /// The next pause; `unit` is random in [0, 1).
    pub(crate) fn pause(&mut self, unit: f64) -> Duration {
        let d = self.next;
        self.next = (d * 2).min(self.most);
        jittered(d, unit)
    }

    pub(crate) fn reset(&mut self) {
        self.next = self.first;
    }
}

/// Keeps a bell that rings all the time from making the waiting loop spin.
#[derive(Debug, Default)]
pub(crate) struct Floor {
    in_a_row: u32,
}

impl Floor {
    const FREE: u32 = 16;

    /// The pause before the next look, after a wait that lasted `waited`.
    pub(crate) fn pause(&mut self, waited: Duration) -> Duration {
        if waited >= Duration::from_millis(1) {
            self.in_a_row = 0;
            return Duration::ZERO;
        }
        self.in_a_row = self.in_a_row.saturating_add(1);
        match self.in_a_row.checked_sub(Self::FREE) {
            None => Duration::ZERO,
            Some(n) => Duration::from_micros(500 << n.min(6)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_margin_is_one_percent_within_its_bounds() {
        assert_eq!(margin(Duration::from_secs(30)), Duration::from_millis(300));
        assert_eq!(margin(Duration::from_secs(1)), Duration::from_millis(50));
        assert_eq!(margin(Duration::from_millis(100)), Duration::from_millis(10));
    }

    #[test]
    fn back_off_grows_to_its_ceiling_and_resets() {
        let mut b = Backoff::new(Duration::from_millis(10), Duration::from_millis(50));
        let pauses: Vec<_> = (0..5).map(|_| b.pause(0.5)).collect();
        assert!(pauses[0] <= Duration::from_millis(10) && pauses[0] >= Duration::from_millis(5));
        assert!(pauses[4] <= Duration::from_millis(50) && pauses[4] >= Duration::from_millis(25));
        b.reset();
        assert!(b.pause(0.5) <= Duration::from_millis(10));
    }

    #[test]
    fn the_floor_only_brakes_a_noisy_bell() {
        let mut f = Floor::default();
        for _ in 0..Floor::FREE - 1 {
            assert_eq!(f.pause(Duration::ZERO), Duration::ZERO);
        }
        assert!(f.pause(Duration::ZERO) > Duration::ZERO);
        assert_eq!(f.pause(Duration::from_millis(5)), Duration::ZERO);
        assert_eq!(f.pause(Duration::ZERO), Duration::ZERO);
    }
}
