//! `distlock break`: a lock is taken away from its holders.

use std::time::Duration;

use distlock_core::FencingToken;
use distlock_core::driver::Break;
use serde_json::json;

use crate::args::{BreakArgs, Common};
use crate::cmd::{contact, print_line};
use crate::exit::Exit;
use crate::say::{describe, holder_json, one_line};
use crate::settings::key;

/// How long nobody may hold the lock after its holder was told.
const GRACE: Duration = Duration::from_secs(5);

/// Breaks it.
pub(crate) fn brk(common: &Common, args: &BreakArgs) -> Exit {
    contact(
        common,
        |say| key(&args.key, say),
        async |session, locks, key| {
            let say = &session.say;
            let how = Break {
                expect: args.expect_token.map(FencingToken::new),
                grace: if args.now { Duration::ZERO } else { GRACE },
                reason: Some(args.reason.clone()),
            };
            let holders = match locks.break_lock(&key, how).await {
                Ok(holders) => holders,
                Err(e) => return say.failure(&e, Exit::of(&e)),
            };
            if say.is_json() {
                let holders: Vec<_> = holders.iter().map(holder_json).collect();
                print_line(&json!({ "key": key.as_str(), "broken": holders }).to_string());
            } else if holders.is_empty() {
                print_line(&format!("{key:?}: nobody held it"));
            } else {
                for holder in &holders {
                    print_line(&format!("{key:?}: taken from {}", one_line(&describe(holder))));
                }
                if !args.now {
                    print_line("it is told to stop; the next one may hold the lock in 5s");
                }
            }
            Exit::OK
        },
    )
}
