//! Looking at locks, and breaking them.

use std::collections::BTreeMap;

use async_trait::async_trait;
use distlock_core::driver::{Break, DriverError, Finding, Holder, Inspect, LockInfo};
use distlock_core::{FencingToken, Key};

use crate::doctor;
use crate::driver::Shared;
use crate::entry;
use crate::place::Place;
use crate::protocol;
use crate::snapshot::{Entry, State};
use crate::table::{BUCKETS, Table};
use crate::update::clear_damaged;

impl Shared {
    fn info<'a>(&self, place: &Place, key: Key, line: impl Iterator<Item = &'a Entry>) -> LockInfo {
        let now = self.clock().now().as_nanos();
        let mut info = LockInfo::free(key);
        for e in line {
            let to = if e.is_holding(now) {
                &mut info.holders
            } else if e.state == State::Waiting {
                &mut info.waiters
            } else {
                continue;
            };
            // Somebody who died since is still written down, but no longer there. One that cannot be asked is.
            let lives = e.process == 0
                || (e.lease && e.state == State::Holding)
                || place.peers.is_alive(&place.fifos, e.process).unwrap_or(true);
            if lives {
                to.push(self.holder(place, e));
                info.kind = Some(e.mode.kind());
                info.token = info.token.max((e.token != 0).then(|| FencingToken::new(e.token)));
            }
        }
        info
    }
}

#[async_trait]
impl Inspect for Shared {
    async fn list(
        &self,
        prefix: &str,
        after: Option<&Key>,
        limit: usize,
    ) -> Result<Vec<LockInfo>, DriverError> {
        let place = self.place();
        let mut found: BTreeMap<Key, Vec<Entry>> = BTreeMap::new();
        for bucket in 0..BUCKETS {
            let (root, s) = place.table.read(bucket)?;
            if root.slot().is_none() {
                continue;
            }
            for e in s.entries {
                let key = entry::key(self.engine.namespace(), &e.key);
                let Some(key) = key.filter(|k| k.as_str().starts_with(prefix) && after.is_none_or(|a| k > a))
                else {
                    continue;
                };
                found.entry(key).or_default().push(e);
            }
        }
        let infos = found
            .into_iter()
            .map(|(key, line)| self.info(&place, key, line.iter()));
        Ok(infos
            .filter(|info| !info.holders.is_empty() || !info.waiters.is_empty())
            .take(limit)
            .collect())
    }

    async fn inspect(&self, key: &Key) -> Result<LockInfo, DriverError> {
        let place = self.place();
        let me = entry::of_key(self.engine.namespace().record(key).into());
        let (_, s) = place.table.read(Table::bucket(me.hash))?;
        Ok(self.info(&place, key.clone(), s.line(&me)))
    }

    async fn break_lock(&self, key: &Key, how: &Break) -> Result<Vec<Holder>, DriverError> {
        let place = self.place();
        if place.table.is_forked() {
            return Err(DriverError::closed());
        }
        let me = entry::of_key(self.engine.namespace().record(key).into());
        let bucket = Table::bucket(me.hash);
        if place.table.read(bucket).is_err() {
            tracing::warn!(table = %place.table.path().display(), bucket, "clearing damaged records");
            clear_damaged(&place.table, bucket)?;
        }
        let (broken, wakes) = self
            .change(&place, bucket, &mut |s, now| {
                let mut wakes = Vec::new();
                let (broken, changed) = protocol::break_lock(s, now, &me, how, &mut wakes);
                ((broken, wakes), changed)
            })
            .await?;
        let broken = broken.map_err(DriverError::refused)?;
        self.wake(&place, bucket, wakes).await?;
        Ok(broken.iter().map(|e| self.holder(&place, e)).collect())
    }

    async fn doctor(&self) -> Result<Vec<Finding>, DriverError> {
        doctor::examine(&self.place())
    }
}
