//! Settings and states of a cluster that endanger locks.

use std::time::Duration;

use distlock_core::driver::{DriverError, Finding, Severity};

use crate::driver::Shared;
use crate::wire::{AlarmRequest, LeaseRevokeRequest, MemberListRequest, StatusRequest, StatusResponse};

/// etcd's default limit of its database.
const DEFAULT_QUOTA: i64 = 2 << 30;

/// The first release of each line in which a lease cannot be reported alive after it was revoked (etcd#20615), nor
/// be renewed or revoked by a leader that was deposed (etcd#15247).
const GOOD: [(u32, u32, u32); 3] = [(3, 4, 38), (3, 5, 23), (3, 6, 5)];

impl Shared {
    pub(crate) async fn examine(&self) -> Result<Vec<Finding>, DriverError> {
        let mut found = Vec::new();
        let mut leaders = std::collections::BTreeSet::new();
        for (index, name) in self.client.names().iter().enumerate() {
            match self.client.call_at(index, StatusRequest {}).await {
                Ok(status) => {
                    leaders.insert(status.leader);
                    member(name, &status, &mut found);
                }
                Err(failure) => found.push(Finding::new(
                    Severity::Warning,
                    "etcd-endpoint-down",
                    format!("{failure}"),
                    "start the member, or remove it from the URL",
                )),
            }
        }
        if leaders.len() > 1 {
            let what = "the members disagree about who is the leader";
            let fix = "examine the network between the members";
            found.push(Finding::new(Severity::Warning, "etcd-leaders", what, fix));
        }
        self.examine_cluster(&mut found).await?;
        self.examine_ttl(&mut found).await;
        Ok(found)
    }

    async fn examine_cluster(&self, found: &mut Vec<Finding>) -> Result<(), DriverError> {
        let alarms = self.client.call(AlarmRequest::default()).await?;
        for alarm in alarms.alarms {
            let (what, fix) = match alarm.alarm {
                1 => (
                    "is out of space: it refuses every new lock",
                    "compact, defragment, then disarm the alarm",
                ),
                2 => ("reports corrupt data", "restore the member from the others"),
                _ => ("has raised an alarm", "see `etcdctl alarm list`"),
            };
            let what = format!("member {:x} {what}", alarm.member_id);
            found.push(Finding::new(Severity::Error, "etcd-alarm", what, fix));
        }
        let members = self.client.call(MemberListRequest {}).await?.members;
        let voters = members.iter().filter(|m| !m.is_learner).count();
        let fix = "run three or five members";
        if voters == 1 {
            let what = "one member only: locks cannot be taken while it is down";
            found.push(Finding::new(Severity::Info, "etcd-one-member", what, fix));
        } else if voters % 2 == 0 {
            let what = format!(
                "{voters} voting members survive no more failures than {}",
                voters - 1
            );
            found.push(Finding::new(Severity::Info, "etcd-even-members", what, fix));
        }
        if self.client.names().len() == 1 && voters > 1 {
            let urls: Vec<_> = members.iter().flat_map(|m| &m.client_urls).cloned().collect();
            found.push(Finding::new(
                Severity::Warning,
                "etcd-one-endpoint",
                format!("the URL names one of {voters} members, and nothing is tried when that one fails"),
                format!("name them all: {}", urls.join(", ")),
            ));
        }
        Ok(())
    }

    /// The smallest TTL that the server grants is one and a half election timeouts. (One that is out of space grants
    /// none, which its alarm has told.)
    async fn examine_ttl(&self, found: &mut Vec<Finding>) {
        let ask = crate::wire::LeaseGrantRequest { ttl: 1, id: 0 };
        let Ok(lease) = self.client.call(ask).await else {
            return;
        };
        let _ = self.client.call(LeaseRevokeRequest { id: lease.id }).await;
        if lease.ttl > 1 {
            let least = Duration::from_secs(u64::try_from(lease.ttl).unwrap_or(0));
            found.push(Finding::new(
                if lease.ttl > 5 {
                    Severity::Warning
                } else {
                    Severity::Info
                },
                "etcd-least-ttl",
                format!("a TTL below {least:?} is raised to that, being one and a half election timeouts"),
                "use a longer ttl, or a shorter --election-timeout",
            ));
        }
    }
}

fn member(name: &str, status: &StatusResponse, found: &mut Vec<Finding>) {
    if let Some((version, good)) = outdated(&status.version) {
        let severity = if good.is_some() {
            Severity::Warning
        } else {
            Severity::Info
        };
        let fix = good.map_or(
            "update to a release that is still maintained".into(),
            |(a, b, c)| {
                format!("update to {a}.{b}.{c} or newer: older ones may report a revoked lease as alive")
            },
        );
        found.push(Finding::new(
            severity,
            "etcd-version",
            format!("{name} runs etcd {version}"),
            fix,
        ));
    }
    if status.leader == 0 {
        let what = format!("{name} sees no leader");
        found.push(Finding::new(
            Severity::Error,
            "etcd-no-leader",
            what,
            "bring back a majority of the members",
        ));
    }
    if status.is_learner {
        let what = format!("{name} is a learner, which serves no locks");
        found.push(Finding::new(
            Severity::Warning,
            "etcd-learner",
            what,
            "promote it, or remove it from the URL",
        ));
    }
    for error in &status.errors {
        let what = format!("{name} reports: {error}");
        found.push(Finding::new(
            Severity::Error,
            "etcd-member",
            what,
            "see `etcdctl endpoint status`",
        ));
    }
    let quota = if status.db_size_quota > 0 {
        status.db_size_quota
    } else {
        DEFAULT_QUOTA
    };
    if status.db_size > quota / 5 * 4 {
        found.push(Finding::new(
            Severity::Warning,
            "etcd-size",
            format!("{name}: the database has {} MiB of {} MiB", status.db_size >> 20, quota >> 20),
            "compact and defragment, and set --auto-compaction-retention; when it is full no lock can be taken",
        ));
    }
}

type Version = (u32, u32, u32);

/// A version with known faults, and the first good one of its line if there is one.
fn outdated(version: &str) -> Option<(&str, Option<Version>)> {
    let mut parts = version
        .split(['.', '-'])
        .map(|part| part.parse::<u32>().unwrap_or(0));
    let mut next = || parts.next().unwrap_or(0);
    let have = (next(), next(), next());
    match GOOD.iter().find(|good| (good.0, good.1) == (have.0, have.1)) {
        Some(good) if have < *good => Some((version, Some(*good))),
        Some((3, 4, _)) => Some((version, None)),
        Some(_) => None,
        None => (have < GOOD[0]).then_some((version, Some(GOOD[1]))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_with_known_faults_are_told() {
        assert_eq!(outdated("3.4.23").unwrap().1, Some((3, 4, 38)));
        assert_eq!(outdated("3.5.1").unwrap().1, Some((3, 5, 23)));
        assert_eq!(outdated("3.4.45").unwrap().1, None);
        assert_eq!(outdated("3.3.10").unwrap().1, Some((3, 5, 23)));
        for good in ["3.5.23", "3.6.5", "3.6.12", "3.7.0", "3.7.0-rc.0"] {
            assert_eq!(outdated(good), None, "{good}");
        }
    }

    #[test]
    fn a_full_or_headless_member_is_told() {
        let mut found = Vec::new();
        let status = StatusResponse {
            version: "3.7.0".into(),
            db_size: 2 << 30,
            ..Default::default()
        };
        member("m", &status, &mut found);
        let ids: Vec<_> = found.iter().map(|f| &*f.id).collect();
        assert_eq!(ids, ["etcd-no-leader", "etcd-size"]);
    }
}
