//! The descriptions of holders that are stored beside a lock, for people who look.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use distlock_core::driver::{Holder, Mode, Want};
use distlock_core::{FencingToken, OwnerId};
use serde_json::{Map, Value, json};
use uuid::Uuid;

use crate::names::hex;

/// Writes and reads descriptions for one client.
#[derive(Debug)]
pub(crate) struct About {
    client: Uuid,
    host: String,
    pid: u32,
}

impl About {
    pub(crate) fn new(client: Uuid) -> Self {
        #[cfg(unix)]
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        #[cfg(not(unix))]
        let host = std::env::var("COMPUTERNAME").unwrap_or_default();
        Self {
            client,
            host,
            pid: std::process::id(),
        }
    }

    /// What follows the token or the time in a record: a space and a JSON object.
    pub(crate) fn write(&self, want: &Want) -> String {
        let mut about = Map::new();
        about.insert("owner".into(), json!(want.owner.to_string()));
        if let Some(label) = &want.label {
            about.insert("label".into(), json!(Arc::as_ref(label)));
        }
        if let Some(reason) = &want.reason {
            about.insert("reason".into(), json!(Arc::as_ref(reason)));
        }
        about.insert("host".into(), json!(self.host));
        about.insert("pid".into(), json!(self.pid));
        format!(" {}", Value::Object(about))
    }

    /// A holder by its stored name, with what the record says if it is this holder's.
    pub(crate) fn holder(&self, stored: &str, mode: Mode, record: Option<&Record>) -> Holder {
        let record = record.filter(|r| r.is_of(stored));
        let owner = record.map_or(stored.strip_suffix(":write").unwrap_or(stored), |r| &r.owner);
        let mut holder = Holder::new(owner, mode);
        holder.here = owner.parse::<OwnerId>().is_ok_and(|o| o.client == self.client);
        let Some(record) = record else { return holder };
        holder.label.clone_from(&record.label);
        holder.reason.clone_from(&record.reason);
        holder.host.clone_from(&record.host);
        holder.pid = record.pid;
        if mode.is_exclusive() {
            holder.token = Some(FencingToken::new(record.number));
            holder.since = SystemTime::UNIX_EPOCH.checked_add(Duration::from_micros(record.number));
        } else {
            holder.since = SystemTime::UNIX_EPOCH.checked_add(Duration::from_millis(record.number));
        }
        holder
    }
}

/// A stored description, read back: a token (µs) or a time (ms), and who.
#[derive(Debug, Default)]
pub(crate) struct Record {
    pub(crate) number: u64,
    pub(crate) owner: String,
    label: Option<String>,
    reason: Option<String>,
    host: Option<String>,
    pid: Option<u32>,
}

impl Record {
    /// Whether the holder that is stored like this is the one that wrote this record.
    pub(crate) fn is_of(&self, stored: &str) -> bool {
        self.owner == stored.strip_suffix(":write").unwrap_or(stored)
            || self.owner.parse().is_ok_and(|owner| hex(owner) == stored)
    }

    /// `None` for anything that we did not write.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (number, about) = text.split_once(' ')?;
        let about: Value = serde_json::from_str(about).ok()?;
        let text = |name: &str| about.get(name).and_then(Value::as_str).map(str::to_owned);
        Some(Self {
            number: number.parse().ok()?,
            owner: text("owner").unwrap_or_default(),
            label: text("label"),
            reason: text("reason"),
            host: text("host"),
            pid: about
                .get("pid")
                .and_then(Value::as_u64)
                .and_then(|n| n.try_into().ok()),
        })
    }
}
