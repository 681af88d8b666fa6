//! Lua scripts: included at compile time, run by their digest.

use std::borrow::Cow;
use std::sync::OnceLock;

use redis::Cmd;

/// One verb of the engine, as a script on the server.
#[derive(Debug)]
pub(crate) struct Script {
    source: Cow<'static, str>,
    digest: OnceLock<String>,
    /// The same with sharded publish/subscribe.
    sharded: OnceLock<Option<Box<Self>>>,
}

/// Puts scripts together: shared functions first, the verb last.
macro_rules! script {
    ($($file:literal),+) => {
        Script::of(Cow::Borrowed(concat!($(include_str!(concat!("scripts/", $file, ".lua"))),+)))
    };
}

pub(crate) static MUTEX_ACQUIRE: Script = script!("mint", "mutex_acquire");
pub(crate) static MUTEX_RELEASE: Script = script!("mutex_release");
pub(crate) static FAIR_ACQUIRE: Script = script!("mint", "pace", "queue", "fair_acquire");
pub(crate) static FAIR_RELEASE: Script = script!("queue", "fair_release");
pub(crate) static QUEUE_PRUNE: Script = script!("queue", "queue_prune");
pub(crate) static READ_ACQUIRE: Script = script!("people", "pace", "line", "join", "read_acquire");
pub(crate) static READ_RELEASE: Script = script!("line", "read_release");
pub(crate) static WRITE_ACQUIRE: Script = script!("mint", "pace", "line", "join", "write_acquire");
pub(crate) static WRITE_RELEASE: Script = script!("line", "write_release");
pub(crate) static SLOT_ACQUIRE: Script = script!("people", "pace", "line", "join", "slot_acquire");
pub(crate) static SLOT_RELEASE: Script = script!("line", "slot_release");
pub(crate) static STRING_ACQUIRE: Script = script!("mint", "string_acquire");
pub(crate) static STRING_ACQUIRE_AGED: Script = script!("mint", "aged", "string_acquire", "aged_end");
pub(crate) static STRING_RELEASE: Script = script!("string_release");
pub(crate) static RENEW_HASH: Script = script!("keys", "renew_hash");
pub(crate) static RENEW_READ: Script = script!("keys", "renew_read");
pub(crate) static RENEW_SLOT: Script = script!("keys", "renew_slot");
pub(crate) static RENEW_STRING: Script = script!("keys", "renew_string");
pub(crate) static INSPECT: Script = script!("look", "inspect");
pub(crate) static BREAK: Script = script!("line", "look", "break");
pub(crate) static RIGHTS: Script = script!("rights");
pub(crate) static GATE: Script = script!("gate");
pub(crate) static CHECK: Script = script!("check");
pub(crate) static RENEW_RAISE: Script = script!("renew_raise");

/// The script that publishes to the subscribers of its own slot; `None` if it does not publish. A message to a client
/// (`publish`, in small letters) goes to all nodes all the same.
fn in_shards(source: &str) -> Option<Box<Script>> {
    const COMMAND: &str = "('PUBLISH', ";
    let published = || source.replace(COMMAND, "('SPUBLISH', ");
    source
        .contains(COMMAND)
        .then(|| Box::new(Script::of(Cow::Owned(published()))))
}

impl Script {
    const fn of(source: Cow<'static, str>) -> Self {
        Self {
            source,
            digest: OnceLock::new(),
            sharded: OnceLock::new(),
        }
    }

    fn digest(&self) -> &str {
        self.digest
            .get_or_init(|| redis::Script::new(&self.source).get_hash().to_owned())
    }

    /// With sharded publish/subscribe, or with the usual one.
    pub(crate) fn told(&'static self, sharded: bool) -> &'static Self {
        if !sharded {
            return self;
        }
        let other = self.sharded.get_or_init(|| in_shards(&self.source));
        other.as_deref().unwrap_or(self)
    }

    /// The command that runs it by its digest; keys and arguments follow.
    pub(crate) fn call(&self, keys: usize) -> Cmd {
        let mut cmd = Cmd::with_capacity(12, 512);
        cmd.arg("EVALSHA").arg(self.digest()).arg(keys);
        cmd
    }

    /// The command about many locks, with all its keys and arguments. `spread`: they are in many slots of a cluster; then
    /// none of the keys can be declared (see `keys.lua`).
    pub(crate) fn about(&self, keys: &[String], args: &[Vec<u8>], spread: bool) -> Cmd {
        let mut cmd = self.call(if spread { 0 } else { keys.len() });
        match spread {
            true => cmd.arg(args).arg(keys).arg(keys.len()),
            false => cmd.arg(keys).arg(args),
        };
        cmd
    }

    /// The same command with the whole script, which the server then keeps: for one that does not know the digest
    /// (after a restart, a failover or SCRIPT FLUSH).
    pub(crate) fn in_full(&self, call: &Cmd) -> Cmd {
        let mut cmd = Cmd::new();
        cmd.arg("EVAL").arg(&*self.source);
        for arg in call.args_iter().skip(2) {
            if let redis::Arg::Simple(bytes) = arg {
                cmd.arg(bytes);
            }
        }
        cmd
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_published_in_a_shard_is_a_script_of_its_own() {
        let sharded = MUTEX_RELEASE.told(true);
        assert!(sharded.source.contains("'SPUBLISH'") && !sharded.source.contains("('PUBLISH'"));
        assert_ne!(sharded.digest(), MUTEX_RELEASE.told(false).digest());
        assert!(std::ptr::eq(MUTEX_ACQUIRE.told(true), &MUTEX_ACQUIRE));
        let breaks = BREAK.told(true);
        assert!(breaks.source.contains("call('publish', 'distlock_client:'"));
    }
}
