//! The bodies of the API, as far as this engine uses them.

use std::time::{Duration, UNIX_EPOCH};

use distlock_core::driver::{Finding, Holder, Kind, LockInfo, LostReason, Mode, Severity};
use distlock_core::{FencingToken, Key};
use serde::{Deserialize, Serialize};

#[derive(Debug, Deserialize)]
pub(crate) struct EngineView {
    /// Without secrets.
    pub(crate) engine: String,
    pub(crate) bound_to_gateway: bool,
    pub(crate) promises: PromisesView,
}

#[derive(Debug, Deserialize)]
pub(crate) struct PromisesView {
    pub(crate) name: String,
    pub(crate) order: String,
    pub(crate) shared: bool,
    pub(crate) slots: bool,
    pub(crate) token: String,
    pub(crate) ttl_min_ms: u64,
    pub(crate) ttl_max_ms: u64,
    pub(crate) notified: bool,
    pub(crate) loss_before_regrant: bool,
}

#[derive(Debug, Serialize)]
pub(crate) struct AcquireBody<'a> {
    pub(crate) ttl: String,
    pub(crate) wait: &'static str,
    pub(crate) mode: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) permits: Option<u32>,
    pub(crate) order: &'static str,
    pub(crate) label: Option<&'a str>,
    pub(crate) reason: Option<&'a str>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct LeaseView {
    pub(crate) handle: String,
    pub(crate) token: Option<u64>,
    pub(crate) valid_for_ms: u64,
    pub(crate) answered_after_ms: u64,
}

/// A line of a request that waits.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Line {
    Waiting {
        holder: Option<HolderView>,
        ahead: Option<u32>,
    },
    Lease(LeaseView),
    Problem(Box<Problem>),
}

#[derive(Debug, Serialize)]
pub(crate) struct RenewPart {
    pub(crate) handle: String,
    pub(crate) ttl: String,
}

#[derive(Debug, Serialize)]
pub(crate) struct RenewAllBody {
    pub(crate) leases: Vec<RenewPart>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct RenewAllView {
    pub(crate) renewed: Vec<Line>,
}

#[derive(Debug, Serialize)]
pub(crate) struct ReleaseBody<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) handle: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) idempotency_key: Option<&'a str>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct ReleaseView {
    pub(crate) released: bool,
}

#[derive(Debug, Serialize)]
pub(crate) struct BreakBody<'a> {
    pub(crate) reason: &'a str,
    pub(crate) expect_token: Option<u64>,
    pub(crate) grace: String,
}

#[derive(Debug, Deserialize)]
pub(crate) struct BreakView {
    pub(crate) broken: Vec<HolderView>,
}

/// What went wrong.
#[derive(Debug, Deserialize)]
pub(crate) struct Problem {
    pub(crate) kind: String,
    pub(crate) detail: String,
    pub(crate) holder: Option<HolderView>,
    pub(crate) reason: Option<String>,
    pub(crate) break_reason: Option<String>,
    pub(crate) have: Option<String>,
    pub(crate) want: Option<String>,
}

impl Problem {
    /// Why the lease is over, if that is what it says.
    pub(crate) fn lost(&self) -> Option<LostReason> {
        if !matches!(self.kind.as_str(), "not_held" | "lost") {
            return None;
        }
        Some(match self.reason.as_deref() {
            Some("expired") => LostReason::Expired,
            Some("session_ended") => LostReason::SessionEnded,
            Some("broken") => LostReason::Broken {
                reason: self.break_reason.clone(),
            },
            Some("shutdown") => LostReason::Shutdown,
            _ => LostReason::Taken,
        })
    }
}

#[derive(Debug, Deserialize)]
pub(crate) struct HolderView {
    owner: String,
    mode: String,
    permits: Option<u32>,
    token: Option<u64>,
    label: Option<String>,
    reason: Option<String>,
    host: Option<String>,
    pid: Option<u32>,
    since_ms: Option<u64>,
    expires_in_ms: Option<u64>,
    yours: bool,
}

impl From<HolderView> for Holder {
    fn from(view: HolderView) -> Self {
        let mode = match view.mode.as_str() {
            "read" => Mode::Read,
            "write" => Mode::Write,
            "semaphore" => Mode::Slot {
                of: view.permits.unwrap_or(1),
            },
            _ => Mode::Mutex,
        };
        let mut holder = Holder::new(view.owner, mode);
        holder.token = view.token.map(FencingToken::new);
        holder.label = view.label;
        holder.reason = view.reason;
        holder.host = view.host;
        holder.pid = view.pid;
        holder.since = view
            .since_ms
            .and_then(|ms| UNIX_EPOCH.checked_add(Duration::from_millis(ms)));
        holder.expires_in = view.expires_in_ms.map(Duration::from_millis);
        holder.here = view.yours;
        holder
    }
}

#[derive(Debug, Deserialize)]
pub(crate) struct LockView {
    key: String,
    kind: Option<String>,
    permits: Option<u32>,
    token: Option<u64>,
    holders: Vec<HolderView>,
    waiters: Vec<HolderView>,
}

impl LockView {
    /// None: its name is none that this library knows.
    pub(crate) fn info(self) -> Option<LockInfo> {
        let mut info = LockInfo::free(Key::new(self.key).ok()?);
        info.kind = match self.kind.as_deref() {
            Some("mutex") => Some(Kind::Mutex),
            Some("read_write") => Some(Kind::ReadWrite),
            Some("semaphore") => self.permits.map(|of| Kind::Semaphore { of }),
            _ => None,
        };
        info.token = self.token.map(FencingToken::new);
        info.holders = self.holders.into_iter().map(Into::into).collect();
        info.waiters = self.waiters.into_iter().map(Into::into).collect();
        Some(info)
    }
}

#[derive(Debug, Deserialize)]
pub(crate) struct ListView {
    pub(crate) locks: Vec<LockView>,
    pub(crate) next: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct DoctorView {
    pub(crate) findings: Vec<FindingView>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct FindingView {
    severity: String,
    id: String,
    what: String,
    fix: String,
}

impl From<FindingView> for Finding {
    fn from(view: FindingView) -> Self {
        let severity = match view.severity.as_str() {
            "info" => Severity::Info,
            "warning" => Severity::Warning,
            _ => Severity::Error,
        };
        Self::new(severity, view.id, view.what, view.fix)
    }
}

/// A duration as the service reads it.
pub(crate) fn time(d: Duration) -> String {
    humantime::format_duration(d).to_string()
}
