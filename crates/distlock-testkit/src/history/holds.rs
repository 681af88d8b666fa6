//! The holds of a history: each contender's way from asking to its end.

use std::collections::BTreeMap;

use distlock_core::driver::Mode;
use serde::{Deserialize, Serialize};

use super::{History, HowReleased, What};

/// A contender: its process, and its number there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct HoldId {
    /// The process.
    pub process: u32,
    /// The contender's number in its process.
    pub hold: u64,
}

impl std::fmt::Display for HoldId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "p{}#{}", self.process, self.hold)
    }
}

/// What a history tells of one contender.
#[derive(Debug, Clone)]
pub struct Hold {
    /// Who.
    pub id: HoldId,
    /// The lock's name.
    pub key: String,
    /// How it wanted to hold it.
    pub mode: Mode,
    /// Whether it insisted on its turn.
    pub fifo: bool,
    /// The lease, in nanoseconds.
    pub ttl: u64,
    /// When it began to ask.
    pub asked: u64,
    /// When it was known to be in line, and its place.
    pub queued: Option<(u64, Option<u64>)>,
    /// When it was granted.
    pub granted: Option<u64>,
    /// Its token.
    pub token: Option<u64>,
    /// Each validity that its guard told: when it began to look, when it was told, until when.
    pub valid: Vec<(u64, u64, u64)>,
    /// Each answer to "do you hold": when it was asked, when answered, and what.
    pub answers: Vec<(u64, u64, bool)>,
    /// The tokens of its re-entries.
    pub reentered: Vec<(u64, Option<u64>)>,
    /// When it gave up or was refused.
    pub refused: Option<u64>,
    /// When it was told that it had lost.
    pub lost: Option<(u64, String)>,
    /// When it called release.
    pub releases: Option<u64>,
    /// When that was answered, and how.
    pub released: Option<(u64, HowReleased)>,
    /// When its process was killed.
    pub killed: Option<u64>,
}

impl Hold {
    /// The last moment of which its guard said that it would be valid.
    pub fn until(&self) -> u64 {
        self.valid.last().map_or(0, |v| v.2)
    }

    /// The time during which it may believe that it holds: from the grant to the earliest of its call of release,
    /// being told of the loss, the end of its validity and its death. `None` if it was never granted or the grant
    /// came too late.
    pub fn interval(&self) -> Option<(u64, u64)> {
        let from = self.granted?;
        let to = [self.releases, self.lost.as_ref().map(|l| l.0), self.killed]
            .into_iter()
            .flatten()
            .fold(self.until(), u64::min);
        (from < to).then_some((from, to))
    }

    /// The time during which it waits: from asking to the grant, the refusal, its death or, at the latest, `end`.
    pub fn wait(&self, end: u64) -> (u64, u64) {
        let to = [self.granted, self.refused, self.killed]
            .into_iter()
            .flatten()
            .fold(end, u64::min);
        (self.asked, to)
    }
}

/// The contenders for one key.
#[derive(Debug, Clone, Default)]
pub struct KeyHistory {
    holds: Vec<Hold>,
    grants: Vec<(u64, usize)>,
}

impl KeyHistory {
    /// All contenders, in order of asking.
    pub fn holds(&self) -> &[Hold] {
        &self.holds
    }

    /// Those that were granted strictly between these moments, in order of their grants.
    pub fn granted_between(&self, after: u64, before: u64) -> impl DoubleEndedIterator<Item = &Hold> {
        let from = self.grants.partition_point(|(at, _)| *at <= after);
        let to = self.grants.partition_point(|(at, _)| *at < before).max(from);
        self.grants[from..to].iter().map(|(_, n)| &self.holds[*n])
    }

    /// All that were granted, in order of their grants.
    pub fn granted(&self) -> impl DoubleEndedIterator<Item = &Hold> {
        self.grants.iter().map(|(_, n)| &self.holds[*n])
    }
}

/// A store's decision about a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Write {
    /// When.
    pub at: u64,
    /// Whose.
    pub by: HoldId,
    /// Its token.
    pub token: Option<u64>,
    /// The value.
    pub value: u64,
    /// The decision.
    pub accepted: bool,
}

impl History {
    /// All contenders, in order of asking.
    pub fn holds(&self) -> Vec<Hold> {
        let mut holds: BTreeMap<HoldId, Hold> = BTreeMap::new();
        let mut looks: BTreeMap<HoldId, u64> = BTreeMap::new();
        for event in self.events() {
            let at = event.at;
            let id = |hold: &u64| HoldId {
                process: event.process,
                hold: *hold,
            };
            match &event.what {
                What::Asked {
                    hold,
                    key,
                    mode,
                    fifo,
                    ttl,
                    ..
                } => {
                    holds.insert(id(hold), Hold::asked(id(hold), key, *mode, *fifo, *ttl, at));
                }
                What::Looks { hold } => {
                    looks.insert(id(hold), at);
                }
                what => {
                    if let Some(hold) = what.hold()
                        && let Some(this) = holds.get_mut(&id(&hold))
                    {
                        this.tell(at, what, looks.get(&this.id).copied());
                    }
                }
            }
        }
        let mut holds: Vec<Hold> = holds.into_values().collect();
        for hold in &mut holds {
            hold.killed = self.killed(hold.id.process);
        }
        holds.sort_by_key(|h| (h.asked, h.id));
        holds
    }

    /// All contenders by key.
    pub fn by_key(&self) -> BTreeMap<String, KeyHistory> {
        let mut keys: BTreeMap<String, KeyHistory> = BTreeMap::new();
        for hold in self.holds() {
            keys.entry(hold.key.clone()).or_default().holds.push(hold);
        }
        for key in keys.values_mut() {
            let grants = key.holds.iter().enumerate();
            key.grants = grants.filter_map(|(n, h)| Some((h.granted?, n))).collect();
            key.grants.sort_unstable();
        }
        keys
    }

    /// The decisions of the fenced or the unfenced store by key, in its order.
    pub fn writes(&self, of_fenced: bool) -> BTreeMap<String, Vec<Write>> {
        let mut keys: BTreeMap<String, Vec<Write>> = BTreeMap::new();
        for event in self.events() {
            if let What::Wrote {
                by,
                key,
                token,
                fenced,
                value,
                accepted,
            } = &event.what
                && *fenced == of_fenced
            {
                keys.entry(key.clone()).or_default().push(Write {
                    at: event.at,
                    by: *by,
                    token: *token,
                    value: *value,
                    accepted: *accepted,
                });
            }
        }
        keys
    }
}

impl What {
    fn hold(&self) -> Option<u64> {
        match self {
            Self::Queued { hold, .. }
            | Self::Granted { hold, .. }
            | Self::Refused { hold, .. }
            | Self::Valid { hold, .. }
            | Self::Held { hold, .. }
            | Self::Lost { hold, .. }
            | Self::Reentered { hold, .. }
            | Self::Releases { hold }
            | Self::Released { hold, .. } => Some(*hold),
            _ => None,
        }
    }
}

impl Hold {
    fn asked(id: HoldId, key: &str, mode: Mode, fifo: bool, ttl: u64, at: u64) -> Self {
        Self {
            id,
            key: key.to_owned(),
            mode,
            fifo,
            ttl,
            asked: at,
            queued: None,
            granted: None,
            token: None,
            valid: Vec::new(),
            answers: Vec::new(),
            reentered: Vec::new(),
            refused: None,
            lost: None,
            releases: None,
            released: None,
            killed: None,
        }
    }

    fn tell(&mut self, at: u64, what: &What, looked: Option<u64>) {
        match what {
            What::Queued { place, .. } => self.queued = self.queued.or(Some((at, *place))),
            What::Granted { token, until, .. } => {
                self.granted = Some(at);
                self.token = *token;
                self.valid.push((self.asked, at, *until));
            }
            What::Refused { .. } => self.refused = Some(at),
            What::Valid { until, .. } => self.valid.push((looked.unwrap_or(at), at, *until)),
            What::Held { held, .. } => self.answers.push((looked.unwrap_or(at), at, *held)),
            What::Lost { why, .. } => self.lost = self.lost.take().or(Some((at, why.clone()))),
            What::Reentered { token, .. } => self.reentered.push((at, *token)),
            What::Releases { .. } => self.releases = self.releases.or(Some(at)),
            What::Released { how, .. } => self.released = Some((at, *how)),
            _ => {}
        }
    }
}
