//! What a run has shown.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use tempfile::TempDir;

use crate::check::{self, Amount, Bounds, Minimum, Takeover, Violation, amount};
use crate::history::{History, What};

/// The outcome of a run, as a table. (I8, first come first served, is not in it: a worker cannot tell when it has
/// come into line. The conformance suite proves it.)
#[derive(Debug)]
pub struct Report {
    dir: Option<TempDir>,
    time: Duration,
    done: Amount,
    checks: Vec<(&'static str, Vec<Violation>)>,
    takeovers: Vec<Takeover>,
    written: (usize, usize),
    signals: (usize, usize),
    overlaps: usize,
    lost_updates: usize,
}

impl Report {
    pub(super) fn new(
        dir: TempDir,
        history: History,
        bounds: Bounds,
        minimum: Minimum,
        time: Duration,
    ) -> Self {
        let done = amount(&history, &bounds);
        let checks = vec![
            ("I1 exclusion among valid guards", check::exclusion(&history)),
            ("I2 tokens unique and growing", check::token(&history)),
            ("I3 no stale write at the fenced store", check::fence(&history)),
            ("I4 release frees only one's own", check::release(&history)),
            ("I5 no resurrection", check::renew(&history)),
            ("I6 takeover within its bound", check::recovery(&history, &bounds)),
            ("I7 no lost wake-up", check::wakeup(&history, &bounds)),
            ("I11 loss told in time", check::loss(&history, &bounds)),
            ("I12 nothing left behind", check::leak(&history)),
            ("enough was done", minimum.missed(&done)),
        ];
        let writes = history.events().iter().filter_map(|e| match e.what {
            What::Wrote {
                fenced: true,
                accepted,
                ..
            } => Some(accepted),
            _ => None,
        });
        let (accepted, refused): (Vec<bool>, Vec<bool>) = writes.partition(|accepted| *accepted);
        let count = |wanted: fn(&What) -> bool| history.events().iter().filter(|e| wanted(&e.what)).count();
        let killed = count(|what| matches!(what, What::Killed { .. }));
        let stopped = count(|what| matches!(what, What::Stopped { .. }));
        let failed = checks.iter().any(|(_, found)| !found.is_empty());
        let mut this = Self {
            dir: Some(dir),
            time,
            done,
            signals: (killed, stopped),
            overlaps: checks[0].1.len(),
            checks,
            takeovers: check::takeovers(&history, &bounds),
            written: (accepted.len(), refused.len()),
            lost_updates: check::lost_updates(&history),
        };
        if !failed {
            this.dir = None;
        }
        this
    }

    /// Prints the table; for tests.
    ///
    /// # Panics
    /// When anything was found wrong, saying where the histories are kept.
    #[allow(clippy::print_stdout)]
    pub fn prove(mut self) {
        println!("{self}");
        if let Some(dir) = self.keep() {
            let (_, failed) = self.counts();
            panic!("{failed} failed; the histories are kept in {}", dir.display());
        }
    }

    /// How many checks passed, and how many failed.
    pub fn counts(&self) -> (usize, usize) {
        let failed = self.checks.iter().filter(|(_, found)| !found.is_empty()).count();
        (self.checks.len() - failed, failed)
    }

    /// Everything that was found wrong.
    pub fn violations(&self) -> impl Iterator<Item = &Violation> {
        self.checks.iter().flat_map(|(_, found)| found)
    }

    /// How much the run did.
    pub fn done(&self) -> Amount {
        self.done
    }

    /// How many processes were sent SIGKILL, and SIGSTOP.
    pub fn signals(&self) -> (usize, usize) {
        self.signals
    }

    /// How often two holders that exclude each other believed to hold.
    pub fn overlaps(&self) -> usize {
        self.overlaps
    }

    /// How many accepted writes the unfenced store lost.
    pub fn lost_updates(&self) -> usize {
        self.lost_updates
    }

    /// Keeps the histories, and says where.
    pub fn keep(&mut self) -> Option<std::path::PathBuf> {
        self.dir.take().map(TempDir::keep)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let done = self.done;
        writeln!(f, "{:<44}{:.1} s", "time", self.time.as_secs_f64())?;
        writeln!(
            f,
            "{:<44}{} ({} contended)",
            "grants", done.grants, done.contended
        )?;
        writeln!(f, "{:<44}{}", "holders killed (kill -9)", done.kills)?;
        writeln!(f, "{:<44}{}", "holders stopped past their lease", done.stops)?;
        writeln!(
            f,
            "{:<44}{} / {}",
            "fenced writes accepted / refused", self.written.0, self.written.1
        )?;
        writeln!(f)?;
        for (killed, title) in [
            (true, "takeover after kill -9"),
            (false, "takeover after the end of a lease"),
        ] {
            let took: Vec<u64> = self
                .takeovers
                .iter()
                .filter(|t| t.killed == killed)
                .map(Takeover::took)
                .collect();
            histogram(f, title, took)?;
        }
        for (name, found) in &self.checks {
            let verdict = if found.is_empty() { "ok" } else { "FAILED" };
            writeln!(f, "{name:<44}{verdict}")?;
            for violation in found.iter().take(10) {
                writeln!(f, "    {violation}")?;
            }
            if found.len() > 10 {
                writeln!(f, "    … and {} more", found.len() - 10)?;
            }
        }
        Ok(())
    }
}

fn histogram(f: &mut fmt::Formatter<'_>, title: &str, mut took: Vec<u64>) -> fmt::Result {
    took.sort_unstable();
    let Some(most) = took.last() else {
        return writeln!(f, "{title}: none\n");
    };
    let at = |p: f64| took[((took.len() - 1) as f64 * p) as usize] as f64 / 1e6;
    writeln!(
        f,
        "{title}: {} times, p50 {:.3} ms, p90 {:.3} ms, p99 {:.3} ms, max {:.3} ms",
        took.len(),
        at(0.5),
        at(0.9),
        at(0.99),
        *most as f64 / 1e6
    )?;
    // Buckets of powers of two of 0.125 ms.
    let mut buckets: BTreeMap<u32, usize> = BTreeMap::new();
    for nanos in &took {
        *buckets
            .entry((nanos / 125_000).checked_ilog2().map_or(0, |n| n + 1))
            .or_default() += 1;
    }
    let highest = buckets.values().max().copied().unwrap_or(1);
    for (bucket, n) in buckets {
        let bar = "#".repeat((n * 50).div_ceil(highest));
        writeln!(f, "  < {:>9.3} ms {n:>6} {bar}", 0.125 * 2f64.powi(bucket as i32))?;
    }
    writeln!(f)
}
