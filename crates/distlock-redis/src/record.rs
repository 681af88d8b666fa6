//! The records of holders that are stored beside a lock, for people who look: a token (µs) or a time (ms), a space,
//! and a JSON object.

use std::borrow::Cow;
use std::time::{Duration, SystemTime};

use distlock_core::FencingToken;
use distlock_core::driver::{About, Holder, Mode, Want};
use uuid::Uuid;

use crate::names::hex;

/// With what the name begins that a release or a break leaves in a holder's place.
const NOBODY: [&str; 2] = ["kept:", "broken:"];

/// What follows the token or the time in a record.
pub(crate) fn tail(want: &Want) -> String {
    let about = About::of(want).to_string();
    [" ", &about].concat()
}

/// A record, read back.
#[derive(Debug, Default)]
pub(crate) struct Record {
    pub(crate) number: u64,
    pub(crate) owner: String,
    about: About<'static>,
}

impl Record {
    /// `None` for anything that we did not write.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (number, about) = text.split_once(' ')?;
        let mut about = About::from_json(about.as_bytes())?;
        Some(Self {
            number: number.parse().ok()?,
            owner: about.owner.take().map(Cow::into_owned).unwrap_or_default(),
            about,
        })
    }

    /// Whether the holder that is stored like this is the one that wrote this record.
    pub(crate) fn is_of(&self, stored: &str) -> bool {
        self.owner == stored.strip_suffix(":write").unwrap_or(stored)
            || self.owner.parse().is_ok_and(|owner| hex(owner) == stored)
    }
}

/// A holder by its stored name, as `client` sees it, with what the record says if it is this holder's.
pub(crate) fn holder(client: Uuid, stored: &str, mode: Mode, record: Option<&Record>) -> Holder {
    if NOBODY.iter().any(|mark| stored.starts_with(mark)) {
        return Holder::new("", mode);
    }
    let Some(record) = record.filter(|r| r.is_of(stored)) else {
        let owner = stored.strip_suffix(":write").unwrap_or(stored);
        return About::default().holder(owner, mode, client);
    };
    let mut holder = record.about.clone().holder(&record.owner, mode, client);
    if mode.is_exclusive() {
        holder.token = Some(FencingToken::new(record.number));
        holder.since = SystemTime::UNIX_EPOCH.checked_add(Duration::from_micros(record.number));
    } else {
        holder.since = SystemTime::UNIX_EPOCH.checked_add(Duration::from_millis(record.number));
    }
    holder
}
