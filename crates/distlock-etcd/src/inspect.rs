//! Looking at locks, and breaking them.

use std::time::Duration;

use async_trait::async_trait;
use distlock_core::Key;
use distlock_core::driver::{Break, DriverError, Finding, Holder, Inspect, LockInfo, Mode, Refusal};
use distlock_core::line::{Turn, turn};

use crate::ask;
use crate::driver::EtcdDriver;
use crate::record::{self, Record};
use crate::wire::{KeyValue, LeaseTimeToLiveRequest, RangeResponse};

/// How many keys one request of a listing reads.
const PAGE: i64 = 512;
/// A holder that waited notes its token in its key within this time, and is looked at again this often until then.
const NOTED: Duration = Duration::from_secs(1);
const AGAIN: Duration = Duration::from_millis(25);

/// A contender as stored.
struct Contender {
    kv: KeyValue,
    record: Record,
}

impl EtcdDriver {
    fn contender(&self, kv: KeyValue) -> Option<(Key, Contender)> {
        let (key, rest) = self.shared.names.parse(&kv.key)?;
        let mut record = Record::read(&kv, rest);
        record.holder = self.shared.holder(record.holder);
        Some((key, Contender { kv, record }))
    }

    /// The contenders, the first first, in this answer.
    fn contenders(&self, key: &Key, range: RangeResponse) -> Vec<Contender> {
        let contenders = range.kvs.into_iter().filter_map(|kv| self.contender(kv));
        contenders
            .filter(|(of, _)| of == key)
            .map(|(_, contender)| contender)
            .collect()
    }

    /// The contenders, the first first. A holder's token is the one of its grant; `None` if that is not known.
    async fn line(&self, key: &Key) -> Result<Vec<Contender>, DriverError> {
        let client = &self.shared.client;
        let lock = self.shared.names.lock(key).map_err(DriverError::refused)?;
        let deadline = client.clock().now() + NOTED;
        loop {
            let mut line = self.contenders(key, client.call(ask::whole_line(&lock)).await?);
            let mut noted_soon = false;
            for at in holding(&line) {
                let Contender { kv, record } = &line[at];
                if record.noted || !record.holder.mode.is_exclusive() {
                    continue;
                }
                // Without a note the token is the revision at which the key was made, unless there was a wait. What
                // was compacted away is older than any note that is still to come.
                let Ok(then) = client.call(ask::line_at(&lock, kv.create_revision)).await else {
                    continue;
                };
                let then = self.contenders(key, then);
                if !holding(&then).contains(&(then.len().saturating_sub(1))) {
                    noted_soon |= record.ours;
                    line[at].record.holder.token = None;
                }
            }
            if !noted_soon || client.clock().now() >= deadline {
                return Ok(line);
            }
            client.clock().sleep(AGAIN).await;
        }
    }

    /// Notes in a stored key that it was broken; its holder reads that.
    async fn note(
        &self,
        contender: &Contender,
        how: &Break,
        lease: Option<i64>,
    ) -> Result<bool, DriverError> {
        let kv = &contender.kv;
        let value = record::with(&kv.value, "broken", how.reason.as_deref().unwrap_or_default());
        let note = ask::rewrite(kv.key.clone(), kv.create_revision, value, lease);
        Ok(self.shared.client.call(note).await?.succeeded)
    }
}

/// Which of a line, sorted by age, hold.
fn holding(line: &[Contender]) -> Vec<usize> {
    let modes: Vec<Mode> = line.iter().map(|c| c.record.holder.mode).collect();
    (0..line.len())
        .filter(|i| turn(&modes, *i) == Turn::Mine)
        .collect()
}

/// Splits a line, sorted by age, into those who hold and those who wait.
fn describe(key: Key, line: Vec<Contender>) -> LockInfo {
    let holding = holding(&line);
    let mut info = LockInfo::free(key);
    info.kind = line.first().map(|c| c.record.kind());
    for (i, contender) in line.into_iter().enumerate() {
        let mut holder = contender.record.holder;
        if holding.contains(&i) {
            info.token = info.token.max(holder.token);
            info.holders.push(holder);
        } else {
            holder.token = None;
            info.waiters.push(holder);
        }
    }
    info
}

#[async_trait]
impl Inspect for EtcdDriver {
    async fn list(
        &self,
        prefix: &str,
        after: Option<&Key>,
        limit: usize,
    ) -> Result<Vec<LockInfo>, DriverError> {
        let all = self.shared.names.locks(prefix);
        let mut locks: std::collections::BTreeMap<Key, Vec<Contender>> = Default::default();
        let mut from = all.clone().into_bytes();
        loop {
            let range = self
                .shared
                .client
                .call(ask::page(&all, from.clone(), PAGE))
                .await?;
            let Some(last) = range.kvs.last() else { break };
            from = last.key.clone();
            from.push(0);
            for (key, contender) in range.kvs.into_iter().filter_map(|kv| self.contender(kv)) {
                if key.as_str().starts_with(prefix) && after.is_none_or(|after| key > *after) {
                    locks.entry(key).or_default().push(contender);
                }
            }
            if !range.more {
                break;
            }
        }
        let listed = locks.into_iter().take(limit).map(|(key, mut line)| {
            line.sort_by_key(|c| c.kv.create_revision);
            describe(key, line)
        });
        Ok(listed.collect())
    }

    async fn inspect(&self, key: &Key) -> Result<LockInfo, DriverError> {
        let line = self.line(key).await?;
        let leases: Vec<i64> = line.iter().map(|c| c.kv.lease).collect();
        let mut info = describe(key.clone(), line);
        // Of the holders only: there may be thousands of waiters.
        for (holder, id) in info.holders.iter_mut().zip(leases) {
            let lease = self
                .shared
                .client
                .call(LeaseTimeToLiveRequest { id, keys: false })
                .await;
            let ttl = lease.ok().and_then(|lease| u64::try_from(lease.ttl).ok());
            holder.expires_in = ttl.map(Duration::from_secs);
        }
        Ok(info)
    }

    async fn break_lock(&self, key: &Key, how: &Break) -> Result<Vec<Holder>, DriverError> {
        let mut broken = Vec::new();
        let line = self.line(key).await?;
        let holders = holding(&line);
        let line = line.into_iter().enumerate();
        let holding: Vec<_> = line
            .filter(|(i, _)| holders.contains(i))
            .map(|(_, c)| c)
            .collect();
        if let Some(expect) = how.expect {
            let have = holding.first().and_then(|c| c.record.holder.token);
            if have != Some(expect) {
                return Err(DriverError::refused(Refusal::TokenMismatch { have }));
            }
        }
        for contender in holding {
            let client = &self.shared.client;
            let gone = if how.grace.is_zero() {
                let noted = self.note(&contender, how, None).await?;
                let remove = ask::remove(contender.kv.key.clone(), contender.kv.create_revision);
                noted && client.call(remove).await?.deleted(0) > 0
            } else {
                let lease = self.shared.grant_unkept(how.grace).await?;
                self.note(&contender, how, Some(lease)).await?
            };
            if gone {
                broken.push(contender.record.holder);
            }
        }
        Ok(broken)
    }

    async fn doctor(&self) -> Result<Vec<Finding>, DriverError> {
        self.shared.examine().await
    }
}
