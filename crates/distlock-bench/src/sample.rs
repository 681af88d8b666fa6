//! Timing: interleaved rounds and their quantiles.

use std::time::{Duration, Instant};

/// Latencies of one kind of operation.
#[derive(Debug, Default, Clone)]
pub(crate) struct Sample(Vec<u64>);

impl Sample {
    pub(crate) fn push(&mut self, d: Duration) {
        self.0.push(u64::try_from(d.as_nanos()).unwrap_or(u64::MAX));
    }

    pub(crate) fn extend(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    /// Without what came first.
    pub(crate) fn second_half(mut self) -> Self {
        Self(self.0.split_off(self.0.len() / 2))
    }

    pub(crate) fn quantile(&self, q: f64) -> Duration {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        let at = ((sorted.len() as f64 - 1.0) * q).round() as usize;
        Duration::from_nanos(sorted.get(at).copied().unwrap_or(0))
    }

    pub(crate) fn p50(&self) -> Duration {
        self.quantile(0.5)
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}

/// Times `n` single calls of a fast operation: each is timed in small batches, so that the clock's own cost does
/// not count.
pub(crate) fn time(sample: &mut Sample, n: usize, batch: u32, mut f: impl FnMut()) {
    for _ in 0..n {
        let start = Instant::now();
        for _ in 0..batch {
            f();
        }
        sample.push(start.elapsed() / batch);
    }
}

/// The ratio of two durations.
pub(crate) fn ratio(ours: Duration, floor: Duration) -> f64 {
    ours.as_nanos() as f64 / (floor.as_nanos() as f64).max(1.0)
}

/// CPU time that this process has used.
pub(crate) fn cpu() -> Duration {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(t.tv_sec.unsigned_abs(), u32::try_from(t.tv_nsec).unwrap_or(0))
}

/// Resident memory of this process, in bytes.
pub(crate) fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = text
        .split_whitespace()
        .nth(1)
        .and_then(|n| n.parse::<u64>().ok())
        .unwrap_or(0);
    pages * rustix::param::page_size() as u64
}
