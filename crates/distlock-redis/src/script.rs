//! Lua scripts: included at compile time, run by their digest.

use std::sync::LazyLock;

use redis::Cmd;

/// One verb of the engine, as a script on the server.
#[derive(Debug)]
pub(crate) struct Script {
    source: &'static str,
    digest: LazyLock<String>,
}

/// Puts scripts together: shared functions first, the verb last.
macro_rules! script {
    ($($file:literal),+) => {
        Script {
            source: concat!($(include_str!(concat!("scripts/", $file, ".lua"))),+),
            digest: LazyLock::new(|| digest(concat!($(include_str!(concat!("scripts/", $file, ".lua"))),+))),
        }
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
pub(crate) static RENEW_HASH: Script = script!("renew_hash");
pub(crate) static RENEW_READ: Script = script!("renew_read");
pub(crate) static RENEW_SLOT: Script = script!("renew_slot");
pub(crate) static RENEW_STRING: Script = script!("renew_string");
pub(crate) static INSPECT: Script = script!("look", "inspect");
pub(crate) static BREAK: Script = script!("line", "look", "break");
pub(crate) static RIGHTS: Script = script!("rights");
pub(crate) static GATE: Script = script!("gate");
pub(crate) static CHECK: Script = script!("check");
pub(crate) static RENEW_RAISE: Script = script!("renew_raise");

fn digest(source: &str) -> String {
    redis::Script::new(source).get_hash().to_owned()
}

impl Script {
    /// The command that runs it by its digest; keys and arguments follow.
    pub(crate) fn call(&self, keys: usize) -> Cmd {
        let mut cmd = Cmd::with_capacity(12, 512);
        cmd.arg("EVALSHA").arg(self.digest.as_str()).arg(keys);
        cmd
    }

    /// The same command with the whole script, which the server then keeps: for one that does not know the digest
    /// (after a restart, a failover or SCRIPT FLUSH).
    pub(crate) fn in_full(&self, call: &Cmd) -> Cmd {
        let mut cmd = Cmd::new();
        cmd.arg("EVAL").arg(self.source);
        for arg in call.args_iter().skip(2) {
            if let redis::Arg::Simple(bytes) = arg {
                cmd.arg(bytes);
            }
        }
        cmd
    }
}
