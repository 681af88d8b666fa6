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

use std::sync::OnceLock;
use std::time::Duration;

use metrics::{Counter, Gauge, Histogram, Key as MetricKey, Label, Level, Metadata, Recorder, with_recorder};
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

/// The metrics of one client. Their keys are built once, and the process's recorder is asked once for each: a report
/// allocates nothing and looks nothing up.
#[derive(Debug)]
pub(crate) struct Observe {
    engine: &'static str,
    survey: Option<Survey>,
    /// The recorder of the process, once it is known.
    global: OnceLock<Identity>,
    held: Series<Gauge>,
    waiting: Series<Gauge>,
    attempts: [Series<Counter>; 3],
    attempt_seconds: [Series<Histogram>; 2],
    wait_seconds: Series<Histogram>,
    hold_seconds: Series<Histogram>,
    renewals: [Series<Counter>; 3],
    dropped: Series<Counter>,
}

/// A metric with its labels, and the process's recorder's handle on it.
#[derive(Debug)]
struct Series<H> {
    key: MetricKey,
    handle: OnceLock<H>,
}

/// Where a recorder is, and how large: no two at the same time are the same, except those without a size.
#[derive(Debug, PartialEq, Eq)]
struct Identity(usize, usize);

impl Identity {
    fn of(recorder: &dyn Recorder) -> Self {
        let address = std::ptr::from_ref(recorder).cast::<()>().addr();
        Self(address, size_of_val(recorder))
    }
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
        let outcome = |name, value| Series::new(engine, name, Some(("outcome", value)));
        Self {
            engine,
            survey,
            global: OnceLock::new(),
            held: Series::new(engine, "distlock_held", None),
            waiting: Series::new(engine, "distlock_waiting", None),
            attempts: ["held", "waiting", "error"].map(|o| outcome("distlock_attempts_total", o)),
            attempt_seconds: ["no", "yes"]
                .map(|c| Series::new(engine, "distlock_attempt_seconds", Some(("contended", c)))),
            wait_seconds: Series::new(engine, "distlock_wait_seconds", None),
            hold_seconds: Series::new(engine, "distlock_hold_seconds", None),
            renewals: ["ok", "unknown", "lost"].map(|o| outcome("distlock_renewals_total", o)),
            dropped: Series::new(engine, "distlock_dropped_total", None),
        }
    }

    /// Takes the present recorder for the process's, which never changes once it is set. For a thread of our own:
    /// elsewhere a test or a task may have set one that ends.
    pub(crate) fn adopt(&self) {
        if self.global.get().is_none() {
            with_recorder(|recorder| {
                // The one that stands in for a missing recorder has no size.
                if size_of_val(recorder) != 0 {
                    let _ = self.global.set(Identity::of(recorder));
                }
            });
        }
    }

    /// Reports through the handle on a metric.
    fn report<H>(&self, series: &Series<H>, register: Register<H>, report: impl FnOnce(&H)) {
        with_recorder(|recorder| {
            let register = || register(recorder, &series.key, &METADATA);
            if self
                .global
                .get()
                .is_some_and(|global| *global == Identity::of(recorder))
            {
                report(series.handle.get_or_init(register));
            } else {
                report(&register());
            }
        });
    }

    fn count(&self, series: &Series<Counter>) {
        self.report(
            series,
            |r, key, about| r.register_counter(key, about),
            |c| c.increment(1),
        );
    }

    fn gauge(&self, series: &Series<Gauge>, by: f64) {
        self.report(
            series,
            |r, key, about| r.register_gauge(key, about),
            |g| g.increment(by),
        );
    }

    fn time(&self, series: &Series<Histogram>, took: Duration) {
        let seconds = took.as_secs_f64();
        self.report(
            series,
            |r, key, about| r.register_histogram(key, about),
            |h| h.record(seconds),
        );
    }

    pub(crate) fn engine(&self) -> &'static str {
        self.engine
    }

    pub(crate) fn attempt(&self, key: &Key, what: Attempt, took: Duration) {
        self.count(&self.attempts[what as usize]);
        let contended = !matches!(what, Attempt::Held);
        if !matches!(what, Attempt::Error) {
            self.time(&self.attempt_seconds[usize::from(contended)], took);
        }
        if !contended && took > SLOW_ATTEMPT {
            warn!(target: "distlock", %key, engine = self.engine, ?took, "an uncontended attempt was slow");
        }
    }

    pub(crate) fn granted(&self, key: &Key, waited: Duration) {
        self.time(&self.wait_seconds, waited);
        self.gauge(&self.held, 1.0);
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
        self.time(&self.hold_seconds, held);
        self.gauge(&self.held, -1.0);
        if let Some(survey) = &self.survey {
            survey.held(key, held, ttl, renewed);
        }
    }

    /// A hold has reached this part of its expected time.
    pub(crate) fn overdue(&self, percent: &'static str) {
        self.count(&Series::new(
            self.engine,
            "distlock_overdue_total",
            Some(("percent", percent)),
        ));
    }

    /// Counts one more waiting caller until the result is dropped.
    pub(crate) fn waiting(&self) -> WaitingGauge<'_> {
        self.gauge(&self.waiting, 1.0);
        WaitingGauge(self)
    }

    pub(crate) fn renewal(&self, what: Renewed) {
        self.count(&self.renewals[what as usize]);
    }

    pub(crate) fn lost(&self, key: &Key, reason: &LostReason) {
        self.count(&Series::new(
            self.engine,
            "distlock_lost_total",
            Some(("reason", reason.word())),
        ));
        warn!(target: "distlock", %key, engine = self.engine, %reason, "a lock was lost");
    }

    pub(crate) fn dropped(&self) {
        self.count(&self.dropped);
    }
}

/// See [`Observe::waiting`].
pub(crate) struct WaitingGauge<'a>(&'a Observe);

impl Drop for WaitingGauge<'_> {
    fn drop(&mut self) {
        self.0.gauge(&self.0.waiting, -1.0);
    }
}

type Register<H> = fn(&dyn Recorder, &MetricKey, &Metadata<'_>) -> H;

impl<H> Series<H> {
    fn new(engine: &'static str, name: &'static str, label: Option<(&'static str, &'static str)>) -> Self {
        let mut labels = vec![Label::new("engine", engine)];
        labels.extend(label.map(|(k, v)| Label::new(k, v)));
        Self {
            key: MetricKey::from_parts(name, labels),
            handle: OnceLock::new(),
        }
    }
}
