//! Renewal: one statement for many exclusive holds, a change of the row for each member of a crowd.

use std::collections::{BTreeMap, HashMap, HashSet};

use distlock_core::clock::Moment;
use distlock_core::driver::{DriverError, Hold, LostReason, Reached, Renewal};
use futures_util::FutureExt;
use futures_util::future::{join, join_all};

use crate::config::Dialect;
use crate::state::{BROKEN, State};
use crate::statement::{Arg, Verb};
use crate::store::{Lane, Store};
use crate::times::in_micros;

/// Holds per statement.
const PAGE: usize = 500;
/// Rows of crowds that are changed at the same time.
const AT_ONCE: usize = 8;
const TRIES: u32 = 10;

type Answer<'a> = &'a (dyn Fn(usize, Renewal) + Send + Sync);

/// A hold with its place in the caller's list.
struct One<'a> {
    i: usize,
    hold: &'a Hold,
    name: String,
    owner: String,
    ttl: i64,
    floor: i64,
}

/// Renews all of these.
pub(crate) async fn renew(store: &Store, holds: &[Hold], answer: Answer<'_>) {
    let all = holds.iter().enumerate().map(|(i, hold)| One {
        i,
        hold,
        name: store.engine.namespace().record(&hold.want.key),
        owner: hold.want.owner.to_string(),
        ttl: in_micros(hold.ttl),
        floor: hold
            .floor
            .map_or(0, |f| i64::try_from(f.get()).unwrap_or(i64::MAX)),
    });
    let (alone, crowd): (Vec<_>, Vec<_>) = all.partition(|one| one.hold.want.mode.is_exclusive());
    // MySQL renews those together that are renewed alike.
    let mut groups: BTreeMap<(i64, i64), Vec<One<'_>>> = BTreeMap::new();
    for one in alone {
        let like = match store.config.dialect {
            Dialect::Postgres => (0, 0),
            Dialect::Mysql => (one.ttl, one.floor),
        };
        groups.entry(like).or_default().push(one);
    }
    let pages: Vec<&[One<'_>]> = groups.values().flat_map(|group| group.chunks(PAGE)).collect();
    join(
        join_all(
            pages
                .into_iter()
                .map(|page| exclusive(store, page, answer).boxed()),
        ),
        shared(store, crowd, answer),
    )
    .await;
}

async fn exclusive(store: &Store, page: &[One<'_>], answer: Answer<'_>) {
    let names: Vec<String> = page.iter().map(|one| one.name.clone()).collect();
    let owners: Vec<String> = page.iter().map(|one| one.owner.clone()).collect();
    let args = match store.config.dialect {
        Dialect::Postgres => [
            Arg::Texts(names.clone()),
            Arg::Texts(owners),
            Arg::Ints(page.iter().map(|one| one.ttl).collect()),
            Arg::Ints(page.iter().map(|one| one.floor).collect()),
        ],
        Dialect::Mysql => [
            Arg::Texts(names.clone()),
            Arg::Texts(owners),
            page[0].ttl.into(),
            page[0].floor.into(),
        ],
    };
    let mut lane = Lane::default();
    let sent = store.engine.clock().now();
    let renewed = match store.ask(&mut lane, &page[0].name, Verb::Renew, &args).await {
        Ok(renewed) => renewed,
        Err(e) => return unknown(page, &e, answer),
    };
    let good: HashSet<&str> = match store.config.dialect {
        Dialect::Postgres => renewed.rows.iter().map(|row| row[0].text()).collect(),
        Dialect::Mysql if renewed.changed == page.len() as u64 => {
            page.iter().map(|one| one.owner.as_str()).collect()
        }
        Dialect::Mysql => HashSet::new(),
    };
    let (good, rest): (Vec<_>, Vec<_>) = page.iter().partition(|one| good.contains(one.owner.as_str()));
    for one in good {
        answer(one.i, Renewal::Good(sent + one.hold.ttl));
    }
    if rest.is_empty() {
        return;
    }
    // Which of them are lost, and why. On MySQL one that is alive now was alive a moment ago, so it was renewed.
    let names = rest.iter().map(|one| one.name.clone()).collect();
    let rows = match store
        .ask(&mut lane, &page[0].name, Verb::Look, &[Arg::Texts(names)])
        .await
    {
        Ok(answer) => answer.rows,
        Err(e) => {
            return rest
                .iter()
                .for_each(|one| answer(one.i, Renewal::Unknown(again(&e))));
        }
    };
    let states: HashMap<&str, State> = rows
        .iter()
        .filter_map(|row| Some((row[0].text(), State::read(row).ok()?)))
        .collect();
    for one in rest {
        let state = states.get(one.name.as_str());
        let renewal = match state.filter(|s| s.owner == one.owner && s.taken()) {
            Some(_) if store.config.dialect == Dialect::Mysql => Renewal::Good(sent + one.hold.ttl),
            // It was not there when we renewed and is there now: only an edit by hand does that.
            _ => Renewal::Lost(why(state, &one.owner)),
        };
        answer(one.i, renewal);
    }
}

fn why(state: Option<&State>, owner: &str) -> LostReason {
    match state {
        Some(s) if s.owner == owner => LostReason::Expired,
        Some(s) if s.owner == BROKEN => LostReason::Broken {
            reason: crate::people::why(s),
        },
        _ => LostReason::Taken,
    }
}

/// Members of crowds: those of one row together.
async fn shared(store: &Store, crowd: Vec<One<'_>>, answer: Answer<'_>) {
    let mut rows: BTreeMap<String, Vec<One<'_>>> = BTreeMap::new();
    for one in crowd {
        rows.entry(one.name.clone()).or_default().push(one);
    }
    let rows: Vec<_> = rows.into_iter().collect();
    for some in rows.chunks(AT_ONCE) {
        join_all(
            some.iter()
                .map(|(name, members)| row(store, name, members, answer).boxed()),
        )
        .await;
    }
}

async fn row(store: &Store, name: &str, members: &[One<'_>], answer: Answer<'_>) {
    match try_row(store, name, members).await {
        Ok((sent, outcome)) => {
            for (one, lost) in members.iter().zip(outcome) {
                answer(
                    one.i,
                    lost.map_or(Renewal::Good(sent + one.hold.ttl), Renewal::Lost),
                );
            }
        }
        Err(e) => unknown(members, &e, answer),
    }
}

async fn try_row(
    store: &Store,
    name: &str,
    members: &[One<'_>],
) -> Result<(Moment, Vec<Option<LostReason>>), DriverError> {
    let mut lane = Lane::default();
    for tries in 1..=TRIES {
        let sent = store.engine.clock().now();
        let seen = store.look(&mut lane, name).await?;
        let mut next = seen.clone();
        let lost = members
            .iter()
            .map(|one| (!next.renew(&one.owner, one.ttl)).then(|| why(Some(&seen), &one.owner)));
        let lost: Vec<_> = lost.collect();
        let nothing = lost.iter().all(Option::is_some);
        if nothing || store.write(&mut lane, name, &seen, &next, false).await? {
            return Ok((sent, lost));
        }
        store.pause(tries).await;
    }
    Err(DriverError::unavailable(
        Reached::No,
        "many others write this row at the same time",
    ))
}

fn unknown(page: &[One<'_>], e: &DriverError, answer: Answer<'_>) {
    for one in page {
        answer(one.i, Renewal::Unknown(again(e)));
    }
}

/// The same error once more.
fn again(e: &DriverError) -> DriverError {
    DriverError {
        retry: e.retry,
        ..DriverError::unavailable(e.reached, e.to_string())
    }
}
