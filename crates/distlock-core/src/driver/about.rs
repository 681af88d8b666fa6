//! What an engine stores beside a lock about a contender.

use std::borrow::Cow;
use std::fmt;
use std::sync::OnceLock;

use serde::Serialize;
use serde_json::Value;
use uuid::Uuid;

use super::{Holder, Mode, Want};
use crate::owner::OwnerId;

/// Who a contender is, beyond its place: a JSON object for people who look, never used to decide who holds.
///
/// ```
/// # use distlock_core::driver::About;
/// let mut about = About::here();
/// about.reason = Some("nightly report".into());
/// assert_eq!(About::from_json(about.to_string().as_bytes()), Some(about));
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct About<'a> {
    /// The owner, for engines whose places do not name it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<Cow<'a, str>>,
    /// The label of its client.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<Cow<'a, str>>,
    /// Its reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<Cow<'a, str>>,
    /// The number of permits of its semaphore.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub permits: Option<u32>,
    /// Its host's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<Cow<'a, str>>,
    /// Its process id, in its own PID namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
}

impl<'a> About<'a> {
    /// This process.
    pub fn here() -> Self {
        Self {
            host: host_name().map(Into::into),
            pid: Some(std::process::id()),
            ..Self::default()
        }
    }

    /// This process, wanting this.
    pub fn of(want: &'a Want) -> Self {
        Self {
            owner: Some(String::from(want.owner).into()),
            label: want.label.as_deref().map(Into::into),
            reason: want.reason.as_deref().map(Into::into),
            permits: match want.mode {
                Mode::Slot { of } => Some(of),
                _ => None,
            },
            ..Self::here()
        }
    }

    /// The contender that is stored as `owner`, as the client `client` sees it.
    pub fn holder(self, owner: impl Into<String>, mode: Mode, client: Uuid) -> Holder {
        let mut holder = Holder::new(owner, mode);
        holder.label = self.label.map(Cow::into_owned);
        holder.reason = self.reason.map(Cow::into_owned);
        holder.host = self.host.map(Cow::into_owned);
        holder.pid = self.pid;
        holder.here = holder
            .owner
            .parse::<OwnerId>()
            .is_ok_and(|owner| owner.client == client);
        holder
    }
}

impl About<'static> {
    /// Reads what `to_string` wrote. `None` if it is not a JSON object; a field of another type than ours is left
    /// out, for others may have written it.
    pub fn from_json(stored: &[u8]) -> Option<Self> {
        let Value::Object(fields) = serde_json::from_slice(stored).ok()? else {
            return None;
        };
        let text = |name| {
            let text = fields.get(name).and_then(Value::as_str);
            text.map(|text| text.to_owned().into())
        };
        let number = |name| {
            fields
                .get(name)
                .and_then(Value::as_u64)
                .and_then(|n| n.try_into().ok())
        };
        Some(Self {
            owner: text("owner"),
            label: text("label"),
            reason: text("reason"),
            permits: number("permits"),
            host: text("host"),
            pid: number("pid"),
        })
    }
}

/// The JSON object that is stored; what is not known is left out.
impl fmt::Display for About<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&serde_json::to_string(self).map_err(|_| fmt::Error)?)
    }
}

/// The name of this host, if it has one that can be read.
pub fn host_name() -> Option<&'static str> {
    static NAME: OnceLock<Option<String>> = OnceLock::new();
    let name = NAME.get_or_init(|| {
        #[cfg(unix)]
        let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
        #[cfg(not(unix))]
        let name = std::env::var("COMPUTERNAME").unwrap_or_default();
        Some(name).filter(|name| !name.is_empty())
    });
    name.as_deref()
}
