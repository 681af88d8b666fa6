//! The descriptions of holders that are stored beside a lock, for people who look.

use std::time::{Duration, SystemTime};

use distlock_core::driver::{Holder, Mode, Want};
use distlock_core::{FencingToken, OwnerId};
use serde::{Deserialize, Serialize};

/// Who a holder is, beyond its owner id.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct About {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    label: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    host: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pid: Option<u32>,
}

impl About {
    /// This process, wanting this.
    pub(crate) fn of(want: &Want, host: &str) -> Self {
        Self {
            label: want.label.as_deref().map(Into::into),
            reason: want.reason.as_deref().map(Into::into),
            host: Some(host.to_owned()),
            pid: Some(std::process::id()),
        }
    }

    /// Only a reason: why a lock was broken.
    pub(crate) fn reason(reason: Option<&str>) -> Self {
        Self {
            reason: reason.map(Into::into),
            ..Self::default()
        }
    }

    /// As it is stored.
    pub(crate) fn write(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Read back; what a human edited beyond recognition is simply not known.
    pub(crate) fn read(stored: &str) -> Self {
        serde_json::from_str(stored).unwrap_or_default()
    }

    /// Why.
    pub(crate) fn why(&self) -> Option<String> {
        self.reason.clone()
    }

    /// The holder as people see it. Times are the server's.
    pub(crate) fn holder(self, owner: &str, mode: Mode, token: Option<i64>, times: Times) -> Holder {
        let mut holder = Holder::new(owner, mode);
        holder.token = token.map(|t| FencingToken::new(t.unsigned_abs()));
        holder.label = self.label;
        holder.reason = self.reason;
        holder.host = self.host;
        holder.pid = self.pid;
        holder.since = SystemTime::UNIX_EPOCH.checked_add(micros(times.since));
        holder.expires_in = Some(micros(times.until.saturating_sub(times.now)));
        holder.here = owner.parse::<OwnerId>().is_ok_and(|o| o.client == times.client);
        holder
    }
}

/// When a holder came and until when it stays, in microseconds by the server's clock, and whose eyes look.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Times {
    pub(crate) since: i64,
    pub(crate) until: i64,
    pub(crate) now: i64,
    pub(crate) client: uuid::Uuid,
}

/// A span of server time; negative ones are over.
pub(crate) fn micros(us: i64) -> Duration {
    Duration::from_micros(u64::try_from(us).unwrap_or(0))
}

/// A span as the statements want it.
pub(crate) fn in_micros(d: Duration) -> i64 {
    i64::try_from(d.as_micros()).unwrap_or(i64::MAX)
}

/// The name of this host.
pub(crate) fn host_name() -> String {
    #[cfg(unix)]
    return rustix::system::uname().nodename().to_string_lossy().into_owned();
    #[cfg(not(unix))]
    return std::env::var("COMPUTERNAME").unwrap_or_default();
}
