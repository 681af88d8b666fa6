//! `distlock redlock init`: the nodes of a new Redlock deployment need not wait before they vote.

use serde_json::json;

use crate::args::{Common, RedlockCommand};
use crate::cmd::print_line;
use crate::exit::Exit;
use crate::runtime;
use crate::settings::Session;

pub(crate) fn redlock(common: &Common, command: &RedlockCommand) -> Exit {
    let RedlockCommand::Init { url } = command;
    let session = match Session::open(common, None) {
        Ok(session) => session,
        Err(exit) => return exit,
    };
    let say = &session.say;
    let runtime = match runtime::current_thread() {
        Ok(runtime) => runtime,
        Err(e) => return say.error(Exit::ENGINE, format_args!("cannot start: {e}"), None),
    };
    match runtime.block_on(distlock::vouch(url)) {
        Ok(nodes) if say.is_json() => print_line(&json!({ "vouched": nodes }).to_string()),
        Ok(nodes) => nodes
            .iter()
            .for_each(|node| print_line(&format!("{node}: vouched for; it votes from now on"))),
        Err(e) => return say.failure(&e, Exit::of_connect(&e)),
    }
    Exit::OK
}
