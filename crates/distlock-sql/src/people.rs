//! The row of a key as people see it.

use std::time::SystemTime;

use distlock_core::driver::{About, Holder, LockInfo, Mode, Want};
use distlock_core::{FencingToken, Key};
use uuid::Uuid;

use crate::kind::kind_of;
use crate::state::{Member, State};
use crate::times::micros;

/// What is stored beside a holder. Its owner has a column.
pub(crate) fn about(want: &Want) -> String {
    let mut about = About::of(want);
    about.owner = None;
    about.to_string()
}

/// What is stored beside the record that keeps a broken lock taken for its grace.
pub(crate) fn broken(reason: Option<&str>) -> String {
    let mut about = About::default();
    about.reason = reason.map(Into::into);
    about.to_string()
}

/// Read back; what a human edited beyond recognition is simply not known.
fn read(stored: &str) -> About<'static> {
    About::from_json(stored.as_bytes()).unwrap_or_default()
}

/// Why the present holder, or the record of a broken lock, is there.
pub(crate) fn why(state: &State) -> Option<String> {
    read(&state.about).reason.map(Into::into)
}

/// Who holds.
pub(crate) fn holders(state: &State, client: Uuid) -> Vec<Holder> {
    let head = state.taken().then(|| {
        let mut holder = read(&state.about).holder(&state.owner, state.head_mode(), client);
        let token = (state.token > 0 && !state.owner.starts_with('=')).then_some(state.token);
        holder.token = token.map(|t| FencingToken::new(t.unsigned_abs()));
        timed(holder, state.since, state.expires, state.now)
    });
    head.into_iter()
        .chain(state.holding().map(|m| member(state, m, client)))
        .collect()
}

fn member(state: &State, member: &Member, client: Uuid) -> Holder {
    let mode: Mode = state.mode(member.mode);
    let holder = read(&member.about).holder(&member.owner, mode, client);
    timed(holder, member.since, member.until, state.now)
}

/// With the time since when it is there and until when it stays, by the server's clock.
fn timed(mut holder: Holder, since: i64, until: i64, now: i64) -> Holder {
    // A name that begins so is nobody's.
    if holder.owner.starts_with('=') {
        holder.owner.clear();
    }
    holder.since = SystemTime::UNIX_EPOCH.checked_add(micros(since));
    holder.expires_in = Some(micros(until.saturating_sub(now)));
    holder
}

/// All about a key.
pub(crate) fn info(key: Key, state: &State, client: Uuid) -> LockInfo {
    LockInfo {
        kind: kind_of(&state.kind).filter(|_| state.in_use()),
        token: (state.token > 0).then(|| FencingToken::new(state.token.unsigned_abs())),
        holders: holders(state, client),
        waiters: state
            .waiting()
            .into_iter()
            .map(|m| member(state, m, client))
            .collect(),
        key,
    }
}
