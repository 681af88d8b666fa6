//! What a contender's key says about it: text for people who look, and the kind of lock it takes part in.
//!
//! `distlock=1&mode=…&owner=…`, each value percent-encoded. Keys of other programs (Go's have an empty value) are
//! contenders of a mutex.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use distlock_core::FencingToken;
use distlock_core::driver::{Holder, Kind, Mode, Want, host_name};
use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

use crate::wire::KeyValue;

const MAGIC: &str = "distlock=1";

/// The value of a contender's key.
pub(crate) fn encode(want: &Want) -> Vec<u8> {
    let mut out = format!("{MAGIC}&mode={}&owner={}", mode_word(want.mode), want.owner);
    let mut add = |name: &str, value: &str| {
        out.push_str(&format!(
            "&{name}={}",
            utf8_percent_encode(value, NON_ALPHANUMERIC)
        ));
    };
    if let Some(label) = &want.label {
        add("label", label);
    }
    if let Some(reason) = &want.reason {
        add("reason", reason);
    }
    if let Some(host) = host_name() {
        add("host", host);
    }
    add("pid", &std::process::id().to_string());
    if let Ok(since) = SystemTime::now().duration_since(UNIX_EPOCH) {
        add("since", &since.as_millis().to_string());
    }
    out.into_bytes()
}

/// The value with another fact added.
pub(crate) fn with(value: &[u8], name: &str, fact: &str) -> Vec<u8> {
    let mut out = if value.is_empty() {
        MAGIC.as_bytes().to_vec()
    } else {
        value.to_vec()
    };
    out.extend_from_slice(format!("&{name}={}", utf8_percent_encode(fact, NON_ALPHANUMERIC)).as_bytes());
    out
}

/// What a stored key says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) holder: Holder,
    /// The reason that was given when it was broken.
    pub(crate) broken: Option<Option<String>>,
    /// It was released, and stays for the rest of its time without an owner.
    pub(crate) kept: bool,
    /// Whether the token of the hold is noted; else it is the key's create revision, if it never waited.
    pub(crate) noted: bool,
    /// Whether it is one of ours, which note their tokens.
    pub(crate) ours: bool,
}

impl Record {
    /// Reads a stored key; `rest` is what follows the lock's prefix in its name.
    pub(crate) fn read(kv: &KeyValue, rest: &str) -> Self {
        let text = std::str::from_utf8(&kv.value).unwrap_or_default();
        let ours = text
            .strip_prefix(MAGIC)
            .is_some_and(|more| more.is_empty() || more.starts_with('&'));
        let mut record = Self {
            holder: Holder::new(rest, Mode::Mutex),
            broken: None,
            kept: false,
            noted: false,
            ours,
        };
        record.holder.token = u64::try_from(kv.create_revision).ok().map(FencingToken::new);
        if !ours {
            return record;
        }
        for (name, value) in text.split('&').filter_map(|fact| fact.split_once('=')) {
            let value = percent_decode_str(value).decode_utf8_lossy().into_owned();
            record.fact(name, value);
        }
        if !record.holder.mode.is_exclusive() {
            record.holder.token = None;
        }
        if record.kept {
            record.holder.owner.clear();
        }
        record
    }

    fn fact(&mut self, name: &str, value: String) {
        let holder = &mut self.holder;
        match name {
            "mode" => holder.mode = parse_mode(&value).unwrap_or(Mode::Mutex),
            "owner" => holder.owner = value,
            "label" => holder.label = Some(value),
            "reason" => holder.reason = Some(value),
            "host" => holder.host = Some(value),
            "pid" => holder.pid = value.parse().ok(),
            "since" => {
                let since = value.parse().ok().map(Duration::from_millis);
                holder.since = since.and_then(|ms| UNIX_EPOCH.checked_add(ms));
            }
            "token" => {
                holder.token = value.parse().ok();
                self.noted = true;
            }
            "broken" => self.broken = Some(Some(value).filter(|why| !why.is_empty())),
            "kept" => self.kept = true,
            _ => {}
        }
    }

    /// The kind of lock that it takes part in.
    pub(crate) fn kind(&self) -> Kind {
        self.holder.mode.kind()
    }
}

fn mode_word(mode: Mode) -> String {
    match mode {
        Mode::Mutex => "mutex".into(),
        Mode::Write => "write".into(),
        Mode::Read => "read".into(),
        Mode::Slot { of } => format!("slot.{of}"),
    }
}

fn parse_mode(word: &str) -> Option<Mode> {
    match word {
        "mutex" => Some(Mode::Mutex),
        "write" => Some(Mode::Write),
        "read" => Some(Mode::Read),
        _ => Some(Mode::Slot {
            of: word.strip_prefix("slot.")?.parse().ok()?,
        }),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use distlock_core::driver::{Life, Line, Order};
    use distlock_core::{Key, Owners};

    use super::*;

    fn want(mode: Mode) -> Want {
        Want {
            key: Key::new("k").unwrap(),
            owner: Owners::new().next(),
            mode,
            order: Order::Any,
            line: Line::Join,
            life: Life::Process,
            ttl: Duration::from_secs(3),
            label: Some(Arc::from("api&7=ü")),
            reason: Some(Arc::from("because")),
            bell: Default::default(),
        }
    }

    #[test]
    fn a_record_reads_back_as_written() {
        for mode in [Mode::Mutex, Mode::Read, Mode::Write, Mode::Slot { of: 7 }] {
            let want = want(mode);
            let kv = KeyValue {
                value: encode(&want),
                create_revision: 9,
                ..Default::default()
            };
            let record = Record::read(&kv, "7f.1");
            assert_eq!(record.holder.mode, mode);
            assert_eq!(record.holder.owner, want.owner.to_string());
            assert_eq!(record.holder.label.as_deref(), Some("api&7=ü"));
            assert_eq!(record.holder.pid, Some(std::process::id()));
            assert_eq!(record.holder.token.is_some(), mode.is_exclusive());
        }
    }

    #[test]
    fn other_programs_take_part_in_a_mutex() {
        for value in [&b""[..], b"proposal", b"\xff", b"distlock=12"] {
            let kv = KeyValue {
                value: value.to_vec(),
                ..Default::default()
            };
            let record = Record::read(&kv, "7f");
            assert_eq!((record.kind(), record.holder.owner.as_str()), (Kind::Mutex, "7f"));
        }
    }

    #[test]
    fn facts_can_be_added() {
        let value = with(&encode(&want(Mode::Mutex)), "broken", "");
        let record = Record::read(
            &KeyValue {
                value,
                ..Default::default()
            },
            "7f.1",
        );
        assert_eq!(record.broken, Some(None));
        let value = with(b"", "broken", "a b");
        let record = Record::read(
            &KeyValue {
                value,
                ..Default::default()
            },
            "7f",
        );
        assert_eq!(record.broken, Some(Some("a b".into())));
    }
}
