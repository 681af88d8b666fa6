//! Getting the lock: nested or from the engine, with signals heard and people told while it lasts.

use std::future::Future;
use std::pin::pin;
use std::time::{Duration, Instant};

use distlock_core::{Client, Error, ErrorKind, Guard, Key};
use serde_json::json;

use crate::exit::Exit;
use crate::held::Held;
use crate::reenter::{self, Entry};
use crate::say::{Say, rounded};
use crate::settings::Want;
use crate::signals::Signals;
use crate::values::Wait;
use crate::waiting::Waiting;

/// Obtains all keys that are wanted, or none.
///
/// # Errors
/// The exit code, after the trouble was told; also when a signal ended the wait. Nothing is held then.
pub(crate) async fn obtain(
    client: &Client,
    engine: &str,
    want: &Want,
    say: &Say,
    signals: &Signals,
) -> Result<Held, Exit> {
    let started = Instant::now();
    let (outcome, told) = while_waiting(client, want, say, signals, take_all(client, engine, want)).await;
    let held = outcome?;
    let tokens: Vec<_> = held
        .tokens()
        .into_iter()
        .map(|(key, token)| json!({ "key": key.as_str(), "token": token }))
        .collect();
    say.event(
        "acquired",
        json!({ "locks": tokens, "owner": held.owner(), "waited_ms": millis(started.elapsed()) }),
    );
    if told {
        say.note(format_args!(
            "{}: obtained after {}",
            want.names(),
            rounded(started.elapsed())
        ));
    }
    Ok(held)
}

/// Obtains one key for a lease, which outlives this process and so never re-enters.
///
/// # Errors
/// As [`obtain`].
pub(crate) async fn obtain_one(
    client: &Client,
    want: &Want,
    key: &Key,
    say: &Say,
    signals: &Signals,
) -> Result<Guard, Exit> {
    let wait = match want.wait {
        Wait::Try => distlock_core::Wait::Try,
        Wait::For(limit) => distlock_core::Wait::For(limit),
        Wait::Forever => distlock_core::Wait::Forever,
    };
    let take = async {
        let lock = want.lock(client, key).wait(wait).detachable();
        lock.acquire().await.map_err(Refused::Lock)
    };
    while_waiting(client, want, say, signals, take).await.0
}

/// Waits for `taking`, telling people, until a signal ends it; says whether people were told.
async fn while_waiting<T>(
    client: &Client,
    want: &Want,
    say: &Say,
    signals: &Signals,
    taking: impl Future<Output = Result<T, Refused>>,
) -> (Result<T, Exit>, bool) {
    let mut waiting = Waiting::new(client, want, say);
    let mut taking = pin!(taking);
    let outcome = loop {
        tokio::select! {
            biased;
            signal = signals.ending() => break Err(Refused::Interrupted(signal)),
            taken = &mut taking => break taken,
            () = waiting.tell() => {}
        }
    };
    // The spinner goes before anything else is said.
    waiting.done();
    let outcome = outcome.map_err(|refused| match refused {
        Refused::Lock(e) if want.is_done(&e) => already_done(&e, want, say),
        Refused::Lock(e) => say.failure(&e, want.exit_of(&e)),
        Refused::Nested(text) => say.error(Exit::ENGINE, text, None),
        Refused::Interrupted(signal) => {
            let exit = Exit::signal(signal);
            say.event("interrupted", json!({ "exit": exit.number() }));
            exit
        }
    });
    (outcome, waiting.was_told())
}

/// The work was done within the window: good news, and no error.
fn already_done(e: &Error, want: &Want, say: &Say) -> Exit {
    let exit = want.exit_of(e);
    let again_in = e.holder().and_then(|kept| kept.expires_in);
    let names = want.names();
    say.event(
        "already_done",
        json!({
            "key": e.key().map(Key::as_str), "again_in_ms": again_in.map(millis), "exit": exit.number(),
        }),
    );
    match again_in {
        Some(d) => say.note(format_args!(
            "{names}: already done; the next run may begin in {}",
            rounded(d)
        )),
        None => say.note(format_args!("{names}: already done")),
    }
    exit
}

fn millis(d: Duration) -> u64 {
    u64::try_from(d.as_millis()).unwrap_or(u64::MAX)
}

async fn take_all(client: &Client, engine: &str, want: &Want) -> Result<Held, Refused> {
    let until = match want.wait {
        Wait::For(limit) => Instant::now().checked_add(limit),
        _ => None,
    };
    let mut held = Held::default();
    for key in &want.keys {
        // Dropping `held` gives back what was obtained so far.
        match take(client, engine, want, key, until).await? {
            One::Own(guard) => held.add(guard),
            One::Entered(entered) => held.enter(entered),
        }
    }
    Ok(held)
}

enum One {
    Own(Guard),
    Entered(reenter::Entered),
}

/// Why it was not obtained.
enum Refused {
    Lock(Error),
    /// An ancestor holds it in a way that does not let us in.
    Nested(String),
    Interrupted(i32),
}

async fn take(
    client: &Client,
    engine: &str,
    want: &Want,
    key: &Key,
    until: Option<Instant>,
) -> Result<One, Refused> {
    // Work that is done once is not done again below itself.
    if want.once.is_none()
        && let Ok(socket) = std::env::var(reenter::VARIABLE)
        && !socket.is_empty()
    {
        let mode = want.mode_words();
        let entry = reenter::enter(&socket, engine, key, &mode, want.wait != Wait::Try);
        let entry = match until {
            Some(until) => match tokio::time::timeout_at(until.into(), entry).await {
                Ok(entry) => entry,
                Err(_) => return Err(Refused::Lock(inside(ErrorKind::Timeout, key))),
            },
            None => entry.await,
        };
        match entry {
            Entry::Entered(entered) => return Ok(One::Entered(entered)),
            Entry::Busy => return Err(Refused::Lock(inside(ErrorKind::Busy, key))),
            Entry::Refused(why) => return Err(Refused::Nested(format!("lock {key:?}: {why}"))),
            Entry::NotHeld => {}
        }
    }
    let wait = match (want.wait, until) {
        (Wait::Try, _) => distlock_core::Wait::Try,
        (_, Some(until)) => distlock_core::Wait::For(until.saturating_duration_since(Instant::now())),
        (_, None) => distlock_core::Wait::Forever,
    };
    want.lock(client, key)
        .wait(wait)
        .acquire()
        .await
        .map(One::Own)
        .map_err(Refused::Lock)
}

fn inside(kind: ErrorKind, key: &Key) -> Error {
    Error::new(kind, "held by an ancestor, and another nested run is inside").with_key(key)
}
