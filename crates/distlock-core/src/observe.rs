//! Every name that distlock reports under, in one place: metrics, spans and events.
//!
//! Metrics go through the [`metrics`] facade: without a recorder they cost a few nanoseconds.
//!
//! | metric | type | labels | meaning |
//! |---|---|---|---|
//! | `distlock_attempts_total` | counter | `engine`, `outcome` = held, waiting, error | looks at the engine |
//! | `distlock_attempt_seconds` | histogram | `engine`, `contended` = yes, no | how long a look took |
//! | `distlock_wait_seconds` | histogram | `engine` | from the call to the grant |
//! | `distlock_hold_seconds` | histogram | `engine` | from the grant to the release or loss |
//! | `distlock_held` | gauge | `engine` | locks held now |
//! | `distlock_waiting` | gauge | `engine` | callers waiting now |
//! | `distlock_renewals_total` | counter | `engine`, `outcome` = ok, unknown, lost | answers to renewals |
//! | `distlock_lost_total` | counter | `engine`, `reason` | losses |
//! | `distlock_overdue_total` | counter | `engine`, `percent` = 80, 100 | holds that reached this part of `expect` |
//! | `distlock_dropped_total` | counter | `engine` | guards dropped without `release` |
//! | `distlock_pattern_wait_milliseconds_total` | counter | `engine`, `pattern` | waits by pattern of keys, with a [`Survey`] |
//!
//! Spans: `acquire` (key, engine), `run` (key, engine, token). Events, all with target `distlock`: a wait that goes
//! on (info, each 10 s) and its grant (info), an uncontended look over 10 ms (warn), 80 % (warn) and 100 % (warn) of `expect`, a renewal
//! without an answer (debug), a loss (warn), a release that was not confirmed (warn).

use std::time::Duration;

use metrics::{Key as MetricKey, Label, Level, Metadata, with_recorder};
use tracing::warn;

use crate::driver::LostReason;
use crate::key::Key;
use crate::survey::Survey;

/// Every metric, with what it means.
pub const METRICS: &[(&str, &str)] = &[
    ("distlock_attempts_total", "Looks at the engine."),
    ("distlock_attempt_seconds", "How long a look took."),
    ("distlock_wait_seconds", "From the call to the grant."),
    ("distlock_hold_seconds", "From the grant to the release or loss."),
    ("distlock_held", "Locks held now."),
    ("distlock_waiting", "Callers waiting now."),
    ("distlock_renewals_total", "Answers to renewals."),
    ("distlock_lost_total", "Holds that ended without a release."),
    (
        "distlock_overdue_total",
        "Holds that reached this part of the expected time.",
    ),
    ("distlock_dropped_total", "Guards dropped without a release."),
    (
        "distlock_pattern_wait_milliseconds_total",
        "Waits by pattern of keys.",
    ),
];

/// Longer than this is too slow for an uncontended look.
pub(crate) const SLOW_ATTEMPT: Duration = Duration::from_millis(10);
/// How often a caller that goes on waiting is told of.
pub(crate) const WAIT_NOTICE: Duration = Duration::from_secs(10);

static METADATA: Metadata<'static> = Metadata::new("distlock", Level::INFO, Some(module_path!()));

/// The metric keys of one client, built once: a report allocates nothing.
#[derive(Debug)]
pub(crate) struct Observe {
    engine: &'static str,
    survey: Option<Survey>,
    held: MetricKey,
    waiting: MetricKey,
    attempts: [MetricKey; 3],
    attempt_seconds: [MetricKey; 2],
    wait_seconds: MetricKey,
    hold_seconds: MetricKey,
    renewals: [MetricKey; 3],
    dropped: MetricKey,
}

/// What a look at the engine gave.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Attempt {
    Held,
    Waiting,
    Error,
}

/// What a renewal gave.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Renewed {
    Ok,
    Unknown,
    Lost,
}

impl Observe {
    pub(crate) fn new(engine: &'static str, survey: Option<Survey>) -> Self {
        let key = |name: &'static str, label: Option<(&'static str, &'static str)>| {
            let mut labels = vec![Label::new("engine", engine)];
            labels.extend(label.map(|(k, v)| Label::new(k, v)));
            MetricKey::from_parts(name, labels)
        };
        let outcome = |name, value| key(name, Some(("outcome", value)));
        Self {
            engine,
            survey,
            held: key("distlock_held", None),
            waiting: key("distlock_waiting", None),
            attempts: ["held", "waiting", "error"].map(|o| outcome("distlock_attempts_total", o)),
            attempt_seconds: ["no", "yes"].map(|c| key("distlock_attempt_seconds", Some(("contended", c)))),
            wait_seconds: key("distlock_wait_seconds", None),
            hold_seconds: key("distlock_hold_seconds", None),
            renewals: ["ok", "unknown", "lost"].map(|o| outcome("distlock_renewals_total", o)),
            dropped: key("distlock_dropped_total", None),
        }
    }

    pub(crate) fn engine(&self) -> &'static str {
        self.engine
    }

    pub(crate) fn attempt(&self, key: &Key, what: Attempt, took: Duration) {
        count(&self.attempts[what as usize]);
        let contended = !matches!(what, Attempt::Held);
        if !matches!(what, Attempt::Error) {
            time(&self.attempt_seconds[usize::from(contended)], took);
        }
        if !contended && took > SLOW_ATTEMPT {
            warn!(target: "distlock", %key, engine = self.engine, ?took, "an uncontended attempt was slow");
        }
    }

    pub(crate) fn granted(&self, key: &Key, waited: Duration) {
        time(&self.wait_seconds, waited);
        gauge(&self.held, 1.0);
        if let Some(survey) = &self.survey {
            let labels = vec![
                Label::new("engine", self.engine),
                Label::new("pattern", survey.waited(key, waited)),
            ];
            let ms = u64::try_from(waited.as_millis()).unwrap_or(u64::MAX);
            let name = "distlock_pattern_wait_milliseconds_total";
            with_recorder(|r| {
                r.register_counter(&MetricKey::from_parts(name, labels), &METADATA)
                    .increment(ms);
            });
        }
    }

    /// The hold of `key` with this TTL, `renewed` or not, is over.
    pub(crate) fn ended(&self, key: &Key, held: Duration, ttl: Duration, renewed: bool) {
        time(&self.hold_seconds, held);
        gauge(&self.held, -1.0);
        if let Some(survey) = &self.survey {
            survey.held(key, held, ttl, renewed);
        }
    }

    /// A hold has reached this part of its expected time.
    pub(crate) fn overdue(&self, percent: &'static str) {
        let labels = vec![Label::new("engine", self.engine), Label::new("percent", percent)];
        count(&MetricKey::from_parts("distlock_overdue_total", labels));
    }

    /// Counts one more waiting caller until the result is dropped.
    pub(crate) fn waiting(&self) -> WaitingGauge<'_> {
        gauge(&self.waiting, 1.0);
        WaitingGauge(self)
    }

    pub(crate) fn renewal(&self, what: Renewed) {
        count(&self.renewals[what as usize]);
    }

    pub(crate) fn lost(&self, key: &Key, reason: &LostReason) {
        let labels = vec![
            Label::new("engine", self.engine),
            Label::new("reason", reason.word()),
        ];
        count(&MetricKey::from_parts("distlock_lost_total", labels));
        warn!(target: "distlock", %key, engine = self.engine, %reason, "a lock was lost");
    }

    pub(crate) fn dropped(&self) {
        count(&self.dropped);
    }
}

/// See [`Observe::waiting`].
pub(crate) struct WaitingGauge<'a>(&'a Observe);

impl Drop for WaitingGauge<'_> {
    fn drop(&mut self) {
        gauge(&self.0.waiting, -1.0);
    }
}

fn count(key: &MetricKey) {
    with_recorder(|r| r.register_counter(key, &METADATA).increment(1));
}

fn gauge(key: &MetricKey, by: f64) {
    with_recorder(|r| r.register_gauge(key, &METADATA).increment(by));
}

fn time(key: &MetricKey, took: Duration) {
    with_recorder(|r| r.register_histogram(key, &METADATA).record(took.as_secs_f64()));
}
