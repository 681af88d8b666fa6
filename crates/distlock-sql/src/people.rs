//! The row of a key as people see it.

use distlock_core::driver::{Holder, LockInfo};
use distlock_core::{FencingToken, Key};
use uuid::Uuid;

use crate::about::{About, Times};
use crate::kind::kind_of;
use crate::state::{Member, State};

/// Who holds.
pub(crate) fn holders(state: &State, client: Uuid) -> Vec<Holder> {
    let times = Times {
        since: state.since,
        until: state.expires,
        now: state.now,
        client,
    };
    let head = state.taken().then(|| {
        let token = (!state.owner.starts_with('=')).then_some(state.token);
        About::read(&state.about).holder(&state.owner, state.head_mode(), token, times)
    });
    head.into_iter()
        .chain(state.holding().map(|m| member(state, m, client)))
        .collect()
}

fn member(state: &State, member: &Member, client: Uuid) -> Holder {
    let times = Times {
        since: member.since,
        until: member.until,
        now: state.now,
        client,
    };
    About::read(&member.about).holder(&member.owner, state.mode(member.mode), None, times)
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
