//! `distlock hold`: a lock without a command.

use std::io::Write;

use distlock_core::{Key, Release};
use serde_json::json;

use crate::args::{Common, HoldArgs};
use crate::engine::GOODBYE;
use crate::exit::Exit;
use crate::held::Held;
use crate::obtain::obtain;
use crate::runtime;
use crate::say::Say;
use crate::settings::{Session, Want};
use crate::signals::{Blocked, Signals};

/// Holds until the end of input, a signal, `--max-hold`, or a loss.
pub(crate) fn hold(common: &Common, args: &HoldArgs) -> Exit {
    let session = match Session::open(common, args.lock.status_fd) {
        Ok(session) => session,
        Err(exit) => return exit,
    };
    let want = match Want::new(&args.lock, &session, None) {
        Ok(want) => want,
        Err(exit) => return exit,
    };
    let trouble = |e: std::io::Error| {
        session
            .say
            .error(Exit::ENGINE, format_args!("cannot start: {e}"), None)
    };
    let (blocked, runtime) = match (Blocked::now(), runtime::current_thread()) {
        (Ok(blocked), Ok(runtime)) => (blocked, runtime),
        (Err(e), _) | (_, Err(e)) => return trouble(e),
    };
    runtime.block_on(async {
        match blocked.listen() {
            Ok(signals) => hold_until_told(&session, &want, args, &signals).await,
            Err(e) => trouble(e),
        }
    })
}

async fn hold_until_told(session: &Session, want: &Want, args: &HoldArgs, signals: &Signals) -> Exit {
    let say = &session.say;
    let locks = tokio::select! {
        signal = signals.ending() => return Exit::signal(signal),
        locks = session.engine.connect(want.label.as_deref()) => match locks {
            Ok(locks) => locks,
            Err(e) => return say.failure(&e, Exit::of_connect(&e)),
        },
    };
    let url = session.engine.public_url(&locks);
    let exit = match obtain(&locks, &url, want, say, signals).await {
        Err(exit) => exit,
        Ok(held) => match announce(&held, &url) {
            // Nobody learnt that it is held.
            Err(e) => {
                let _ = held.release().await;
                say.error(Exit::ENGINE, format_args!("standard output: {e}"), None)
            }
            Ok(()) => {
                let why = wait(&held, args, signals).await;
                let_go(held, why, say).await
            }
        },
    };
    locks.shutdown(GOODBYE).await;
    exit
}

/// The one line on standard output.
fn announce(held: &Held, url: &str) -> std::io::Result<()> {
    let tokens = held.tokens();
    let locks: Vec<_> = tokens
        .iter()
        .map(|(key, token)| json!({ "key": key.as_str(), "token": token }))
        .collect();
    let valid_ms = u64::try_from(held.valid_for().as_millis()).unwrap_or(u64::MAX);
    let line = json!({
        "event": "held",
        "key": tokens.first().map(|(key, _)| key.as_str()),
        "token": tokens.first().and_then(|(_, token)| *token),
        "locks": locks,
        "owner": held.owner(),
        "engine": url,
        "valid_for_ms": valid_ms,
        "pid": std::process::id(),
    });
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}")?;
    out.flush()
}

enum Why {
    EndOfInput,
    MaxHold,
    Signal,
    Lost(Key, distlock_core::driver::LostReason),
}

async fn wait(held: &Held, args: &HoldArgs, signals: &Signals) -> Why {
    let limit = async {
        match args.max_hold {
            Some(limit) => tokio::time::sleep(limit).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        biased;
        (key, reason) = held.lost() => Why::Lost(key, reason),
        _ = signals.ending() => Why::Signal,
        () = limit => Why::MaxHold,
        () = end_of_input(), if !args.no_stdin => Why::EndOfInput,
    }
}

/// Reads standard input to its end, whatever is in it. On a thread of its own, which a signal need not wait for.
async fn end_of_input() {
    let (ended, end) = tokio::sync::oneshot::channel();
    let reader = std::thread::Builder::new().name("input".into()).spawn(move || {
        let _ = std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink());
        let _ = ended.send(());
    });
    match reader {
        Ok(_) => drop(end.await),
        Err(_) => std::future::pending().await,
    }
}

async fn let_go(held: Held, why: Why, say: &Say) -> Exit {
    let (exit, word) = match &why {
        Why::EndOfInput => (Exit::OK, "end_of_input"),
        Why::MaxHold => (Exit::MAX_HOLD, "max_hold"),
        // Asked to end, it has done what it was there for.
        Why::Signal => (Exit::OK, "signal"),
        Why::Lost(..) => (Exit::LOST, "lost"),
    };
    if let Why::Lost(key, reason) = &why {
        say.event("lost", json!({ "key": key.as_str(), "reason": reason.word() }));
        say.note(format_args!("the lock {key:?} is lost: {reason}"));
    }
    match held.release().await {
        Ok(Release::Lost(reason)) if exit != Exit::LOST => {
            say.event("released", json!({ "why": word, "lost": reason.word() }));
            say.error(
                Exit::LOST,
                format_args!("the lock was lost before it was released: {reason}"),
                None,
            )
        }
        Err(e) if exit != Exit::LOST => say.failure(&e, Exit::of(&e)),
        _ => {
            say.event("released", json!({ "why": word }));
            exit
        }
    }
}
