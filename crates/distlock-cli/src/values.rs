//! Values that appear on the command line and in the configuration file.

use std::time::Duration;

use distlock_core::OnCrash;
use serde::{Deserialize, Deserializer};

/// How long to wait for a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wait {
    Try,
    For(Duration),
    Forever,
}

/// Reads what a run that was cut short means for `--once-per`.
pub(crate) fn on_crash(text: &str) -> Result<OnCrash, String> {
    match text {
        "retry" => Ok(OnCrash::Retry),
        "skip" => Ok(OnCrash::Skip),
        _ => Err(format!("{text:?} is neither retry nor skip")),
    }
}

/// What to do with the command when its lock is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OnLost {
    Kill,
    Signal(i32),
    Ignore,
}

/// Reads `90s`, `1.5s`, `10m 30s`, `2h`, `300ms`. A number needs a unit, except 0.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let text = text.trim();
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    if text.parse::<f64>().is_ok() {
        return Err(format!("a duration needs a unit, such as {text}s or {text}ms"));
    }
    if let Some(fraction) = fraction(text) {
        return fraction;
    }
    humantime::parse_duration(text).map_err(not_a_duration)
}

fn not_a_duration(why: impl std::fmt::Display) -> String {
    format!("not a duration such as 300ms, 1.5s, 10m or 2h: {why}")
}

/// Reads a decimal fraction with a unit, which humantime does not know.
fn fraction(text: &str) -> Option<Result<Duration, String>> {
    let unit_at = text.find(|c: char| !c.is_ascii_digit() && c != '.')?;
    let (number, unit) = text.split_at(unit_at);
    if !number.contains('.') {
        return None;
    }
    let number: f64 = number.parse().ok()?;
    let one = humantime::parse_duration(&format!("1{}", unit.trim())).ok()?;
    Some(Duration::try_from_secs_f64(number * one.as_secs_f64()).map_err(not_a_duration))
}

/// Reads a wait: a duration, `0`, or `forever`.
pub(crate) fn wait(text: &str) -> Result<Wait, String> {
    match text.trim() {
        "forever" => Ok(Wait::Forever),
        text => duration(text)
            .map(|d| if d.is_zero() { Wait::Try } else { Wait::For(d) })
            .map_err(|e| format!("neither forever nor 0, and {e}")),
    }
}

/// Reads `kill`, `signal:NAME` or `ignore`.
pub(crate) fn on_lost(text: &str) -> Result<OnLost, String> {
    match text {
        "kill" => Ok(OnLost::Kill),
        "ignore" => Ok(OnLost::Ignore),
        _ => match text.strip_prefix("signal:") {
            Some(name) => signal(name).map(OnLost::Signal),
            None => Err("one of kill, signal:NAME (such as signal:USR1), ignore".into()),
        },
    }
}

const SIGNALS: [(&str, i32); 16] = [
    ("HUP", libc::SIGHUP),
    ("INT", libc::SIGINT),
    ("QUIT", libc::SIGQUIT),
    ("ABRT", libc::SIGABRT),
    ("KILL", libc::SIGKILL),
    ("USR1", libc::SIGUSR1),
    ("SEGV", libc::SIGSEGV),
    ("USR2", libc::SIGUSR2),
    ("PIPE", libc::SIGPIPE),
    ("ALRM", libc::SIGALRM),
    ("TERM", libc::SIGTERM),
    ("CONT", libc::SIGCONT),
    ("STOP", libc::SIGSTOP),
    ("TSTP", libc::SIGTSTP),
    ("WINCH", libc::SIGWINCH),
    ("URG", libc::SIGURG),
];

/// Reads a signal's name, with or without SIG, or its number.
fn signal(text: &str) -> Result<i32, String> {
    let name = text.strip_prefix("SIG").unwrap_or(text);
    if let Some((_, number)) = SIGNALS.iter().find(|(known, _)| *known == name) {
        return Ok(*number);
    }
    match text.parse::<i32>() {
        Ok(number) if (1..=64).contains(&number) => Ok(number),
        _ => Err(format!("{text:?} is not a signal; examples: TERM, USR1, 10")),
    }
}

/// A signal's name for people: SIGTERM, or its number.
pub(crate) fn signal_name(number: i32) -> String {
    match SIGNALS.iter().find(|(_, known)| *known == number) {
        Some((name, _)) => format!("SIG{name}"),
        None => format!("signal {number}"),
    }
}

/// A duration that was read from text, for the configuration file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Time(pub(crate) Duration);

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        duration(&text).map(Time).map_err(serde::de::Error::custom)
    }
}

impl<'de> Deserialize<'de> for Wait {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        wait(&text).map_err(serde::de::Error::custom)
    }
}

impl<'de> Deserialize<'de> for OnLost {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        on_lost(&text).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_need_a_unit_and_may_have_fractions() {
        assert_eq!(duration("1.5s"), Ok(Duration::from_millis(1500)));
        assert_eq!(duration("300ms"), Ok(Duration::from_millis(300)));
        assert_eq!(duration("1m 30s"), Ok(Duration::from_secs(90)));
        assert_eq!(duration("0"), Ok(Duration::ZERO));
        assert!(duration("10").is_err_and(|e| e.contains("10s")));
        for bad in [
            "",
            "-1s",
            "1e400s",
            "99999999999999999999s",
            "1.5",
            "s",
            "1.5parsecs",
            "..5s",
        ] {
            assert!(duration(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_wait_of_zero_is_a_try() {
        assert_eq!(wait("0"), Ok(Wait::Try));
        assert_eq!(wait("0s"), Ok(Wait::Try));
        assert_eq!(wait("forever"), Ok(Wait::Forever));
        assert_eq!(wait("2h"), Ok(Wait::For(Duration::from_secs(7200))));
    }

    #[test]
    fn signals_have_names_and_numbers() {
        assert_eq!(on_lost("signal:USR1"), Ok(OnLost::Signal(libc::SIGUSR1)));
        assert_eq!(on_lost("signal:SIGTERM"), Ok(OnLost::Signal(libc::SIGTERM)));
        assert_eq!(on_lost("signal:10"), Ok(OnLost::Signal(10)));
        assert!(on_lost("signal:99").is_err());
        assert!(on_lost("stop").is_err());
        assert_eq!(signal_name(15), "SIGTERM");
    }
}
