//! `distlock acquire`, `renew`, `release`: a lease that no process keeps alive, for steps that share a lock.

use std::io::Read;
use std::str::FromStr;

use distlock_core::{Error, ErrorKind, Guard, Lease, Release};
use serde_json::{Value, json};

use crate::args::{AcquireArgs, Common, ReleaseArgs, RenewArgs};
use crate::cmd::contact;
use crate::engine::GOODBYE;
use crate::exit::Exit;
use crate::obtain::obtain_one;
use crate::runtime;
use crate::say::Say;
use crate::settings::{Session, Want};
use crate::signals::Blocked;

/// Takes a lease and prints its handle.
pub(crate) fn acquire(common: &Common, args: &AcquireArgs) -> Exit {
    let session = match Session::open(common, args.lock.status_fd) {
        Ok(session) => session,
        Err(exit) => return exit,
    };
    let say = &session.say;
    let want = match Want::new(&args.lock, &session, None) {
        Ok(want) => want,
        Err(exit) => return exit,
    };
    let [key] = &want.keys[..] else {
        let hint = Some("acquire them one by one, in the same order everywhere");
        return say.error(Exit::USAGE, "a lease is of one key", hint);
    };
    let trouble = |e: std::io::Error| say.error(Exit::ENGINE, format_args!("cannot start: {e}"), None);
    let (blocked, runtime) = match (Blocked::now(), runtime::current_thread()) {
        (Ok(blocked), Ok(runtime)) => (blocked, runtime),
        (Err(e), _) | (_, Err(e)) => return trouble(e),
    };
    runtime.block_on(async {
        let signals = match blocked.listen() {
            Ok(signals) => signals,
            Err(e) => return trouble(e),
        };
        let locks = match session.engine.connect(want.label.as_deref()).await {
            Ok(locks) => locks,
            Err(e) => return say.failure(&e, Exit::of_connect(&e)),
        };
        let url = session.engine.public_url(&locks);
        let exit = match obtain_one(&locks, &want, key, say, &signals).await {
            Ok(guard) => match print_lease(guard, &url, say) {
                Ok(()) => Exit::OK,
                Err(e) => say.failure(&e, Exit::of(&e)),
            },
            Err(exit) => exit,
        };
        locks.shutdown(GOODBYE).await;
        exit
    })
}

/// Renews a lease for another TTL.
pub(crate) fn renew(common: &Common, args: &RenewArgs) -> Exit {
    with_lease(common, &args.handle, async |guard, url, say| {
        print_lease(guard, url, say)
    })
}

/// Gives a lease back.
pub(crate) fn release(common: &Common, args: &ReleaseArgs) -> Exit {
    with_lease(common, &args.handle, async |guard, _, say| {
        let key = guard.key().clone();
        match guard.release().await? {
            Release::Lost(reason) => Err(Error::new(
                ErrorKind::NotHeld,
                format!("the lease was over before it was released: {reason}"),
            )
            .with_key(&key)),
            _ => {
                say.event("released", json!({ "key": key.as_str() }));
                Ok(())
            }
        }
    })
}

/// Resumes the lease and does something with it.
fn with_lease(
    common: &Common,
    handle: &str,
    what: impl AsyncFnOnce(Guard, &str, &Say) -> Result<(), Error>,
) -> Exit {
    let read = |say: &Say| read_handle(handle).map_err(|e| say.failure(&e, Exit::USAGE));
    contact(common, read, async |session, locks, lease| {
        let say = &session.say;
        let url = session.engine.public_url(&locks);
        let done = match locks.resume(&lease).await {
            Ok(guard) => what(guard, &url, say).await,
            Err(e) => Err(e),
        };
        match done {
            Ok(()) => Exit::OK,
            Err(e) => say.failure(&e, Exit::of(&e)),
        }
    })
}

fn read_handle(handle: &str) -> Result<Lease, Error> {
    if handle != "-" {
        return Lease::from_str(handle);
    }
    let mut text = String::new();
    // Longer than any handle.
    std::io::stdin()
        .take(8 * 1024)
        .read_to_string(&mut text)
        .map_err(|e| {
            Error::new(
                ErrorKind::InvalidConfig,
                "the handle could not be read from standard input",
            )
            .with_source(e)
        })?;
    let handle = match serde_json::from_str::<Value>(text.trim()) {
        Ok(value) => value.get("handle").and_then(Value::as_str).map(str::to_owned),
        Err(_) => None,
    };
    Lease::from_str(handle.as_deref().unwrap_or(text.trim()))
}

/// Lets go of the guard but not of the lock, and prints the handle.
fn print_lease(guard: Guard, url: &str, say: &Say) -> Result<(), Error> {
    let (owner, valid) = (guard.owner(), guard.valid_for());
    let lease = guard.detach()?;
    let line = if say.is_json() {
        json!({
            "handle": lease.to_string(),
            "key": lease.key().as_str(),
            "token": lease.token().map(|t| t.get()),
            "owner": owner.to_string(),
            "engine": url,
            "ttl_ms": u64::try_from(lease.ttl().as_millis()).unwrap_or(u64::MAX),
            "valid_for_ms": u64::try_from(valid.as_millis()).unwrap_or(u64::MAX),
        })
        .to_string()
    } else {
        lease.to_string()
    };
    crate::cmd::print_line(&line);
    Ok(())
}
