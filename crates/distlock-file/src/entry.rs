//! What a contender writes about itself into the table.

use std::sync::Arc;
use std::time::Duration;

use distlock_core::driver::{Life, Mode, Order, Want};
use distlock_core::{Key, Namespace, OwnerId};
use uuid::Uuid;

use crate::hash;
use crate::snapshot::{Entry, State};

/// The longest texts that are stored, in bytes.
pub(crate) const REASON: usize = 256;
const LABEL: usize = 128;
const HOST: usize = 64;

/// Who this process is, for people who look.
#[derive(Debug)]
pub(crate) struct Me {
    pub(crate) pid: u32,
    pub(crate) host: Option<Arc<str>>,
}

impl Me {
    pub(crate) fn new() -> Self {
        let name = rustix::system::uname();
        Self {
            pid: std::process::id(),
            host: name.nodename().to_str().ok().map(|h| cut(h, HOST)),
        }
    }
}

/// The entry of a contender, before it has joined.
pub(crate) fn of(want: &Want, namespace: &Namespace, me: &Me, claim: u64) -> Entry {
    Entry {
        fifo: want.order == Order::Fifo,
        lease: want.life == Life::Lease,
        owner: want.owner,
        claim,
        mode: want.mode,
        ttl: nanos(want.ttl),
        pid: me.pid,
        label: want.label.as_deref().map(|l| cut(l, LABEL)),
        reason: want.reason.as_deref().map(|r| cut(r, REASON)),
        host: me.host.clone(),
        ..of_key(namespace.record(&want.key).into())
    }
}

/// An entry that only says which key is meant.
pub(crate) fn of_key(record: Arc<str>) -> Entry {
    Entry {
        hash: hash::of(record.as_bytes()),
        key: record,
        owner: OwnerId {
            client: Uuid::nil(),
            n: 0,
        },
        process: 0,
        claim: 0,
        state: State::Waiting,
        mode: Mode::Mutex,
        fifo: false,
        lease: false,
        until: 0,
        ttl: 0,
        token: 0,
        since: 0,
        woken: 0,
        recheck_by: 0,
        pid: 0,
        label: None,
        reason: None,
        host: None,
    }
}

/// The key as it is known to the user, of a record in this namespace.
pub(crate) fn key(namespace: &Namespace, record: &str) -> Option<Key> {
    Key::new(namespace.key_of(record)?).ok()
}

/// At most so many bytes of a text.
pub(crate) fn cut(text: &str, max: usize) -> Arc<str> {
    let end = (0..=max.min(text.len()))
        .rev()
        .find(|at| text.is_char_boundary(*at));
    text[..end.unwrap_or(0)].into()
}

pub(crate) fn nanos(d: Duration) -> u64 {
    u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)
}
