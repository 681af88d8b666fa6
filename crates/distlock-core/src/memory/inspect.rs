//! Looking at the locks of a store, and breaking them.

use std::time::SystemTime;

use async_trait::async_trait;
use uuid::Uuid;

use super::claim::Client;
use super::lock;
use super::record::{Place, Record};
use crate::clock::Moment;
use crate::driver::{Break, DriverError, Holder, Inspect, LockInfo};
use crate::key::Key;

#[async_trait]
impl Inspect for Client {
    async fn list(
        &self,
        prefix: &str,
        after: Option<&Key>,
        limit: usize,
    ) -> Result<Vec<LockInfo>, DriverError> {
        self.reachable()?;
        let now = self.now();
        let mut found = Vec::new();
        for shard in &self.store.shards {
            let mut rings = Vec::new();
            for (name, record) in &mut lock(shard).records {
                let text = name.key.text();
                let Some(key) = self.engine.namespace().key_of(&text) else {
                    continue;
                };
                if !key.starts_with(prefix) || after.is_some_and(|after| key <= after.as_str()) {
                    continue;
                }
                record.prune(now, &mut rings);
                if record.holders.is_empty() && record.waiters.is_empty() {
                    continue;
                }
                // With exact names everything in the store is ours, and every name came from a key.
                let Ok(key) = Key::new(key) else { continue };
                found.push(self.info(key, record, now));
            }
            super::ring(rings);
        }
        found.sort_by(|a, b| a.key.cmp(&b.key));
        found.truncate(limit);
        Ok(found)
    }

    async fn inspect(&self, key: &Key) -> Result<LockInfo, DriverError> {
        self.reachable()?;
        let now = self.now();
        let name = self.store.name(self.engine.namespace(), key);
        let found = self.store.with_existing(&name, |record, rings| {
            record.prune(now, rings);
            self.info(key.clone(), record, now)
        });
        Ok(found.unwrap_or_else(|| LockInfo::free(key.clone())))
    }

    async fn break_lock(&self, key: &Key, how: &Break) -> Result<Vec<Holder>, DriverError> {
        self.reachable()?;
        let now = self.now();
        let name = self.store.name(self.engine.namespace(), key);
        let mut told = Vec::new();
        self.store.with(&name, now, |record, rings| {
            record.break_all(how, now, rings, |place| {
                told.push(person(place, self.id(), now));
            })
        })?;
        Ok(told)
    }
}

impl Client {
    fn info(&self, key: Key, record: &Record, now: Moment) -> LockInfo {
        let people = |list: &[Place]| list.iter().map(|p| person(p, self.id(), now)).collect();
        LockInfo {
            key,
            kind: record.kind(),
            token: record.token,
            holders: people(&record.holders),
            waiters: people(&record.waiters),
        }
    }
}

/// A place as `client` sees it. A record without an owner has an empty one.
pub(super) fn person(place: &Place, client: Uuid, now: Moment) -> Holder {
    let owner = place.owner.map(|owner| owner.to_string()).unwrap_or_default();
    let mut person = Holder::new(owner, place.want.mode);
    person.token = place.token;
    person.label = place.want.label.as_deref().map(str::to_owned);
    person.reason = place.want.reason.as_deref().map(str::to_owned);
    person.pid = Some(std::process::id());
    person.since = SystemTime::now().checked_sub(now.since(place.since));
    person.expires_in = Some(place.expires.since(now));
    person.here = place.owner.is_some_and(|owner| owner.client == client);
    person
}
