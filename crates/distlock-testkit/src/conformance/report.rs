//! What a run of the suite found, case by case and criterion by criterion.

use std::fmt;
use std::time::Duration;

use super::case::{Case, Criterion};
use super::trial::Failure;

/// What became of a case.
#[derive(Debug)]
pub enum Outcome {
    /// The engine does it.
    Proven,
    /// The engine does not promise it; says what is missing.
    Skipped(&'static str),
    /// The engine does not do what it promises.
    Failed(Failure),
}

/// What the cases of one criterion say together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// All that were tried hold: so many were proven, so many skipped.
    Yes {
        /// Cases that were proven.
        proven: usize,
        /// Cases that the engine does not promise.
        skipped: usize,
    },
    /// Not promised.
    No,
    /// So many cases failed.
    Failed(usize),
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            Self::Yes { proven, skipped: 0 } => format!("yes ({proven} cases)"),
            Self::Yes { proven, skipped } => format!("yes ({proven} cases, {skipped} not promised)"),
            Self::No => "no (not promised)".to_owned(),
            Self::Failed(n) => format!("FAILED ({n} cases)"),
        };
        f.pad(&text)
    }
}

/// The result of [`run`](super::run). Its display is a table for people.
#[derive(Debug, Default)]
pub struct Report {
    /// Each case, what became of it, and how long it took.
    pub cases: Vec<(Case, Outcome, Duration)>,
}

impl Report {
    /// Adds a case that was [proved](super::prove), or was not.
    pub fn add(&mut self, case: Case, outcome: Outcome, took: Duration) {
        self.cases.push((case, outcome, took));
    }

    /// Whether no case failed, and not all were skipped.
    pub fn is_conforming(&self) -> bool {
        let failed = self.failures().next().is_some();
        let proven = self.cases.iter().any(|(_, o, _)| matches!(o, Outcome::Proven));
        proven && !failed
    }

    /// The cases that failed, and why.
    pub fn failures(&self) -> impl Iterator<Item = (&Case, &Failure)> {
        self.cases.iter().filter_map(|(case, outcome, _)| match outcome {
            Outcome::Failed(why) => Some((case, why)),
            _ => None,
        })
    }

    /// What the cases say about each of the eight criteria.
    pub fn criteria(&self) -> [(Criterion, Verdict); 8] {
        Criterion::ALL.map(|criterion| (criterion, self.verdict(criterion)))
    }

    fn verdict(&self, criterion: Criterion) -> Verdict {
        let (mut proven, mut skipped, mut failed) = (0, 0, 0);
        for (_, outcome, _) in self.cases.iter().filter(|(case, ..)| case.criterion == criterion) {
            match outcome {
                Outcome::Proven => proven += 1,
                Outcome::Skipped(_) => skipped += 1,
                Outcome::Failed(_) => failed += 1,
            }
        }
        match (proven, failed) {
            (_, 1..) => Verdict::Failed(failed),
            (0, 0) => Verdict::No,
            (_, 0) => Verdict::Yes { proven, skipped },
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (case, outcome, took) in &self.cases {
            let word = match outcome {
                Outcome::Proven => "ok",
                Outcome::Skipped(_) => "skipped",
                Outcome::Failed(_) => "FAILED",
            };
            let ms = took.as_millis();
            write!(f, "{word:8}{:52}{ms:>7} ms", case.name)?;
            match outcome {
                Outcome::Proven => writeln!(f)?,
                Outcome::Skipped(why) => writeln!(f, "  {why}")?,
                Outcome::Failed(why) => writeln!(f, "  {}: {why}", case.about)?,
            }
        }
        writeln!(f)?;
        for (criterion, verdict) in self.criteria() {
            writeln!(f, "{criterion:26}{verdict}")?;
        }
        Ok(())
    }
}
