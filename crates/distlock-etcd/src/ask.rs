//! The transactions: each is one request, atomic at the server.
//!
//! # Joins that arrive late
//! A request whose answer was lost may still be applied, even after the claim was released; on a lease that lives
//! on, its key would block everybody for ever. So every join is conditional on the version of its session's own
//! record, and the release of a claim with an unanswered join raises that version in the same transaction that
//! deletes the key. Whatever arrives after that does nothing. (Joins of other claims that were on their way at that
//! moment are asked again with the new version.)

use distlock_core::driver::Mode;

use crate::name::{self, end_of};
use crate::wire::{
    Compare, CompareResult, CompareTarget, DeleteRangeRequest, KeyValue, PutRequest, RangeRequest, RequestOp,
    Sort, Target, TxnRequest, TxnResponse,
};

/// What a claim's transactions have in common.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ask<'a> {
    /// The prefix of the lock's contenders.
    pub(crate) lock: &'a str,
    /// The claim's own key.
    pub(crate) own: &'a str,
    pub(crate) mode: Mode,
    pub(crate) lease: i64,
    /// The session's own record, and its version as we know it; `None` on a lease of the claim's own, which is
    /// revoked instead.
    pub(crate) joins: Option<(&'a str, i64)>,
}

/// How the answer to a join is read.
#[derive(Debug)]
pub(crate) enum Joined {
    /// The key was made at this revision.
    Made { at: i64 },
    /// The key was there: an earlier request made it.
    Found { at: i64 },
    /// Not applied: the session's record has this version.
    Outdated { version: i64 },
    /// Not applied: somebody is in the way.
    Busy,
}

fn one(key: &str) -> RangeRequest {
    RangeRequest {
        key: key.into(),
        ..Default::default()
    }
}

fn all(prefix: &str) -> RangeRequest {
    RangeRequest {
        key: prefix.into(),
        range_end: end_of(prefix.as_bytes()),
        ..Default::default()
    }
}

/// The first contender, with its value.
fn first(lock: &str) -> RangeRequest {
    RangeRequest {
        limit: 1,
        sort_order: Sort::Ascend.into(),
        sort_target: Target::Create.into(),
        ..all(lock)
    }
}

fn equal(key: &str, operand: CompareTarget) -> Compare {
    Compare::key(key, CompareResult::Equal, operand)
}

impl Ask<'_> {
    /// The prefix in which somebody before us is in our way.
    fn rivals(&self) -> String {
        match self.mode {
            Mode::Read => format!("{}{}", self.lock, name::part(Mode::Write)),
            _ => self.lock.to_owned(),
        }
    }

    /// How many places ahead the one stands for whom we wait.
    fn distance(&self) -> usize {
        match self.mode {
            Mode::Slot { of } => of.max(1) as usize,
            _ => 1,
        }
    }

    /// The rivals before `before` (of all, if 0), the latest first, as many as matter.
    fn line(&self, before: i64) -> RangeRequest {
        let own = usize::from(before == 0 && self.mode != Mode::Read);
        RangeRequest {
            limit: i64::try_from(self.distance() + own).unwrap_or(i64::MAX),
            sort_order: Sort::Descend.into(),
            sort_target: Target::Create.into(),
            keys_only: true,
            max_create_revision: before,
            ..all(&self.rivals())
        }
    }

    /// The one for whom we wait, from the answer to [`line`](Self::line).
    fn blocker<'k>(&self, line: &'k [KeyValue]) -> Option<&'k KeyValue> {
        line.iter()
            .filter(|kv| kv.key != self.own.as_bytes())
            .nth(self.distance() - 1)
    }

    fn put(&self, value: &[u8]) -> PutRequest {
        PutRequest {
            key: self.own.into(),
            value: value.to_vec(),
            lease: self.lease,
            ..Default::default()
        }
    }

    /// Makes the key, whoever is there, and reads the line. Read by [`joined`](Self::joined) and
    /// [`view`](Self::view) with 0.
    pub(crate) fn join(&self, value: &[u8]) -> TxnRequest {
        let mut compare = vec![equal(self.own, CompareTarget::Create(0))];
        compare.extend(self.unfenced());
        TxnRequest {
            compare,
            success: vec![
                self.put(value).into(),
                first(self.lock).into(),
                self.line(0).into(),
            ],
            failure: self.otherwise(),
        }
    }

    /// Makes the key only if nobody is in the way, and reads the first contender. `seen`: for a semaphore, the
    /// revision at which a slot was seen to be free.
    pub(crate) fn attempt(&self, value: &[u8], seen: i64) -> TxnRequest {
        let rivals = self.rivals();
        let nobody = match self.mode {
            // Nobody came since.
            Mode::Slot { .. } => Compare::key(&*rivals, CompareResult::Less, CompareTarget::Mod(seen + 1)),
            _ => equal(&rivals, CompareTarget::Create(0)),
        };
        let mut compare = vec![nobody.to(end_of(rivals.as_bytes()))];
        compare.extend(self.unfenced());
        TxnRequest {
            compare,
            success: vec![self.put(value).into(), first(self.lock).into()],
            failure: self.otherwise(),
        }
    }

    fn unfenced(&self) -> Option<Compare> {
        self.joins
            .map(|(record, version)| equal(record, CompareTarget::Version(version)))
    }

    fn otherwise(&self) -> Vec<RequestOp> {
        let record = self.joins.map_or(self.own, |(record, _)| record);
        vec![one(self.own).into(), first(self.lock).into(), one(record).into()]
    }

    /// What became of a [`join`](Self::join) or an [`attempt`](Self::attempt) that was sent with this version.
    pub(crate) fn joined(reply: &TxnResponse, sent: Option<i64>) -> Joined {
        if reply.succeeded {
            return Joined::Made { at: reply.revision() };
        }
        if let Some(own) = reply.range(0).first() {
            return Joined::Found {
                at: own.create_revision,
            };
        }
        let Some(sent) = sent else { return Joined::Busy };
        let now = reply.range(2).first().map_or(0, |kv| kv.version);
        if now == sent {
            Joined::Busy
        } else {
            Joined::Outdated { version: now }
        }
    }

    /// Confirms that the key is there and reads the line before it. Read by [`view`](Self::view).
    pub(crate) fn look(&self, at: i64) -> TxnRequest {
        TxnRequest {
            compare: vec![equal(self.own, CompareTarget::Create(at))],
            success: vec![first(self.lock).into(), self.line(at - 1).into()],
            failure: Vec::new(),
        }
    }

    /// The first contender and the one for whom we wait, from the two reads that start at `index`.
    pub(crate) fn view<'r>(&self, reply: &'r TxnResponse, index: usize) -> View<'r> {
        View {
            first: reply.range(index).first(),
            blocker: self.blocker(reply.range(index + 1)),
            contenders: reply.count(index),
        }
    }

    /// Deletes the key, if it is still the one that was made then.
    pub(crate) fn leave(&self, at: i64) -> TxnRequest {
        TxnRequest {
            compare: vec![equal(self.own, CompareTarget::Create(at))],
            success: vec![self.delete()],
            failure: Vec::new(),
        }
    }

    /// Deletes the key, and makes every join that is still on its way do nothing.
    pub(crate) fn leave_fenced(&self) -> TxnRequest {
        let mut success = vec![self.delete()];
        success.extend(self.fence());
        TxnRequest {
            compare: Vec::new(),
            success,
            failure: Vec::new(),
        }
    }

    /// Leaves the key to a lease that nobody keeps alive.
    pub(crate) fn keep(&self, at: i64, value: &[u8], lease: i64) -> TxnRequest {
        let put = PutRequest {
            key: self.own.into(),
            value: value.to_vec(),
            lease,
            ..Default::default()
        };
        let mut success = vec![put.into()];
        success.extend(self.fence());
        TxnRequest {
            compare: vec![equal(self.own, CompareTarget::Create(at))],
            success,
            failure: Vec::new(),
        }
    }

    fn delete(&self) -> RequestOp {
        DeleteRangeRequest {
            key: self.own.into(),
            ..Default::default()
        }
        .into()
    }

    fn fence(&self) -> Vec<RequestOp> {
        let Some((record, _)) = self.joins else {
            return Vec::new();
        };
        let put = PutRequest {
            key: record.into(),
            lease: self.lease,
            ..Default::default()
        };
        vec![put.into(), one(record).into()]
    }

    /// Everybody who has or waits for a slot, the first first.
    pub(crate) fn slots(&self) -> RangeRequest {
        RangeRequest {
            limit: i64::try_from(self.distance()).unwrap_or(i64::MAX),
            sort_order: Sort::Ascend.into(),
            sort_target: Target::Create.into(),
            ..all(self.lock)
        }
    }
}

/// What a look saw.
#[derive(Debug, Clone, Copy)]
pub(crate) struct View<'r> {
    pub(crate) first: Option<&'r KeyValue>,
    pub(crate) blocker: Option<&'r KeyValue>,
    /// How many contenders there are, ourselves included.
    pub(crate) contenders: i64,
}

/// Everything under a prefix, in key order from `from` on.
pub(crate) fn page(prefix: &str, from: Vec<u8>, limit: i64) -> RangeRequest {
    RangeRequest {
        key: from,
        range_end: end_of(prefix.as_bytes()),
        limit,
        ..Default::default()
    }
}

/// All contenders of a lock, the first first.
pub(crate) fn whole_line(lock: &str) -> RangeRequest {
    RangeRequest {
        sort_order: Sort::Ascend.into(),
        sort_target: Target::Create.into(),
        ..all(lock)
    }
}

/// The same as it was at this revision.
pub(crate) fn line_at(lock: &str, revision: i64) -> RangeRequest {
    RangeRequest {
        revision,
        ..whole_line(lock)
    }
}

/// How many keys [`read_all`] may be asked for; etcd takes 128 operations in a transaction.
pub(crate) const READ_ALL: usize = 100;

/// Reads these keys at one moment.
pub(crate) fn read_all<'k>(keys: impl Iterator<Item = &'k str>) -> TxnRequest {
    TxnRequest {
        success: keys.map(|key| one(key).into()).collect(),
        ..Default::default()
    }
}

/// Writes another value to a key, on the lease that it has, or on another one.
pub(crate) fn rewrite(key: Vec<u8>, at: i64, value: Vec<u8>, lease: Option<i64>) -> TxnRequest {
    let put = PutRequest {
        key: key.clone(),
        value,
        lease: lease.unwrap_or(0),
        ignore_lease: lease.is_none(),
        ..Default::default()
    };
    TxnRequest {
        compare: vec![Compare::key(key, CompareResult::Equal, CompareTarget::Create(at))],
        success: vec![put.into()],
        failure: Vec::new(),
    }
}

/// Moves a key to another lease.
pub(crate) fn move_to(key: Vec<u8>, at: i64, lease: i64) -> TxnRequest {
    let put = PutRequest {
        key: key.clone(),
        lease,
        ignore_value: true,
        ..Default::default()
    };
    TxnRequest {
        compare: vec![Compare::key(key, CompareResult::Equal, CompareTarget::Create(at))],
        success: vec![put.into()],
        failure: Vec::new(),
    }
}

/// Reads one key.
pub(crate) fn read(key: &str) -> RangeRequest {
    one(key)
}

/// Reads and deletes a key.
pub(crate) fn take(key: &str) -> TxnRequest {
    let delete = DeleteRangeRequest {
        key: key.into(),
        ..Default::default()
    };
    TxnRequest {
        compare: Vec::new(),
        success: vec![one(key).into(), delete.into()],
        failure: Vec::new(),
    }
}

/// Deletes a key made at this revision.
pub(crate) fn remove(key: Vec<u8>, at: i64) -> TxnRequest {
    TxnRequest {
        compare: vec![Compare::key(
            key.clone(),
            CompareResult::Equal,
            CompareTarget::Create(at),
        )],
        success: vec![
            DeleteRangeRequest {
                key,
                ..Default::default()
            }
            .into(),
        ],
        failure: Vec::new(),
    }
}
