//! `--metrics-file`: what became of the runs of a job, for the textfile collector of Prometheus' node exporter.
//!
//! A run is a short process that nobody scrapes, so the numbers live in the file: each run reads it, counts itself, and
//! puts the new text in place by a rename, so that a reader never sees half of it. Two runs of one job that end in the
//! same instant may count as one.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use std::{fs, io};

use crate::cmd::run::How;
use crate::exit::Exit;

/// What is told of the last run, with its meaning. The total by outcome comes before these.
const LAST: [(&str, &str); 5] = [
    ("distlock_run_exit_code", "Exit code of the last run."),
    (
        "distlock_run_waited_seconds",
        "How long the last run waited for its lock.",
    ),
    (
        "distlock_run_held_seconds",
        "How long the last run held its lock.",
    ),
    ("distlock_run_last_timestamp_seconds", "When the last run ended."),
    (
        "distlock_run_last_success_timestamp_seconds",
        "When the last run that ended with 0 ended.",
    ),
];
const TOTAL: &str = "distlock_run_total";

/// One run that has ended.
#[derive(Debug)]
pub(crate) struct RunEnd {
    pub(crate) exit: Exit,
    pub(crate) how: How,
    pub(crate) waited: Duration,
    pub(crate) held: Duration,
}

impl RunEnd {
    fn outcome(&self) -> &'static str {
        match (self.how, self.exit) {
            (How::Ran, Exit::OK) => "ok",
            (How::Ran, _) => "failed",
            (How::Lost, _) => "lost",
            (How::Skipped, _) => "skipped",
            (How::NotRun, exit) if exit.number() > 128 => "interrupted",
            (How::NotRun, _) => "error",
        }
    }
}

/// Adds a run of this key to the file.
///
/// # Errors
/// When the file cannot be read or replaced.
pub(crate) fn record(path: &Path, key: &str, end: &RunEnd) -> io::Result<()> {
    let before = match fs::read_to_string(path) {
        Ok(text) => parse(&text),
        Err(e) if e.kind() == io::ErrorKind::NotFound => BTreeMap::new(),
        Err(e) => return Err(e),
    };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let text = render(before, key, end, now);
    let mut fresh = path.as_os_str().to_owned();
    fresh.push(format!(".{}", std::process::id()));
    fs::write(&fresh, text)?;
    fs::rename(&fresh, path).inspect_err(|_| drop(fs::remove_file(&fresh)))
}

/// The samples of a text: name with labels, and value.
fn parse(text: &str) -> BTreeMap<String, String> {
    let samples = text.lines().filter(|line| line.starts_with("distlock_run_"));
    samples
        .filter_map(|line| line.rsplit_once(' '))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

fn render(mut samples: BTreeMap<String, String>, key: &str, end: &RunEnd, now: Duration) -> String {
    let key = key.replace('\\', r"\\").replace('"', r#"\""#);
    let total = format!("{TOTAL}{{key=\"{key}\",outcome=\"{}\"}}", end.outcome());
    let count = samples
        .get(&total)
        .and_then(|n| n.parse::<u64>().ok())
        .unwrap_or(0);
    samples.insert(total, count.saturating_add(1).to_string());
    let at = format!("{:.3}", now.as_secs_f64());
    let values = [
        Some(end.exit.number().to_string()),
        Some(format!("{:.3}", end.waited.as_secs_f64())),
        Some(format!("{:.3}", end.held.as_secs_f64())),
        Some(at.clone()),
        (end.outcome() == "ok").then_some(at),
    ];
    for ((name, _), value) in LAST.iter().zip(values) {
        if let Some(value) = value {
            samples.insert(format!("{name}{{key=\"{key}\"}}"), value);
        }
    }
    let mut text = String::new();
    let all = [(TOTAL, "Runs by outcome.")].into_iter().chain(LAST);
    for (n, (name, what)) in all.enumerate() {
        let kind = if n == 0 { "counter" } else { "gauge" };
        let _ = writeln!(text, "# HELP {name} {what}\n# TYPE {name} {kind}");
        let own = samples
            .iter()
            .filter(|(sample, _)| sample.split('{').next() == Some(name));
        for (sample, value) in own {
            let _ = writeln!(text, "{sample} {value}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(how: How, code: u8) -> RunEnd {
        RunEnd {
            exit: Exit::code(code),
            how,
            waited: Duration::from_millis(20),
            held: Duration::from_secs(3),
        }
    }

    #[test]
    fn runs_add_up_and_other_jobs_stay() {
        let now = Duration::from_millis(1_000_500);
        let mut text = render(BTreeMap::new(), "a \"b\"", &end(How::Ran, 0), now);
        text = render(parse(&text), "a \"b\"", &end(How::Ran, 0), now);
        text = render(parse(&text), "other", &end(How::Lost, 79), now * 2);
        text = render(parse(&text), "a \"b\"", &end(How::Skipped, 0), now * 3);
        for line in [
            r#"distlock_run_total{key="a \"b\"",outcome="ok"} 2"#,
            r#"distlock_run_total{key="a \"b\"",outcome="skipped"} 1"#,
            r#"distlock_run_total{key="other",outcome="lost"} 1"#,
            r#"distlock_run_last_success_timestamp_seconds{key="a \"b\""} 1000.500"#,
            r#"distlock_run_last_timestamp_seconds{key="a \"b\""} 3001.500"#,
            r#"distlock_run_exit_code{key="other"} 79"#,
            "# TYPE distlock_run_total counter",
        ] {
            assert!(text.lines().any(|l| l == line), "{line} is not in:\n{text}");
        }
        assert!(!text.contains(r#"success_timestamp_seconds{key="other"}"#));
    }
}
