//! How long locks are held and waited for, by pattern of keys: what a TTL should be, and which lock is too coarse.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hdrhistogram::Histogram;

use crate::key::Key;

/// Keys that differ more than this are counted together, as [`OTHERS`].
const PATTERNS: usize = 64;
/// The pattern of keys beyond the first [`PATTERNS`].
const OTHERS: &str = "(others)";

/// Collects what the clients that were built with it do. Cheap to clone; clones are the same survey.
///
/// Keys are told apart by their pattern, in which a part that varies (a number, an id) is `*`: `order:close:42` is
/// `order:close:*`.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// # use distlock_core::{Client, Survey, memory::Memory};
/// let survey = Survey::new();
/// let locks = Client::builder().survey(&survey).memory(&Memory::new())?;
/// for order in 0..3 {
///     locks.mutex(format!("order:close:{order}")).acquire().await?.release().await?;
/// }
/// let report = survey.report();
/// assert_eq!((report[0].pattern.as_str(), report[0].holds), ("order:close:*", 3));
/// println!("{survey}");
/// # Ok::<(), distlock_core::Error>(()) }).unwrap();
/// ```
#[derive(Clone, Default)]
pub struct Survey(Arc<Mutex<HashMap<Box<str>, Seen>>>);

struct Seen {
    held: Histogram<u64>,
    waited: Duration,
    ttl: Duration,
    renewed: bool,
}

/// What was seen of the keys of one pattern.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Usage {
    /// The pattern.
    pub pattern: String,
    /// How many holds have ended.
    pub holds: u64,
    /// Half of the holds were not longer than this.
    pub p50: Duration,
    /// 99 of 100 holds were not longer than this.
    pub p99: Duration,
    /// The longest hold.
    pub max: Duration,
    /// The TTL of the latest hold.
    pub ttl: Duration,
    /// Whether the watchdog renewed the latest hold.
    pub renewed: bool,
    /// The time that callers waited, in sum.
    pub waited: Duration,
    /// Their part of the time that all callers waited, 0 to 1.
    pub share_of_wait: f64,
}

impl Usage {
    /// The TTL to set when nothing renews: from one and a half to three times the longest hold.
    pub fn ttl_without_renewal(&self) -> (Duration, Duration) {
        (self.max.mul_f64(1.5), self.max * 3)
    }

    /// What to change, if anything.
    pub fn advice(&self) -> Option<String> {
        let (least, most) = self.ttl_without_renewal();
        if self.holds < 20 {
            return None;
        }
        if !self.renewed && self.ttl < least {
            return Some(format!(
                "nothing renews, and the longest hold took {:.1?} of a ttl of {:.1?}: set it to {least:.1?} to {most:.1?}, \
                 or let it be renewed",
                self.max, self.ttl
            ));
        }
        if self.share_of_wait > 0.5 && self.waited > Duration::from_secs(1) {
            return Some(format!(
                "{:.0} % of all waiting is for these keys: is the lock too coarse?",
                self.share_of_wait * 100.0
            ));
        }
        if self.renewed && self.max > self.ttl * 20 {
            return Some(format!(
                "held for up to {:.0?} with a ttl of {:.1?}: is there a max_hold?",
                self.max, self.ttl
            ));
        }
        None
    }
}

impl Survey {
    /// An empty one.
    pub fn new() -> Self {
        Self::default()
    }

    /// Counts a hold that has ended.
    pub(crate) fn held(&self, key: &Key, took: Duration, ttl: Duration, renewed: bool) {
        self.with(key, |seen| {
            seen.held.saturating_record(took.as_micros() as u64);
            (seen.ttl, seen.renewed) = (ttl, renewed);
        });
    }

    /// Counts a wait that has ended with a grant; gives the pattern that it was counted for.
    pub(crate) fn waited(&self, key: &Key, took: Duration) -> String {
        self.with(key, |seen| seen.waited += took)
    }

    fn with(&self, key: &Key, count: impl FnOnce(&mut Seen)) -> String {
        let mut patterns = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut pattern = pattern(key.as_str());
        if patterns.len() >= PATTERNS && !patterns.contains_key(&*pattern) {
            pattern = OTHERS.into();
        }
        let seen = patterns.entry(pattern.as_str().into()).or_insert_with(|| Seen {
            held: histogram(),
            waited: Duration::ZERO,
            ttl: Duration::ZERO,
            renewed: true,
        });
        count(seen);
        pattern
    }

    /// What was seen, the patterns that were waited for most first.
    pub fn report(&self) -> Vec<Usage> {
        let patterns = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let all: Duration = patterns.values().map(|seen| seen.waited).sum();
        let mut report: Vec<_> = patterns
            .iter()
            .map(|(pattern, seen)| {
                let at = |q| Duration::from_micros(seen.held.value_at_quantile(q));
                Usage {
                    pattern: pattern.to_string(),
                    holds: seen.held.len(),
                    p50: at(0.5),
                    p99: at(0.99),
                    max: Duration::from_micros(seen.held.max()),
                    ttl: seen.ttl,
                    renewed: seen.renewed,
                    waited: seen.waited,
                    share_of_wait: if all.is_zero() {
                        0.0
                    } else {
                        seen.waited.as_secs_f64() / all.as_secs_f64()
                    },
                }
            })
            .collect();
        report.sort_by(|a, b| b.waited.cmp(&a.waited).then_with(|| a.pattern.cmp(&b.pattern)));
        report
    }
}

/// Microseconds up to 366 days, with two digits.
fn histogram() -> Histogram<u64> {
    Histogram::new_with_max(366 * 24 * 3600 * 1_000_000, 2)
        .unwrap_or_else(|_| unreachable!("two digits and this maximum are valid"))
}

/// The key with its varying parts left open.
fn pattern(key: &str) -> String {
    let parts = key.split(':').map(|part| if varies(part) { "*" } else { part });
    parts.collect::<Vec<_>>().join(":")
}

/// Whether a part looks like a number, a date, or an id.
fn varies(part: &str) -> bool {
    let digits = part.bytes().filter(u8::is_ascii_digit).count();
    let hex = part.len() >= 8 && part.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-');
    digits > 0 && (hex || digits * 2 >= part.len() || part.len() > 24)
}

impl fmt::Debug for Survey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Survey").field(&self.report()).finish()
    }
}

/// A table for people: hold times against the TTL, shares of the wait, and advice.
impl fmt::Display for Survey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let report = self.report();
        let width = report
            .iter()
            .map(|u| u.pattern.chars().count())
            .max()
            .unwrap_or(0)
            .max(7);
        writeln!(
            f,
            "{:width$}  {:>8}  {:>8}  {:>8}  {:>8}  {:>8}  {:>5}",
            "pattern", "holds", "p50", "p99", "max", "ttl", "wait"
        )?;
        for usage in &report {
            let time = |d: Duration| format!("{d:.1?}");
            writeln!(
                f,
                "{:width$}  {:>8}  {:>8}  {:>8}  {:>8}  {:>8}  {:>4.0}%",
                usage.pattern,
                usage.holds,
                time(usage.p50),
                time(usage.p99),
                time(usage.max),
                time(usage.ttl),
                usage.share_of_wait * 100.0
            )?;
            if let Some(advice) = usage.advice() {
                writeln!(f, "{:width$}  {advice}", "")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_varies_is_left_open() {
        for (key, expected) in [
            ("order:close:42", "order:close:*"),
            ("stock:7:eu", "stock:*:eu"),
            ("job:0190a5b2-7e2c-7abc-8def-0123456789ab", "job:*"),
            ("report:2026-11-30", "report:*"),
            ("v2:config", "*:config"),
            ("report:nightly", "report:nightly"),
            ("deadbeef:face", "deadbeef:face"),
        ] {
            assert_eq!(pattern(key), expected);
        }
    }

    #[test]
    fn the_number_of_patterns_is_limited() {
        let survey = Survey::new();
        let name = |n: u32| {
            format!(
                "{}{}",
                char::from(b'a' + (n % 26) as u8),
                "x".repeat(n as usize / 26)
            )
        };
        for n in 0..500 {
            survey.held(
                &Key::new(name(n)).unwrap(),
                Duration::from_millis(1),
                Duration::from_secs(1),
                true,
            );
        }
        let report = survey.report();
        assert_eq!(report.len(), PATTERNS + 1);
        assert_eq!(report.iter().map(|u| u.holds).sum::<u64>(), 500);
    }

    #[test]
    fn advice_follows_the_longest_hold_and_the_waiting() {
        let survey = Survey::new();
        let (short, busy) = (Key::new("short").unwrap(), Key::new("busy").unwrap());
        for _ in 0..100 {
            survey.held(&short, Duration::from_secs(9), Duration::from_secs(10), false);
            survey.held(&busy, Duration::from_millis(5), Duration::from_secs(30), true);
            survey.waited(&busy, Duration::from_millis(50));
        }
        let report = survey.report();
        assert_eq!(
            (report[0].pattern.as_str(), report[1].pattern.as_str()),
            ("busy", "short")
        );
        assert!(report[0].advice().unwrap().contains("100 % of all waiting"));
        let advice = report[1].advice().unwrap();
        assert!(advice.contains("13.") && advice.contains("27."), "{advice}");
        assert!(survey.to_string().contains("too coarse"), "{survey}");
    }
}
