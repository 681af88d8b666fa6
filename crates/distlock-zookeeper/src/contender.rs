//! What a contender's node says about it, for people who look.

use std::borrow::Cow;
use std::time::{Duration, SystemTime};

use distlock_core::FencingToken;
use distlock_core::driver::{About, Holder, Mode};
use uuid::Uuid;
use zookeeper_client::Stat;

/// Foreign data longer than this is not shown.
const SHOWN: usize = 128;

/// A contender, from its node, as `client` sees it. What Curator writes by default (the host's address) is shown as
/// the host.
pub(crate) fn read(client: Uuid, name: &str, mode: Mode, data: &[u8], stat: &Stat) -> Holder {
    let mut about = About::from_json(data).unwrap_or_default();
    let owner = about
        .owner
        .take()
        .map_or_else(|| name.to_owned(), Cow::into_owned);
    let mut holder = about.holder(owner, mode, client);
    holder.host = holder.host.or_else(|| foreign(data));
    holder.since = u64::try_from(stat.ctime)
        .ok()
        .and_then(|ms| SystemTime::UNIX_EPOCH.checked_add(Duration::from_millis(ms)));
    if mode.is_exclusive() {
        holder.token = u64::try_from(stat.czxid).ok().map(FencingToken::new);
    }
    holder
}

/// The data of the node that keeps a broken lock taken for its grace.
pub(crate) fn grace(reason: Option<&str>) -> String {
    let mut about = About::here();
    about.reason = Some(reason.map_or("broken".into(), |why| format!("broken: {why}").into()));
    about.to_string()
}

/// The number of permits that a semaphore's node names.
pub(crate) fn permits(data: &[u8]) -> Option<u32> {
    About::from_json(data)?.permits
}

/// Short, readable data of another client.
fn foreign(data: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(data).ok()?;
    let shown =
        !text.is_empty() && text.len() <= SHOWN && !text.starts_with('{') && !text.contains(char::is_control);
    shown.then(|| text.to_owned())
}
