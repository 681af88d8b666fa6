//! The state of one key as its row keeps it, and the pure rules over it.
//!
//! The exclusive holder lives in columns of its own, so that a mutex costs one statement. Readers, slots and the
//! fair line live in the `crowd`, which is read, changed here, and written back if nobody else wrote meanwhile. All
//! times are microseconds of the server's clock.

use distlock_core::driver::{Kind, Mode, Order, Refusal};
use distlock_core::line::{Turn, turn};
use serde::{Deserialize, Serialize};

use crate::kind::{Word, kind_of, kind_word, word};
use crate::statement::Cell;

/// The owner of a record that nobody owns: left by a release with `keep`.
pub(crate) const KEPT: &str = "=kept";
/// The owner of a record that nobody owns: left by a break.
pub(crate) const BROKEN: &str = "=broken";
/// The longest time for which a place in line counts without a sign of life.
const PLACE: i64 = 10_000_000;

/// The row of a key.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct State {
    /// 0: there is no row.
    pub(crate) version: i64,
    pub(crate) kind: String,
    pub(crate) owner: String,
    pub(crate) token: i64,
    pub(crate) expires: i64,
    pub(crate) since: i64,
    pub(crate) about: String,
    pub(crate) waits: i64,
    pub(crate) crowd: Vec<Member>,
    /// The server's time of the look.
    pub(crate) now: i64,
}

/// A reader, a slot, or a place in the fair line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Member {
    pub(crate) owner: String,
    pub(crate) mode: Word,
    /// When it stops to count.
    pub(crate) until: i64,
    pub(crate) since: i64,
    /// The number in line; none for one that holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) place: Option<u64>,
    #[serde(default)]
    pub(crate) about: String,
}

/// Who asks for what.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ask<'a> {
    pub(crate) owner: &'a str,
    pub(crate) mode: Mode,
    pub(crate) order: Order,
    pub(crate) join: bool,
    pub(crate) ttl: i64,
    pub(crate) about: &'a str,
}

/// What an ask found.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// It holds; an exclusive hold has a token.
    Held { token: Option<i64> },
    /// It waits; so many are ahead in line, if it has a place. Worth looking again after so many microseconds.
    Waits { ahead: Option<u32>, recheck: i64 },
    /// The key is in use as something else.
    Refused(Refusal),
}

impl State {
    /// Reads a row of `look.sql`.
    pub(crate) fn read(row: &[Cell]) -> Result<Self, String> {
        let [
            _,
            kind,
            owner,
            token,
            expires,
            since,
            about,
            waits,
            crowd,
            _,
            version,
            now,
        ] = row
        else {
            return Err("the row has other columns than expected".into());
        };
        let crowd = match crowd.text() {
            "" => Vec::new(),
            text => serde_json::from_str(text).map_err(|e| format!("the row's crowd was edited: {e}"))?,
        };
        Ok(Self {
            version: version.int(),
            kind: kind.text().into(),
            owner: owner.text().into(),
            token: token.int(),
            expires: expires.int(),
            since: since.int(),
            about: about.text().into(),
            waits: waits.int(),
            crowd,
            now: now.int(),
        })
    }

    /// The crowd as it is stored.
    pub(crate) fn crowd_text(&self) -> String {
        match self.crowd.is_empty() {
            true => String::new(),
            false => serde_json::to_string(&self.crowd).unwrap_or_default(),
        }
    }

    /// The last time at which anybody in the crowd counts.
    pub(crate) fn crowd_until(&self) -> i64 {
        self.crowd.iter().map(|m| m.until).max().unwrap_or(0)
    }

    /// The owner whose turn comes next in the fair line; empty if there is no line.
    pub(crate) fn next(&self) -> &str {
        let first = self
            .crowd
            .iter()
            .filter(|m| m.place.is_some())
            .min_by_key(|m| m.place);
        first.map_or("", |m| &m.owner)
    }

    /// Whether an exclusive hold, or a record that nobody owns, is alive.
    pub(crate) fn taken(&self) -> bool {
        self.expires > self.now
    }

    /// Whether anybody uses the key.
    pub(crate) fn in_use(&self) -> bool {
        self.taken() || self.crowd.iter().any(|m| m.until > self.now)
    }

    pub(crate) fn mode(&self, word: Word) -> Mode {
        let of = match kind_of(&self.kind) {
            Some(Kind::Semaphore { of }) => of,
            _ => 1,
        };
        match word {
            Word::Mutex => Mode::Mutex,
            Word::Write => Mode::Write,
            Word::Read => Mode::Read,
            Word::Slot => Mode::Slot { of },
        }
    }

    /// The mode of the exclusive holder.
    pub(crate) fn head_mode(&self) -> Mode {
        match kind_of(&self.kind) {
            Some(Kind::ReadWrite) => Mode::Write,
            _ => Mode::Mutex,
        }
    }

    /// Those of the crowd who hold.
    pub(crate) fn holding(&self) -> impl Iterator<Item = &Member> {
        self.crowd
            .iter()
            .filter(|m| m.place.is_none() && m.until > self.now)
    }

    /// Those who wait in line, in order.
    pub(crate) fn waiting(&self) -> Vec<&Member> {
        let mut line: Vec<&Member> = self
            .crowd
            .iter()
            .filter(|m| m.place.is_some() && m.until > self.now)
            .collect();
        line.sort_by_key(|m| m.place);
        line
    }

    /// Forgets everybody whose time is over. A holder that is passed over here can no longer renew, even if its row
    /// would have been its own still.
    fn settle(&mut self) {
        let now = self.now;
        self.crowd.retain(|m| m.until > now);
        if !self.taken() && !self.owner.starts_with('=') {
            self.owner.clear();
        }
    }

    fn position(&self, owner: &str) -> Option<usize> {
        self.crowd.iter().position(|m| m.owner == owner)
    }

    /// Takes the key if it is this one's turn; joins the line if it may.
    pub(crate) fn ask(&mut self, ask: &Ask<'_>) -> Found {
        self.settle();
        let kind = kind_word(ask.mode.kind());
        let used = self.taken() && !self.owner.starts_with('=') || !self.crowd.is_empty();
        if used && self.kind != kind {
            let have = kind_of(&self.kind).map_or_else(|| self.kind.clone(), |k| k.to_string());
            let want = ask.mode.kind().to_string();
            return Found::Refused(Refusal::KindMismatch { have, want });
        }
        if self.taken() && self.owner == ask.owner {
            self.expires = self.now.saturating_add(ask.ttl);
            return Found::Held {
                token: Some(self.token),
            };
        }
        let mine = self.position(ask.owner);
        if let Some(i) = mine
            && self.crowd[i].place.is_none()
        {
            self.crowd[i].until = self.now.saturating_add(ask.ttl);
            return Found::Held { token: None };
        }
        let place = mine.and_then(|i| self.crowd[i].place);
        let ahead: Vec<&Member> = self
            .waiting()
            .into_iter()
            .filter(|m| place.is_none_or(|p| m.place < Some(p)))
            .collect();
        let ahead_count = u32::try_from(ahead.len()).unwrap_or(u32::MAX);
        let mut line: Vec<Mode> = self.holding().map(|m| self.mode(m.mode)).collect();
        line.extend(ahead.iter().map(|m| self.mode(m.mode)));
        line.push(ask.mode);
        if !self.taken() && turn(&line, line.len() - 1) == Turn::Mine {
            self.kind = kind;
            return self.take(ask, mine);
        }
        let recheck = self.recheck();
        if ask.order == Order::Any || !ask.join {
            return Found::Waits { ahead: None, recheck };
        }
        self.keep_place(ask, mine, &kind);
        // A place must be kept alive as well.
        let alive = ask.ttl.min(PLACE) / 3;
        Found::Waits {
            ahead: Some(ahead_count),
            recheck: recheck.min(alive),
        }
    }

    fn take(&mut self, ask: &Ask<'_>, mine: Option<usize>) -> Found {
        if let Some(i) = mine {
            self.crowd.remove(i);
        }
        let until = self.now.saturating_add(ask.ttl);
        if ask.mode.is_exclusive() {
            self.owner = ask.owner.into();
            self.token = self.now.max(self.token.saturating_add(1));
            self.expires = until;
            self.since = self.now;
            self.about = ask.about.into();
            return Found::Held {
                token: Some(self.token),
            };
        }
        self.crowd.push(Member {
            owner: ask.owner.into(),
            mode: word(ask.mode),
            until,
            since: self.now,
            place: None,
            about: ask.about.into(),
        });
        Found::Held { token: None }
    }

    /// Joins the line, or shows that the place in it is still wanted. Not at every look: a write is not free.
    fn keep_place(&mut self, ask: &Ask<'_>, mine: Option<usize>, kind: &str) {
        let alive = ask.ttl.min(PLACE);
        let until = self.now.saturating_add(alive);
        match mine {
            Some(i) if self.crowd[i].until.saturating_sub(self.now) > alive / 4 * 3 => {}
            Some(i) => self.crowd[i].until = until,
            None => {
                if !self.taken() || self.owner.starts_with('=') {
                    self.kind = kind.into();
                }
                let last = self.crowd.iter().filter_map(|m| m.place).max();
                self.crowd.push(Member {
                    owner: ask.owner.into(),
                    mode: word(ask.mode),
                    until,
                    since: self.now,
                    place: Some(last.map_or(1, |n| n.saturating_add(1))),
                    about: ask.about.into(),
                });
            }
        }
    }

    /// The time after which somebody's time is over.
    pub(crate) fn recheck(&self) -> i64 {
        let head = self.taken().then_some(self.expires);
        let next = self
            .crowd
            .iter()
            .map(|m| m.until)
            .chain(head)
            .filter(|t| *t > self.now)
            .min();
        next.map_or(0, |t| t.saturating_sub(self.now))
            .saturating_add(1000)
    }

    /// Leaves. Whether it held.
    pub(crate) fn leave(&mut self, owner: &str, keep: i64) -> bool {
        self.settle();
        let until = self.now.saturating_add(keep);
        if self.owner == owner {
            self.owner = if keep > 0 { KEPT.into() } else { String::new() };
            self.expires = if keep > 0 { until } else { 0 };
            self.since = self.now;
            return true;
        }
        let Some(i) = self.position(owner) else {
            return false;
        };
        let held = self.crowd[i].place.is_none();
        if held && keep > 0 {
            self.crowd[i].owner = KEPT.into();
            self.crowd[i].until = until;
        } else {
            self.crowd.remove(i);
        }
        held
    }

    /// Renews a hold of the crowd; `false` if it is not there.
    pub(crate) fn renew(&mut self, owner: &str, ttl: i64) -> bool {
        self.settle();
        let until = self.now.saturating_add(ttl);
        match self
            .crowd
            .iter_mut()
            .find(|m| m.owner == owner && m.place.is_none())
        {
            Some(member) => {
                member.until = until;
                true
            }
            None => false,
        }
    }

    /// Takes the key away from all who hold it; nobody is granted it for `grace`.
    pub(crate) fn take_away(&mut self, grace: i64, about: &str) {
        self.settle();
        self.crowd.retain(|m| m.place.is_some());
        self.owner = BROKEN.into();
        self.about = about.into();
        self.expires = if grace > 0 {
            self.now.saturating_add(grace)
        } else {
            0
        };
        self.since = self.now;
    }
}

#[cfg(test)]
mod tests;
