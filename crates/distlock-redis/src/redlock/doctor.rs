//! Looking at a Redlock, and whether its nodes are independent of each other.

use std::collections::HashMap;
use std::time::Duration;

use async_trait::async_trait;
use distlock_core::Key;
use distlock_core::driver::{Break, Holder, LockInfo, Severity};
use redis::{FromRedisValue, Value};

use super::*;
use crate::doctor::{SETTINGS, info, settings};

/// Clocks of servers that differ by more than this are not kept in step.
const SKEW: Duration = Duration::from_secs(1);

/// What one node says of itself.
struct Facts {
    name: String,
    host: String,
    info: HashMap<String, String>,
    /// What `CONFIG GET` says, where it is allowed.
    settings: HashMap<String, String>,
    /// Its clock minus ours, in ms.
    offset: i64,
}

impl Facts {
    fn get(&self, name: &str) -> &str {
        self.info.get(name).map_or("", String::as_str)
    }

    async fn of(node: &RedisDriver) -> Option<Self> {
        let (links, config) = (&node.0.links, &node.0.config);
        let link = links.get().await.ok()?;
        let mut time = Cmd::new();
        time.arg("TIME");
        let before = std::time::SystemTime::now();
        let said = link.ask(&time, links.patience()).await.ok()?;
        let (seconds, micros): (i64, i64) = FromRedisValue::from_redis_value(said).ok()?;
        let ours = before.duration_since(std::time::UNIX_EPOCH).ok()?.as_millis();
        Some(Self {
            name: config.address(),
            host: match &config.endpoint {
                Endpoint::Tcp { host, .. } => host.clone(),
                _ => String::new(),
            },
            info: info(&link, links.patience()).await.ok()?,
            settings: settings(&link, &SETTINGS, links.patience())
                .await
                .unwrap_or_default(),
            offset: seconds * 1000 + micros / 1000 - i64::try_from(ours).ok()?,
        })
    }
}

#[async_trait]
impl Inspect for RedlockDriver {
    async fn list(
        &self,
        prefix: &str,
        after: Option<&Key>,
        limit: usize,
    ) -> Result<Vec<LockInfo>, DriverError> {
        self.eyes()?.list(prefix, after, limit).await
    }

    async fn inspect(&self, key: &Key) -> Result<LockInfo, DriverError> {
        self.eyes()?.inspect(key).await
    }

    async fn break_lock(&self, key: &Key, how: &Break) -> Result<Vec<Holder>, DriverError> {
        self.eyes()?.break_lock(key, how).await
    }

    async fn doctor(&self) -> Result<Vec<Finding>, DriverError> {
        let mut findings = self.eyes()?.doctor().await?;
        // Of a single server. That a node lost its data is seen here, unless it comes back with old ones: `restarts`.
        findings.retain(|finding| finding.id != "redis-persistence");
        let facts: Vec<Facts> = join_all(self.nodes.iter().map(|node| Facts::of(node)))
            .await
            .into_iter()
            .flatten()
            .collect();
        independence(&mut findings, &facts);
        for node in &facts {
            restarts(&mut findings, node);
        }
        findings.extend(skew(&facts));
        findings.extend(self.newborns().await);
        findings.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
        Ok(findings)
    }
}

impl RedlockDriver {
    fn eyes(&self) -> Result<&dyn Inspect, DriverError> {
        self.quorum.inspect().ok_or_else(DriverError::closed)
    }

    /// Nodes without a stamp, or with a young one.
    async fn newborns(&self) -> Option<Finding> {
        let stamp = async |node: &Arc<RedisDriver>| {
            let link = node.0.links.get().await.ok()?;
            let mut get = Cmd::new();
            get.arg("GET").arg(STAMP);
            match link.ask(&get, node.0.links.patience()).await.ok()? {
                Value::Nil => Some(node.0.config.address()),
                _ => None,
            }
        };
        let unknown: Vec<String> = join_all(self.nodes.iter().map(stamp))
            .await
            .into_iter()
            .flatten()
            .collect();
        (!unknown.is_empty()).then(|| Finding {
            severity: Severity::Info,
            id: "redlock-unvouched".into(),
            what: format!(
                "{} were never used with this data: each has no vote for max_ttl from its first use on",
                unknown.join(", ")
            ),
            fix: "for a new deployment: distlock redlock init URL".to_owned(),
        })
    }
}

fn independence(findings: &mut Vec<Finding>, facts: &[Facts]) {
    for (at, one) in facts.iter().enumerate() {
        let later = &facts[at + 1..];
        for other in later
            .iter()
            .filter(|other| other.get("run_id") == one.get("run_id"))
        {
            let what = format!("{} and {} are the same server", one.name, other.name);
            findings.push(Finding::new(
                Severity::Error,
                "redlock-same-server",
                what,
                "name each server once: it has one vote",
            ));
        }
        if one.get("role") == "slave" {
            let master = format!("{}:{}", one.get("master_host"), one.get("master_port"));
            let what = format!("{} is a replica of {master}", one.name);
            findings.push(Finding::new(
                Severity::Error,
                "redlock-replica",
                what,
                "use servers that do not replicate each other: what a master lost, its replica has lost too",
            ));
        }
    }
    let mut hosts: HashMap<&str, usize> = HashMap::new();
    for one in facts {
        *hosts.entry(&one.host).or_default() += 1;
    }
    let majority = facts.len() / 2 + 1;
    if let Some((host, count)) = hosts.into_iter().find(|(_, count)| *count >= majority) {
        let what = format!(
            "{count} of {} nodes are on {host}: one host takes the majority with it",
            facts.len()
        );
        findings.push(Finding::new(
            Severity::Warning,
            "redlock-same-host",
            what,
            "put the nodes on hosts that fail independently",
        ));
    }
}

/// A node that comes back with old data also comes back with its stamp: nobody knows that it has forgotten locks.
fn restarts(findings: &mut Vec<Finding>, node: &Facts) {
    let set = |name: &str| node.settings.get(name).map_or("", String::as_str);
    let (what, fix) = if node.get("aof_enabled") == "1" {
        if matches!(set("appendfsync"), "" | "always") {
            return;
        }
        let fsync = set("appendfsync");
        (
            format!(
                "{} has appendfsync {fsync}: a crash of its machine loses the last acquisitions, not its stamp",
                node.name
            ),
            "appendfsync always, or no persistence at all: then it is seen that it restarted",
        )
    } else {
        if set("save").is_empty() {
            return;
        }
        (
            format!(
                "{} saves snapshots: after a crash it comes back with an old one, and with its stamp",
                node.name
            ),
            "save \"\" (then it is seen that it restarted), or appendonly yes with appendfsync always",
        )
    };
    findings.push(Finding::new(Severity::Warning, "redlock-restart", what, fix));
}

fn skew(facts: &[Facts]) -> Option<Finding> {
    let first = facts.iter().min_by_key(|node| node.offset)?;
    let last = facts.iter().max_by_key(|node| node.offset)?;
    let apart = Duration::from_millis(last.offset.abs_diff(first.offset));
    (apart > SKEW).then(|| {
        let what = format!(
            "the clocks of {} and {} are {apart:.1?} apart",
            first.name, last.name
        );
        Finding::new(
            Severity::Warning,
            "redlock-clocks",
            what,
            "run ntpd or chronyd, slewing and not stepping: a clock that jumps ends leases early",
        )
    })
}
