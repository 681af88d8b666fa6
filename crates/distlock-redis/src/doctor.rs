//! Settings of a deployment that endanger locks, with what to do about them.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use distlock_core::Key;
use distlock_core::bell::Bell;
use distlock_core::driver::{Claim, DriverError, Finding, Life, Line, Mode, Order, Severity, Standing, Want};
use redis::{Cmd, FromRedisValue};

use crate::claim::RedisClaim;
use crate::config::{Endpoint, Layout};
use crate::dial::Link;
use crate::driver::Shared;

/// The oldest server whose commands the scripts use (SET with GET).
const OLDEST: (u32, u32) = (6, 2);
/// A failover that takes longer than this may cost the holds of the default TTL their renewals.
pub(crate) const SLOW_FAILOVER_MS: u64 = 10_000;
/// The settings that matter to locks.
pub(crate) const SETTINGS: [&str; 4] = ["appendfsync", "maxmemory-policy", "min-replicas-to-write", "save"];

pub(crate) async fn examine(shared: &Arc<Shared>) -> Result<Vec<Finding>, DriverError> {
    let link = shared.links.get().await?;
    let patience = shared.links.patience();
    let mut out = Findings(Vec::new());
    let info = info(&link, patience).await?;
    let get = |name: &str| info.get(name).map_or("", String::as_str);
    let config = settings(&link, &SETTINGS, patience).await;
    let set = |name: &str| config.as_ref().and_then(|c| c.get(name)).map(String::as_str);

    let version = get("redis_version");
    if parse_version(version).is_some_and(|v| v < OLDEST) {
        let fix = "use Redis 6.2 or newer, or Valkey";
        out.add(
            Severity::Error,
            "redis-version",
            format!("the server is version {version}"),
            fix,
        );
    }
    if config.is_none() {
        let what = "CONFIG GET is not allowed; eviction, persistence and replica settings were not examined";
        out.add(
            Severity::Info,
            "redis-config-hidden",
            what.into(),
            "allow +config|get, or check them by hand",
        );
    }
    persistence(&mut out, &get, &set);
    memory(&mut out, &get, &set);
    replication(&mut out, &get, &set);
    if let Some(finding) = sentinel(shared).await {
        out.0.push(finding);
    }
    tracking(&mut out, shared).await;
    // What is tried here is in one slot only; who knows the slots tries it.
    if !shared.config.clustered {
        rights(&mut out, shared).await;
    }
    out.0.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
    Ok(out.0)
}

struct Findings(Vec<Finding>);

impl Findings {
    fn add(&mut self, severity: Severity, id: &'static str, what: String, fix: &str) {
        self.0.push(Finding::new(severity, id, what, fix));
    }
}

fn persistence<'a>(
    out: &mut Findings,
    get: &impl Fn(&str) -> &'a str,
    set: &impl Fn(&str) -> Option<&'a str>,
) {
    if get("aof_enabled") == "1" {
        if let Some(fsync) = set("appendfsync").filter(|v| *v != "always") {
            let what =
                format!("appendfsync is {fsync}: a crash of the machine can lose the last acquisitions");
            out.add(
                Severity::Info,
                "redis-persistence",
                what,
                "appendfsync always, if that matters more than speed",
            );
        }
    } else {
        let what = "the append-only file is off: after a crash of the server every lock is free while its holder goes on";
        let fix = "appendonly yes; and check the fencing token where the data is";
        out.add(Severity::Warning, "redis-persistence", what.into(), fix);
    }
    if get("rdb_last_bgsave_status") == "err" || get("aof_last_write_status") == "err" {
        let what = "the server cannot write to its disk and may refuse writes (MISCONF)";
        out.add(
            Severity::Error,
            "redis-disk",
            what.into(),
            "free space, or look at the server's log",
        );
    }
}

fn memory<'a>(out: &mut Findings, get: &impl Fn(&str) -> &'a str, set: &impl Fn(&str) -> Option<&'a str>) {
    let limit: u64 = get("maxmemory").parse().unwrap_or(0);
    let used: u64 = get("used_memory").parse().unwrap_or(0);
    let policy = set("maxmemory-policy").unwrap_or_else(|| get("maxmemory_policy"));
    if !policy.is_empty() && policy != "noeviction" {
        let severity = if limit > 0 {
            Severity::Error
        } else {
            Severity::Warning
        };
        let what = format!("maxmemory-policy is {policy}: locks are evicted while they are held");
        out.add(
            severity,
            "redis-eviction",
            what,
            "maxmemory-policy noeviction; keep caches in another instance",
        );
    }
    if limit > 0 && used > limit / 10 * 9 {
        let what = format!("{used} of {limit} bytes are in use: soon nothing can be locked");
        out.add(
            Severity::Warning,
            "redis-memory",
            what,
            "raise maxmemory, or move other data away",
        );
    }
}

fn replication<'a>(
    out: &mut Findings,
    get: &impl Fn(&str) -> &'a str,
    set: &impl Fn(&str) -> Option<&'a str>,
) {
    if get("role") == "slave" {
        let what = "this server is a replica; locks cannot be taken here";
        out.add(
            Severity::Error,
            "redis-role",
            what.into(),
            "connect to the master, or through sentinels",
        );
    }
    let replicas: u32 = get("connected_slaves").parse().unwrap_or(0);
    if replicas > 0 {
        if set("min-replicas-to-write").is_some_and(|n| n == "0") {
            let what = "min-replicas-to-write is 0: a master that is cut off from its replicas goes on granting locks";
            let fix =
                "min-replicas-to-write 1 and min-replicas-max-lag 1 shorten that time; they do not end it";
            out.add(Severity::Warning, "redis-min-replicas", what.into(), fix);
        }
        let what = "replication is asynchronous: a failover can lose the last acquisitions";
        let fix = "check the fencing token where the data is, or use redlock:// or etcd:// for exclusion without it";
        out.add(Severity::Info, "redis-failover", what.into(), fix);
    }
}

async fn sentinel(shared: &Shared) -> Option<Finding> {
    let Endpoint::Sentinel { .. } = &shared.config.endpoint else {
        return None;
    };
    let facts = shared.links.site().facts().await?;
    let down_after: u64 = facts.get("down-after-milliseconds")?.parse().ok()?;
    (down_after >= SLOW_FAILOVER_MS).then(|| Finding {
        severity: Severity::Warning,
        id: "redis-sentinel-timing".into(),
        what: format!(
            "down-after-milliseconds is {down_after}: with the default ttl of 30 s a hold may run out before a new \
             master can renew it"
        ),
        fix: "down-after-milliseconds of 1000 to 5000, or a longer ttl".to_owned(),
    })
}

async fn tracking(out: &mut Findings, shared: &Shared) {
    let Ok((_, link)) = shared.links.dial(|_| ()).await else {
        return;
    };
    if let Err(fault) = link.start_tracking(shared.links.patience()).await {
        let what = format!(
            "CLIENT TRACKING is not available ({}): a lock that is deleted or evicted is noticed at the next renewal only",
            fault.error
        );
        out.add(
            Severity::Warning,
            "redis-tracking",
            what,
            "allow +client|tracking +client|caching",
        );
    }
}

/// Takes and gives back one lock of each kind: the only sure way to learn whether the user may.
async fn rights(out: &mut Findings, shared: &Arc<Shared>) {
    let all = [
        (Mode::Mutex, Order::Any),
        (Mode::Mutex, Order::Fifo),
        (Mode::Read, Order::Any),
        (Mode::Write, Order::Any),
        (Mode::Slot { of: 1 }, Order::Any),
    ];
    let kinds = if shared.config.layout == Layout::Redisson {
        &all[..]
    } else {
        &all[..1]
    };
    for (n, (mode, order)) in kinds.iter().enumerate() {
        let owner = shared.engine.owners().next();
        let Ok(key) = Key::new(format!("distlock-doctor:{}:{n}", owner.client)) else {
            continue;
        };
        let want = Arc::new(Want {
            key,
            owner,
            mode: *mode,
            order: *order,
            line: Line::Never,
            life: Life::Process,
            ttl: Duration::from_secs(2),
            label: None,
            reason: None,
            bell: Bell::new(),
        });
        let shape = shared.shape(&want);
        let armed = shared.hub.arm(shape.channel(), want.bell.clone());
        shared
            .clock()
            .timeout(shared.links.patience(), armed.heard())
            .await;
        if !armed.is_live() {
            let what = format!("waiters cannot subscribe to {}", shape.channel());
            let fix = "allow +subscribe +unsubscribe and the channel patterns of the engine's page";
            out.add(Severity::Warning, "redis-acl-channels", what, fix);
        }
        let mut claim = RedisClaim::new(shared.clone(), want.clone(), shape);
        let tried = claim.try_acquire().await;
        let released = claim.release(None).await;
        let trouble = match (tried, released) {
            (Ok(Standing::Held(_)), Ok(_)) => continue,
            (Err(e), _) | (_, Err(e)) => e.to_string(),
            (Ok(Standing::Waiting { .. }), Ok(_)) => continue,
        };
        let what = format!("{} cannot be taken and released: {trouble}", mode.kind());
        out.add(
            Severity::Error,
            "redis-acl",
            what,
            "give the user the rights of the engine's page",
        );
        return;
    }
}

pub(crate) async fn info(link: &Link, patience: Duration) -> Result<HashMap<String, String>, DriverError> {
    let mut info = Cmd::new();
    info.arg("INFO");
    let answer = match link.ask(&info, patience).await {
        Ok(answer) => String::from_redis_value(answer).unwrap_or_default(),
        // Not allowed: the other checks go on without it.
        Err(fault) if !fault.error.retry => String::new(),
        Err(fault) => return Err(fault.error),
    };
    let lines = answer.lines().filter_map(|line| line.split_once(':'));
    Ok(lines
        .map(|(name, value)| (name.to_owned(), value.trim().to_owned()))
        .collect())
}

pub(crate) async fn settings(
    link: &Link,
    names: &[&str],
    patience: Duration,
) -> Option<HashMap<String, String>> {
    let mut all = HashMap::new();
    for name in names {
        let mut get = Cmd::new();
        get.arg("CONFIG").arg("GET").arg(name);
        let answer = link.ask(&get, patience).await.ok()?;
        all.extend(HashMap::<String, String>::from_redis_value(answer).ok()?);
    }
    Some(all)
}

fn parse_version(text: &str) -> Option<(u32, u32)> {
    let mut parts = text.split('.');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}
