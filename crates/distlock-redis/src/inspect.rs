//! Looking at locks, and breaking them.

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use distlock_core::driver::{Break, DriverError, Finding, Holder, Inspect, LockInfo, Reached, Refusal};
use distlock_core::{FencingToken, Key};
use redis::{Cmd, FromRedisValue, Value};

use crate::config::Layout;
use crate::doctor;
use crate::driver::{RedisDriver, Shared};
use crate::names::Names;
use crate::script::{BREAK, INSPECT};
use crate::seen::Seen;
use crate::slot;

/// Keys that one SCAN step looks at.
const STEP: usize = 1000;

impl Shared {
    fn prefix(&self) -> &str {
        match &self.config.layout {
            Layout::String { prefix, .. } => prefix,
            Layout::Redisson => "",
        }
    }

    fn is_string(&self) -> bool {
        self.config.layout != Layout::Redisson
    }

    /// The lock's own key on the server.
    pub(crate) fn stored_key(&self, key: &Key) -> String {
        self.config.stored(self.engine.namespace(), key)
    }

    /// The lock that a key on the server is.
    fn key_of(&self, stored: &str) -> Option<Key> {
        let (namespace, record) = (self.engine.namespace(), stored.strip_prefix(self.prefix())?);
        let record = match self.config.encodes(namespace) {
            true => slot::decode(record),
            false => record.into(),
        };
        Key::new(namespace.key_of(&record)?).ok()
    }

    async fn see(&self, key: &Key) -> Result<Seen, DriverError> {
        let stored = self.stored_key(key);
        let mut call = INSPECT.call(6);
        look_keys(&mut call, Names(&stored));
        call.arg(Names(&stored).lives());
        let link = self.links.get().await?;
        Seen::read(
            self.run(&link, &(&INSPECT, call))
                .await
                .map_err(|fault| fault.error)?,
        )
    }

    /// The smallest `limit` keys after `after` that start with `prefix`. Memory is bounded by `limit`; the time is
    /// that of a scan over the whole database, in steps.
    async fn scan(
        &self,
        prefix: &str,
        after: Option<&Key>,
        limit: usize,
    ) -> Result<BTreeSet<Key>, DriverError> {
        let link = self.links.get().await?;
        let namespace = self.engine.namespace();
        let start = match namespace.is_exact() {
            true => prefix.to_owned(),
            false => format!("{namespace}:{prefix}"),
        };
        let start = match self.config.encodes(namespace) {
            true => slot::encode(start),
            false => start,
        };
        let pattern = format!("{}*", literal(&format!("{}{start}", self.prefix())));
        let mut found = BTreeSet::new();
        let mut cursor = 0_u64;
        loop {
            let mut scan = Cmd::new();
            scan.arg("SCAN")
                .arg(cursor)
                .arg("MATCH")
                .arg(&pattern)
                .arg("COUNT")
                .arg(STEP);
            let answer = link
                .ask(&scan, self.links.patience())
                .await
                .map_err(|fault| fault.error)?;
            let (next, keys): (u64, Vec<Vec<u8>>) = FromRedisValue::from_redis_value(answer)
                .map_err(|e| DriverError::unavailable(Reached::Yes, e.to_string()))?;
            for stored in keys
                .iter()
                .filter_map(|k| std::str::from_utf8(k).ok())
                .filter(|k| !Names::is_part(k))
            {
                let Some(key) = self.key_of(stored) else { continue };
                if after.is_none_or(|after| key > *after) {
                    found.insert(key);
                    if found.len() > limit {
                        found.pop_last();
                    }
                }
            }
            cursor = next;
            if cursor == 0 {
                return Ok(found);
            }
        }
    }
}

fn look_keys(call: &mut Cmd, names: Names<'_>) {
    call.arg(names.0)
        .arg(names.queue())
        .arg(names.record())
        .arg(names.people())
        .arg(names.leases())
        .arg(names.line());
}

/// Escapes what a glob pattern would take for more than itself.
fn literal(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if matches!(c, '*' | '?' | '[' | ']' | '\\' | '^') {
            out.push('\\');
        }
        out.push(c);
    }
    out
}

#[async_trait]
impl Inspect for RedisDriver {
    async fn list(
        &self,
        prefix: &str,
        after: Option<&Key>,
        limit: usize,
    ) -> Result<Vec<LockInfo>, DriverError> {
        let mut page = Vec::new();
        let mut after = after.cloned();
        while page.len() < limit {
            let keys = self.0.scan(prefix, after.as_ref(), limit).await?;
            let full = keys.len() == limit;
            after = keys.last().cloned().or(after);
            for key in keys {
                let seen = self.0.see(&key).await?;
                if seen.is_lock(self.0.is_string()) && page.len() < limit {
                    page.push(seen.info(key, self.0.client(), self.0.is_string()));
                }
            }
            if !full {
                break;
            }
        }
        Ok(page)
    }

    async fn inspect(&self, key: &Key) -> Result<LockInfo, DriverError> {
        Ok(self
            .0
            .see(key)
            .await?
            .info(key.clone(), self.0.client(), self.0.is_string()))
    }

    async fn break_lock(&self, key: &Key, how: &Break) -> Result<Vec<Holder>, DriverError> {
        let stored = self.0.stored_key(key);
        let names = Names(&stored);
        let script = BREAK.told(self.0.config.sharded == Some(true));
        let mut call = script.call(8);
        look_keys(&mut call, names);
        call.arg(names.broken()).arg(names.line_seen()).arg(names.lives());
        call.arg(how.expect.map_or_else(String::new, |t| t.to_string()));
        call.arg(u64::try_from(how.grace.as_millis()).unwrap_or(u64::MAX));
        call.arg(how.reason.as_deref().unwrap_or_default());
        call.arg(if self.0.is_string() { "string" } else { "redisson" });
        call.arg(names.mutex_channel())
            .arg(names.rw_channel())
            .arg(names.slot_channel())
            .arg(names.string_channel());
        let link = self.0.links.get().await?;
        let answer = self
            .0
            .run(&link, &(script, call))
            .await
            .map_err(|fault| fault.error)?;
        if let Value::Array(words) = &answer
            && let [word, value] = &words[..]
        {
            let text = |v: &Value| String::from_redis_value_ref(v).unwrap_or_default();
            return Err(DriverError::refused(match text(word).as_str() {
                "token" => Refusal::TokenMismatch {
                    have: text(value).parse().ok().map(FencingToken::new),
                },
                _ => Refusal::KindMismatch {
                    have: text(value),
                    want: "a lock".to_owned(),
                },
            }));
        }
        Ok(Seen::read(answer)?
            .info(key.clone(), self.0.client(), self.0.is_string())
            .holders)
    }

    async fn doctor(&self) -> Result<Vec<Finding>, DriverError> {
        doctor::examine(&self.0).await
    }

    async fn time(&self) -> Result<Option<SystemTime>, DriverError> {
        let link = self.0.links.get().await?;
        let mut time = Cmd::new();
        time.arg("TIME");
        let answer = link.ask(&time, self.0.links.patience()).await;
        let answer = answer.map_err(|fault| fault.error)?;
        let Ok((secs, micros)) = <(u64, u64)>::from_redis_value(answer) else {
            return Ok(None);
        };
        Ok(SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(secs) + Duration::from_micros(micros)))
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn f101_a_prefix_is_taken_literally() {
        assert_eq!(super::literal("job[1]*"), r"job\[1\]\*");
    }
}
