//! The metrics of this process as Prometheus text, for whatever serves or writes them: no listener is opened.

use std::fmt;
use std::thread;
use std::time::Duration;

use distlock_core::observe::METRICS;
use distlock_core::{Error, ErrorKind};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};

/// Upper bounds of the buckets of all histograms: from a lock in memory to a job of an hour.
const BUCKETS: [f64; 16] = [
    0.000_1, 0.000_3, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0,
];
/// How often what was measured is sorted into the buckets, so that it takes no more room.
const UPKEEP: Duration = Duration::from_secs(5);

/// The metrics of this process. Cheap to clone.
///
/// ```
/// let metrics = distlock::Prometheus::install()?;
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// let locks = distlock::Locks::connect("memory:").await?;
/// locks.mutex("a").acquire().await?.release().await?;
/// # Ok::<(), distlock::Error>(()) }).unwrap();
/// // Serve this at /metrics, or write it to a file for the textfile collector.
/// assert!(metrics.render().contains("distlock_hold_seconds_count{engine=\"memory\"} 1"));
/// # Ok::<(), distlock::Error>(())
/// ```
#[derive(Clone)]
pub struct Prometheus(PrometheusHandle);

impl fmt::Debug for Prometheus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Prometheus")
    }
}

impl Prometheus {
    /// Makes this the recorder of the whole process. A program that has a recorder of the crate `metrics` already needs
    /// nothing: distlock reports to that one.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidConfig`] when there is one already.
    pub fn install() -> Result<Self, Error> {
        let bad = |e: &dyn fmt::Display| Error::new(ErrorKind::InvalidConfig, format!("metrics: {e}"));
        let recorder = PrometheusBuilder::new()
            .set_buckets_for_metric(Matcher::Prefix("distlock_".into()), &BUCKETS)
            .map_err(|e| bad(&e))?
            .build_recorder();
        let handle = recorder.handle();
        metrics::set_global_recorder(recorder).map_err(|e| bad(&e))?;
        for (name, what) in METRICS {
            // Each is one of three; describing it as the other two is without effect.
            metrics::describe_counter!(*name, *what);
        }
        let upkeep = handle.clone();
        thread::Builder::new()
            .name("distlock-metrics".into())
            .spawn(move || {
                loop {
                    thread::sleep(UPKEEP);
                    upkeep.run_upkeep();
                }
            })
            .map_err(|e| bad(&e))?;
        Ok(Self(handle))
    }

    /// All metrics now, in the text format.
    pub fn render(&self) -> String {
        self.0.render()
    }
}
