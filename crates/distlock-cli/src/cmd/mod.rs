//! The subcommands, one file each.

pub(crate) mod bench;
pub(crate) mod brk;
pub(crate) mod conformance;
pub(crate) mod doctor;
pub(crate) mod elect;
pub(crate) mod hold;
pub(crate) mod inspect;
pub(crate) mod lease;
pub(crate) mod ls;
#[cfg(feature = "redis")]
pub(crate) mod redlock;
pub(crate) mod run;
pub(crate) mod serve;
#[cfg(feature = "sql")]
pub(crate) mod sql;

use std::io::Write;

use distlock::Locks;

use crate::args::Common;
use crate::engine::GOODBYE;
use crate::exit::Exit;
use crate::runtime;
use crate::say::Say;
use crate::settings::Session;

/// Checks what was asked for, connects, does one thing, says goodbye: the frame of the subcommands that do not wait
/// for a lock.
fn contact<T>(
    common: &Common,
    check: impl FnOnce(&Say) -> Result<T, Exit>,
    what: impl AsyncFnOnce(&Session, Locks, T) -> Exit,
) -> Exit {
    let session = match Session::open(common, None) {
        Ok(session) => session,
        Err(exit) => return exit,
    };
    let checked = match check(&session.say) {
        Ok(checked) => checked,
        Err(exit) => return exit,
    };
    let runtime = match runtime::current_thread() {
        Ok(runtime) => runtime,
        Err(e) => {
            return session
                .say
                .error(Exit::ENGINE, format_args!("cannot start: {e}"), None);
        }
    };
    runtime.block_on(async {
        match session.engine.connect(session.config.label.as_deref()).await {
            Ok(locks) => {
                let exit = what(&session, locks.clone(), checked).await;
                locks.shutdown(GOODBYE).await;
                exit
            }
            Err(e) => session.say.failure(&e, Exit::of_connect(&e)),
        }
    })
}

/// Prints a result. A reader that has seen enough, such as `head`, ends the program quietly.
fn print_line(line: &str) {
    let mut out = std::io::stdout().lock();
    if writeln!(out, "{line}").and_then(|()| out.flush()).is_err() {
        std::process::exit(i32::from(Exit::signal(libc::SIGPIPE).number()));
    }
}
