//! What the command says: lines for people on standard error, JSON for machines.
//!
//! Standard output belongs to the command that is run, and to results.

use std::fmt::Display;
use std::fs::File;
use std::io::{IsTerminal, Write};
use std::os::fd::RawFd;
use std::time::Duration;

use distlock_core::driver::Holder;
use distlock_core::{Error, ErrorKind};
use owo_colors::{AnsiColors, OwoColorize};
use serde_json::{Map, Value, json};

use crate::exit::Exit;
use crate::sys;

/// Where messages go.
#[derive(Debug)]
pub(crate) struct Say {
    json: bool,
    quiet: bool,
    /// `--status-fd`.
    status: Option<File>,
    /// The URL that was asked for, to be repeated in advice.
    url: Option<String>,
}

impl Say {
    pub(crate) fn new(json: bool, quiet: bool) -> Self {
        Self {
            json,
            quiet,
            status: None,
            url: None,
        }
    }

    /// Advice names the engine by this, as the user wrote it on the command line. What the environment says need not
    /// be repeated, and a password must not be.
    pub(crate) fn with_url(mut self, url: Option<String>) -> Self {
        let from_environment = std::env::var("DISTLOCK_URL").ok();
        self.url = url
            .filter(|url| Some(url) != from_environment.as_ref())
            .map(|url| if url.contains('@') { "URL".into() } else { url });
        self
    }

    /// Writes events to this descriptor too.
    ///
    /// # Errors
    /// When it is not open.
    pub(crate) fn with_status(mut self, fd: Option<RawFd>) -> Result<Self, String> {
        if let Some(fd) = fd {
            let file = sys::inherited(fd).map_err(|e| format!("--status-fd {fd}: {e}"))?;
            self.status = Some(File::from(file));
        }
        Ok(self)
    }

    pub(crate) fn is_json(&self) -> bool {
        self.json
    }

    /// Whether a person may be shown something that moves.
    pub(crate) fn is_lively(&self) -> bool {
        !self.json && !self.quiet && std::io::stderr().is_terminal()
    }

    /// Something happened; machines are told.
    pub(crate) fn event(&self, name: &str, fields: Value) {
        if self.status.is_none() && !self.json {
            return;
        }
        let mut line = Map::new();
        line.insert("event".into(), name.into());
        if let Value::Object(fields) = fields {
            line.extend(fields.into_iter().filter(|(_, value)| !value.is_null()));
        }
        let line = format!("{}\n", Value::Object(line));
        if let Some(mut status) = self.status.as_ref() {
            // A reader that went away does not stop the work.
            let _ = status.write_all(line.as_bytes());
        }
        if self.json {
            let _ = std::io::stderr().write_all(line.as_bytes());
        }
    }

    /// Tells people, unless they asked for silence.
    pub(crate) fn note(&self, text: impl Display) {
        if !self.quiet && !self.json {
            let _ = writeln!(std::io::stderr(), "distlock: {text}");
        }
    }

    /// Tells people even if they asked for silence, and machines.
    pub(crate) fn error(&self, exit: Exit, text: impl Display, hint: Option<&str>) -> Exit {
        self.event(
            "error",
            json!({ "message": text.to_string(), "hint": hint, "exit": exit.number() }),
        );
        self.print_error(text, hint);
        exit
    }

    fn print_error(&self, text: impl Display, hint: Option<&str>) {
        if self.json {
            return;
        }
        let mut err = std::io::stderr();
        let _ = writeln!(err, "{} {text}", coloured("distlock:", AnsiColors::Red));
        if let Some(hint) = hint {
            advise(hint);
        }
    }

    /// Reports an error of the library: as an event, and for people with what to do next.
    pub(crate) fn failure(&self, error: &Error, exit: Exit) -> Exit {
        let hint = self.hint(error);
        self.event(
            if error.is_contention() { "busy" } else { "error" },
            json!({
                "kind": error.kind().word(),
                "key": error.key().map(|key| key.as_str()),
                "message": message(error),
                "holder": error.holder().map(holder_json),
                "hint": hint,
                "exit": exit.number(),
            }),
        );
        if error.is_contention() && self.quiet {
            return exit;
        }
        self.print_error(message(error), hint.as_deref());
        exit
    }

    fn hint(&self, error: &Error) -> Option<String> {
        let url = self
            .url
            .as_ref()
            .map_or(String::new(), |url| format!(" --url {}", quote(url)));
        let key = error.key().map_or("KEY".into(), |key| quote(key.as_str()));
        Some(match error.kind() {
            ErrorKind::Busy => {
                format!("wait for it with --wait 30s; see who holds it with: distlock inspect{url} {key}")
            }
            ErrorKind::Timeout => {
                format!("wait longer (--wait), or see who holds it with: distlock inspect{url} {key}")
            }
            ErrorKind::Unavailable | ErrorKind::NoQuorum | ErrorKind::OutcomeUnknown => {
                format!(
                    "is the server up, and reachable from here? once it answers, examine it with: distlock doctor{url}"
                )
            }
            ErrorKind::KindMismatch => format!(
                "all contenders must use the same kind (plain, --shared with --exclusive, or --permits with the same \
                 number); see the present one with: distlock inspect{url} {key}"
            ),
            ErrorKind::NotHeld => format!("see who holds it now with: distlock inspect{url} {key}"),
            _ => return None,
        })
    }
}

/// Says what to do next.
pub(crate) fn advise(hint: &str) {
    let word = coloured("hint:", AnsiColors::Cyan);
    let _ = writeln!(std::io::stderr(), "  {word} {hint}");
}

/// A word in a colour, where there is a terminal and nobody asked for none (no-color.org).
fn coloured(word: &str, colour: AnsiColors) -> String {
    let plain = !std::io::stderr().is_terminal()
        || std::env::var_os("NO_COLOR").is_some_and(|v| !v.is_empty())
        || std::env::var_os("TERM").is_some_and(|v| v == "dumb");
    if plain {
        word.to_owned()
    } else {
        word.color(colour).to_string()
    }
}

/// What an error says; of a lock that somebody else has, also since when, and for how long at least.
fn message(error: &Error) -> String {
    match (error.kind(), error.key(), error.holder()) {
        (ErrorKind::Busy, Some(key), Some(holder)) => {
            one_line(&format!("lock {key:?} is held by {}", describe(holder)))
        }
        (ErrorKind::Timeout, Some(_), Some(holder)) => {
            let (chain, times) = (chain(error), times(holder));
            if times.is_empty() {
                chain
            } else {
                format!("{chain} ({times})")
            }
        }
        _ => chain(error),
    }
}

/// The error and its causes, each once.
fn chain(error: &Error) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(e) = cause {
        let e_text = e.to_string();
        if !text.contains(&e_text) {
            text.push_str(&format!(": {e_text}"));
        }
        cause = e.source();
    }
    one_line(&text)
}

/// A holder for people, with since when and for how long.
pub(crate) fn describe(holder: &Holder) -> String {
    let times = times(holder);
    if times.is_empty() {
        holder.to_string()
    } else {
        format!("{holder}, {times}")
    }
}

fn times(holder: &Holder) -> String {
    let since = holder.since.and_then(|since| since.elapsed().ok());
    let since = since.map(|since| format!("for {}", rounded(since)));
    let left = holder
        .expires_in
        .map(|left| format!("lease ends in {}", rounded(left)));
    since.into_iter().chain(left).collect::<Vec<_>>().join(", ")
}

/// A duration for people: no more than a tenth of a second.
pub(crate) fn rounded(d: Duration) -> humantime::FormattedDuration {
    let step = if d < Duration::from_secs(10) { 100 } else { 1000 };
    let ms = u64::try_from(d.as_millis()).unwrap_or(u64::MAX);
    humantime::format_duration(Duration::from_millis(ms / step * step))
}

/// A holder for machines.
pub(crate) fn holder_json(holder: &Holder) -> Value {
    json!({
        "owner": holder.owner,
        "mode": mode_word(holder.mode),
        "token": holder.token.map(|t| t.get()),
        "label": holder.label,
        "reason": holder.reason,
        "host": holder.host,
        "pid": holder.pid,
        "since": holder.since.map(|t| humantime::format_rfc3339_millis(t).to_string()),
        "expires_in_ms": holder.expires_in.map(|d| u64::try_from(d.as_millis()).unwrap_or(u64::MAX)),
    })
}

/// How a key is held, in a word.
pub(crate) fn mode_word(mode: distlock_core::driver::Mode) -> &'static str {
    use distlock_core::driver::Mode;
    match mode {
        Mode::Mutex => "mutex",
        Mode::Write => "write",
        Mode::Read => "read",
        Mode::Slot { .. } => "permit",
    }
}

/// Text that came from elsewhere, such as a holder's reason, on one line and without control characters.
pub(crate) fn one_line(text: &str) -> String {
    text.chars()
        .flat_map(|c| -> Box<dyn Iterator<Item = char>> {
            if c.is_control() {
                Box::new(c.escape_default())
            } else {
                Box::new(std::iter::once(c))
            }
        })
        .collect()
}

/// A word as a shell would read it back.
pub(crate) fn quote(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:@%+,=".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_wrote_stays_on_one_line() {
        assert_eq!(one_line("a\nb\u{1b}[31m é"), "a\\nb\\u{1b}[31m é");
    }

    #[test]
    fn words_are_quoted_for_a_shell() {
        assert_eq!(quote("order:42"), "order:42");
        assert_eq!(quote("it's"), r"'it'\''s'");
        assert_eq!(quote(""), "''");
    }
}
