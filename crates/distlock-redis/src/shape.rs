//! How one contender's lock looks on the server: its keys, scripts and channel.

use std::sync::Arc;
use std::time::Duration;

use distlock_core::driver::{Mode, Order, Want};
use distlock_core::{FencingToken, Namespace, OwnerId};
use redis::Cmd;

use crate::config::{Config, Layout, ValueFormat};
use crate::names::{Names, STAMP, hex, permit};
use crate::script::{self, Script};

/// One contender's lock on the server.
#[derive(Debug)]
pub(crate) struct Shape {
    /// The lock's own key.
    pub(crate) key: Arc<str>,
    /// The owner as it is stored: a field of the hash, or the value of the string.
    pub(crate) stored: Arc<str>,
    /// The owner itself.
    owner: OwnerId,
    /// Others may share the name.
    exact: bool,
    /// The server tells its age with each acquisition.
    aged: bool,
    /// Releases are told to the subscribers of the slot.
    sharded: bool,
    pub(crate) form: Form,
}

/// The format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// Redisson's plain lock; `fenced` with its token counter.
    Mutex { fenced: bool },
    /// Redisson's fair lock.
    Fair { fenced: bool },
    /// A share of Redisson's read/write lock; `fifo` in our own line.
    Read { fifo: bool },
    /// Redisson's read/write lock, as the writer.
    Write { fifo: bool },
    /// One permit of Redisson's expirable-permit semaphore.
    Slot { of: u32, fifo: bool },
    /// A plain string.
    String,
}

/// A script with its keys and arguments.
pub(crate) type Call = (&'static Script, Cmd);

impl Shape {
    pub(crate) fn new(namespace: &Namespace, config: &Config, want: &Want) -> Self {
        let (record, fenced) = (config.stored(namespace, &want.key), config.fenced);
        let owner = String::from(want.owner);
        let fifo = want.order == Order::Fifo;
        let (key, stored, form) = match &config.layout {
            Layout::String { value, .. } => {
                let stored = match value {
                    ValueFormat::Owner => owner,
                    ValueFormat::Hex => hex(want.owner),
                };
                (record, stored, Form::String)
            }
            Layout::Redisson => match want.mode {
                Mode::Mutex if fifo => (record, owner, Form::Fair { fenced }),
                Mode::Mutex => (record, owner, Form::Mutex { fenced }),
                Mode::Read => (record, owner, Form::Read { fifo }),
                Mode::Write => (record, format!("{owner}:write"), Form::Write { fifo }),
                Mode::Slot { of } => (record, owner, Form::Slot { of, fifo }),
            },
        };
        Self {
            key: key.into(),
            stored: stored.into(),
            owner: want.owner,
            exact: namespace.is_exact(),
            aged: config.aged,
            sharded: config.sharded == Some(true),
            form,
        }
    }

    fn names(&self) -> Names<'_> {
        Names(&self.key)
    }

    fn call(&self, script: &'static Script, keys: usize) -> Call {
        let script = script.told(self.sharded);
        (script, script.call(keys))
    }

    /// The script that takes the lock, or joins its line if it has one.
    pub(crate) fn acquire(
        &self,
        ttl: Duration,
        about: &str,
        join: bool,
        proposed: Option<FencingToken>,
    ) -> Call {
        let (names, ttl) = (self.names(), millis(ttl));
        let fence = |fenced: bool| fenced.then(|| names.fence());
        match self.form {
            Form::Mutex { fenced } => {
                let fence = fence(fenced);
                let (script, mut cmd) = self.call(&script::MUTEX_ACQUIRE, 3 + usize::from(fenced));
                cmd.arg(&*self.key)
                    .arg(names.queue())
                    .arg(names.record())
                    .arg(fence);
                cmd.arg(&*self.stored).arg(ttl).arg(about);
                (script, cmd)
            }
            Form::Fair { fenced } => {
                let fence = fence(fenced);
                let (script, mut cmd) = self.call(&script::FAIR_ACQUIRE, 5 + usize::from(fenced));
                self.queue_keys(&mut cmd);
                cmd.arg(names.record()).arg(fence);
                cmd.arg(&*self.stored).arg(ttl).arg(about).arg(u8::from(join));
                (script, cmd)
            }
            Form::Read { fifo } => {
                let (script, mut cmd) = self.call(&script::READ_ACQUIRE, 5);
                cmd.arg(&*self.key)
                    .arg(names.life(&self.stored))
                    .arg(names.people());
                cmd.arg(names.line()).arg(names.line_seen());
                cmd.arg(&*self.stored)
                    .arg(ttl)
                    .arg(about)
                    .arg(manner(fifo, join))
                    .arg(names.rw_channel());
                (script, cmd)
            }
            Form::Write { fifo } => {
                let (script, mut cmd) = self.call(&script::WRITE_ACQUIRE, 4);
                cmd.arg(&*self.key)
                    .arg(names.record())
                    .arg(names.line())
                    .arg(names.line_seen());
                cmd.arg(&*self.stored).arg(ttl).arg(about).arg(manner(fifo, join));
                (script, cmd)
            }
            Form::Slot { of, fifo } => {
                let (script, mut cmd) = self.call(&script::SLOT_ACQUIRE, 5);
                cmd.arg(&*self.key).arg(names.leases()).arg(names.people());
                cmd.arg(names.line()).arg(names.line_seen());
                cmd.arg(&permit(self.owner)[..]).arg(ttl).arg(about).arg(of);
                cmd.arg(names.slot_channel())
                    .arg(&*self.stored)
                    .arg(manner(fifo, join));
                (script, cmd)
            }
            Form::String => {
                let (script, stamp) = match self.aged {
                    true => (&script::STRING_ACQUIRE_AGED, Some(STAMP)),
                    false => (&script::STRING_ACQUIRE, None),
                };
                let (script, mut cmd) = self.call(script, 2 + usize::from(self.aged));
                cmd.arg(&*self.key).arg(names.record()).arg(stamp);
                cmd.arg(&*self.stored)
                    .arg(ttl)
                    .arg(about)
                    .arg(String::from(self.owner))
                    .arg(proposed.map(FencingToken::get));
                (script, cmd)
            }
        }
    }

    /// The script that leaves, from whatever standing. `keep`: an ownerless record stays that long.
    pub(crate) fn release(&self, keep: Option<Duration>) -> Call {
        let (names, keep) = (self.names(), keep.map_or(0, millis));
        match self.form {
            Form::Mutex { .. } => {
                let (script, mut cmd) = self.call(&script::MUTEX_RELEASE, 2);
                cmd.arg(&*self.key).arg(names.queue());
                cmd.arg(&*self.stored).arg(names.mutex_channel()).arg(keep);
                (script, cmd)
            }
            Form::Fair { .. } => {
                let (script, mut cmd) = self.call(&script::FAIR_RELEASE, 4);
                self.queue_keys(&mut cmd);
                cmd.arg(&*self.stored).arg(names.mutex_channel()).arg(keep);
                (script, cmd)
            }
            Form::Read { .. } => {
                let (script, mut cmd) = self.call(&script::READ_RELEASE, 5);
                cmd.arg(&*self.key)
                    .arg(names.life(&self.stored))
                    .arg(names.people());
                cmd.arg(names.line()).arg(names.line_seen());
                cmd.arg(&*self.stored)
                    .arg(names.rw_channel())
                    .arg(keep)
                    .arg(names.lives());
                (script, cmd)
            }
            Form::Write { .. } => {
                let (script, mut cmd) = self.call(&script::WRITE_RELEASE, 3);
                cmd.arg(&*self.key).arg(names.line()).arg(names.line_seen());
                cmd.arg(&*self.stored).arg(names.rw_channel()).arg(keep);
                (script, cmd)
            }
            Form::Slot { .. } => {
                let (script, mut cmd) = self.call(&script::SLOT_RELEASE, 5);
                cmd.arg(&*self.key).arg(names.leases()).arg(names.people());
                cmd.arg(names.line()).arg(names.line_seen());
                cmd.arg(&permit(self.owner)[..])
                    .arg(names.slot_channel())
                    .arg(keep)
                    .arg(&*self.stored)
                    .arg(u8::from(self.exact));
                (script, cmd)
            }
            Form::String => {
                let (script, mut cmd) = self.call(&script::STRING_RELEASE, 1);
                cmd.arg(&*self.key)
                    .arg(&*self.stored)
                    .arg(names.string_channel())
                    .arg(keep);
                (script, cmd)
            }
        }
    }

    /// The script that moves a line on whose head died while the lock is free.
    pub(crate) fn prune(&self) -> Call {
        let (script, mut cmd) = self.call(&script::QUEUE_PRUNE, 4);
        self.queue_keys(&mut cmd);
        cmd.arg(self.names().mutex_channel());
        (script, cmd)
    }

    /// Adds this hold's keys and, apart, its arguments to a renewal that raises the stored token.
    pub(crate) fn raise(&self, ttl: Duration, least: u64, keys: &mut Vec<String>, args: &mut Vec<Vec<u8>>) {
        keys.push(self.key.to_string());
        keys.push(self.names().record());
        args.push(self.stored.as_bytes().to_vec());
        args.push(millis(ttl).to_string().into_bytes());
        args.push(least.to_string().into_bytes());
    }

    /// Adds this hold's keys and, apart, its arguments to a renewal.
    pub(crate) fn renew(&self, ttl: Duration, keys: &mut Vec<String>, args: &mut Vec<Vec<u8>>) {
        keys.push(self.key.to_string());
        match self.form {
            Form::Read { .. } => keys.push(self.names().life(&self.stored)),
            Form::Slot { .. } => keys.push(self.names().leases()),
            _ => {}
        }
        args.push(match self.form {
            Form::Slot { .. } => permit(self.owner).to_vec(),
            _ => self.stored.as_bytes().to_vec(),
        });
        args.push(millis(ttl).to_string().into_bytes());
    }

    /// The channel on which this contender is woken.
    pub(crate) fn channel(&self) -> String {
        let names = self.names();
        let own = |channel: String, own: bool| {
            if own {
                format!("{channel}:{}", self.stored)
            } else {
                channel
            }
        };
        match self.form {
            Form::Mutex { .. } => names.mutex_channel(),
            Form::Fair { .. } => names.fair_channel(&self.stored),
            Form::Read { fifo } | Form::Write { fifo } => own(names.rw_channel(), fifo),
            Form::Slot { fifo, .. } => own(names.slot_channel(), fifo),
            Form::String => names.string_channel(),
        }
    }

    /// The key that says why the lock was last broken.
    pub(crate) fn broken(&self) -> String {
        self.names().broken()
    }

    /// Whether the lock's key says by itself whether this contender holds it.
    pub(crate) fn tracked(&self) -> bool {
        !matches!(self.form, Form::Read { .. } | Form::Slot { .. })
    }

    fn queue_keys(&self, cmd: &mut Cmd) {
        let names = self.names();
        cmd.arg(&*self.key)
            .arg(names.queue())
            .arg(names.deadlines())
            .arg(names.seen());
    }
}

/// How a contender of a shared lock treats our line.
fn manner(fifo: bool, join: bool) -> &'static str {
    match (fifo, join) {
        (false, _) => "any",
        (true, false) => "try",
        (true, true) => "join",
    }
}

/// Whole milliseconds, as Redis counts; never zero, which would mean "delete now".
pub(crate) fn millis(d: Duration) -> u64 {
    u64::try_from(d.as_millis()).unwrap_or(u64::MAX).clamp(1, 1 << 52)
}
