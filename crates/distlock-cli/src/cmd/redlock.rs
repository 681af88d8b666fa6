//! `distlock redlock init`: vouches for the nodes of a new deployment.

use distlock::vouch;
use serde_json::json;

use crate::args::{Common, RedlockArgs, RedlockCommand};
use crate::cmd::print_line;
use crate::exit::Exit;
use crate::runtime;
use crate::settings::Session;

/// Has every node of the quorum vote from now on.
pub(crate) fn redlock(common: &Common, args: &RedlockArgs) -> Exit {
    let RedlockCommand::Init { url } = &args.what;
    let Session { engine, say, .. } = match Session::open(&common.at(url.as_deref()), None) {
        Ok(session) => session,
        Err(exit) => return exit,
    };
    let Some(url) = engine.url() else {
        let hint = "for instance: distlock redlock init redlock://h1,h2,h3,h4,h5";
        return say.error(Exit::USAGE, "which quorum? no URL was given", Some(hint));
    };
    let vouched = match runtime::current_thread() {
        Ok(runtime) => runtime.block_on(vouch(url)),
        Err(e) => return say.error(Exit::ENGINE, format_args!("cannot start: {e}"), None),
    };
    match vouched {
        Ok(nodes) if say.is_json() => print_line(&json!({ "vouched": nodes }).to_string()),
        Ok(nodes) => print_line(&format!("{} may vote from now on", nodes.join(", "))),
        Err(e) => return say.failure(&e, Exit::of(&e)),
    }
    Exit::OK
}
