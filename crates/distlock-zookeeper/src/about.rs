//! What a contender's node says about it, for people who look.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use distlock_core::driver::{Holder, Mode, Want};
use distlock_core::{FencingToken, OwnerId};
use serde_json::{Map, Value, json};
use uuid::Uuid;
use zookeeper_client::Stat;

/// Foreign data longer than this is not shown.
const SHOWN: usize = 128;

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

    /// The data of a contender's node.
    pub(crate) fn write(&self, want: &Want) -> Vec<u8> {
        let mut about = Map::new();
        about.insert("owner".into(), json!(want.owner.to_string()));
        if let Some(label) = &want.label {
            about.insert("label".into(), json!(Arc::as_ref(label)));
        }
        if let Some(reason) = &want.reason {
            about.insert("reason".into(), json!(Arc::as_ref(reason)));
        }
        if let Mode::Slot { of } = want.mode {
            about.insert("permits".into(), json!(of));
        }
        self.finish(about)
    }

    /// The data of the node that keeps a broken lock taken for its grace.
    pub(crate) fn grace(&self, reason: Option<&str>) -> Vec<u8> {
        let reason = reason.map_or_else(|| "broken".to_owned(), |why| format!("broken: {why}"));
        let mut about = Map::new();
        about.insert("reason".into(), json!(reason));
        self.finish(about)
    }

    fn finish(&self, mut about: Map<String, Value>) -> Vec<u8> {
        about.insert("host".into(), json!(self.host));
        about.insert("pid".into(), json!(self.pid));
        Value::Object(about).to_string().into_bytes()
    }

    /// A contender, from its node. What Curator writes by default (the host's address) is shown as the host.
    pub(crate) fn read(&self, name: &str, mode: Mode, data: &[u8], stat: &Stat) -> Holder {
        let about = serde_json::from_slice::<Value>(data).unwrap_or_default();
        let text = |name: &str| about.get(name).and_then(Value::as_str).map(str::to_owned);
        let mut holder = Holder::new(text("owner").unwrap_or_else(|| name.to_owned()), mode);
        holder.here = holder
            .owner
            .parse::<OwnerId>()
            .is_ok_and(|owner| owner.client == self.client);
        holder.label = text("label");
        holder.reason = text("reason");
        holder.pid = about
            .get("pid")
            .and_then(Value::as_u64)
            .and_then(|pid| pid.try_into().ok());
        holder.host = text("host").or_else(|| foreign(data));
        holder.since = u64::try_from(stat.ctime)
            .ok()
            .and_then(|ms| SystemTime::UNIX_EPOCH.checked_add(Duration::from_millis(ms)));
        if mode.is_exclusive() {
            holder.token = u64::try_from(stat.czxid).ok().map(FencingToken::new);
        }
        holder
    }
}

/// The number of permits that a semaphore's node names.
pub(crate) fn permits(data: &[u8]) -> Option<u32> {
    let about: Value = serde_json::from_slice(data).ok()?;
    about.get("permits")?.as_u64()?.try_into().ok()
}

/// Short, readable data of another client.
fn foreign(data: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(data).ok()?;
    let shown =
        !text.is_empty() && text.len() <= SHOWN && !text.starts_with('{') && !text.contains(char::is_control);
    shown.then(|| text.to_owned())
}
