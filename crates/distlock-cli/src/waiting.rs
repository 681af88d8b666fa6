//! What people see while a lock is waited for: a spinner on a terminal, else a line now and then.

use std::time::{Duration, Instant};

use distlock_core::Client;
use distlock_core::driver::Holder;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::json;

use crate::guardian;
use crate::say::{Say, describe, holder_json, one_line, rounded};
use crate::settings::Want;

/// A wait that is shorter is not worth a word.
const FIRST: Duration = Duration::from_millis(300);
/// How often the spinner learns who holds the lock.
const LIVELY: Duration = Duration::from_secs(1);
/// How often a log gets a line.
const STEADY: Duration = Duration::from_secs(10);

/// Tells about one wait.
#[derive(Debug)]
pub(crate) struct Waiting<'a> {
    client: &'a Client,
    want: &'a Want,
    say: &'a Say,
    since: Instant,
    next: Instant,
    told: u64,
    spinner: Option<ProgressBar>,
}

impl<'a> Waiting<'a> {
    pub(crate) fn new(client: &'a Client, want: &'a Want, say: &'a Say) -> Self {
        let since = Instant::now();
        Self {
            client,
            want,
            say,
            since,
            next: since + FIRST,
            told: 0,
            spinner: None,
        }
    }

    /// Resolves when something was told; to be called again and again. Dropping it early loses nothing.
    pub(crate) async fn tell(&mut self) {
        tokio::time::sleep_until(self.next.into()).await;
        // A person may have put the job into the background meanwhile.
        let lively = self.say.is_lively() && guardian::wrapper_in_foreground();
        let (holder, waiters) = self.look().await;
        self.next = Instant::now() + if lively { LIVELY } else { STEADY };
        let first = self.told == 0;
        self.told += 1;
        self.say.event(
            "waiting",
            json!({
                "locks": self.want.names_json(),
                "waited_ms": u64::try_from(self.since.elapsed().as_millis()).unwrap_or(u64::MAX),
                "holder": holder.as_ref().map(holder_json),
                "waiters": waiters,
            }),
        );
        let by = holder.map_or_else(
            || "waiting for its turn".into(),
            |h| format!("held by {}", describe(&h)),
        );
        let text = format!("{}: {}", self.want.names(), one_line(&by));
        if lively {
            let spinner = self.spinner.get_or_insert_with(spinner);
            spinner.set_message(text);
            return;
        }
        self.clear();
        if first {
            self.say.note(format_args!("waiting for {text}"));
        } else {
            self.say.note(format_args!(
                "still waiting for {text} (for {})",
                rounded(self.since.elapsed())
            ));
        }
    }

    /// The first holder of the first key that somebody holds, and how many wait for that key.
    async fn look(&self) -> (Option<Holder>, usize) {
        for key in &self.want.keys {
            // An engine that does not answer shall not keep the signals from being heard, nor the spinner still.
            let look = tokio::time::timeout(Duration::from_secs(2), self.client.inspect(key)).await;
            if let Ok(Ok(mut info)) = look {
                info.holders.retain(|holder| !holder.here);
                if !info.holders.is_empty() {
                    return (Some(info.holders.swap_remove(0)), info.waiters.len());
                }
            }
        }
        (None, 0)
    }

    /// Whether people were told of the wait.
    pub(crate) fn was_told(&self) -> bool {
        self.told > 0
    }

    /// The wait is over.
    pub(crate) fn done(&mut self) {
        self.clear();
    }

    fn clear(&mut self) {
        if let Some(spinner) = self.spinner.take() {
            spinner.finish_and_clear();
        }
    }
}

fn spinner() -> ProgressBar {
    let spinner = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
    if let Ok(style) = ProgressStyle::with_template("{spinner} {wide_msg} [{elapsed}]") {
        spinner.set_style(style);
    }
    spinner.enable_steady_tick(Duration::from_millis(120));
    spinner
}
