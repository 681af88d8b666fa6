//! Looking at locks, and breaking them.

use std::time::SystemTime;

use async_trait::async_trait;
use distlock_core::driver::{Break, DriverError, Finding, Holder, Inspect, LockInfo, Reached, Refusal};
use distlock_core::{FencingToken, Key};

use crate::driver::RowDriver;
use crate::people;
use crate::state::State;
use crate::statement::{Arg, Verb};
use crate::store::{Lane, unreadable};
use crate::times::{in_micros, micros};

const TRIES: u32 = 20;

#[async_trait]
impl Inspect for RowDriver {
    async fn list(
        &self,
        prefix: &str,
        after: Option<&Key>,
        limit: usize,
    ) -> Result<Vec<LockInfo>, DriverError> {
        let namespace = self.store.engine.namespace();
        let start = match namespace.is_exact() {
            true => prefix.to_owned(),
            false => format!("{namespace}:{prefix}"),
        };
        // The smallest name after `after` is `after` itself with the smallest character.
        let after = after.map(|key| format!("{}\u{1}", namespace.record(key)));
        let from = after.filter(|a| *a > start).unwrap_or_else(|| start.clone());
        let to = format!("{start}\u{10ffff}\u{10ffff}");
        let args = [
            Arg::from(from),
            to.into(),
            i64::try_from(limit).unwrap_or(i64::MAX).into(),
        ];
        let answer = self
            .store
            .ask(&mut Lane::default(), "", Verb::List, &args)
            .await?;
        let client = self.store.engine.owners().client();
        let mut found = Vec::new();
        for row in &answer.rows {
            // A name that no key can have was put there by hand.
            let Some(Ok(key)) = namespace.key_of(row[0].text()).map(Key::new) else {
                continue;
            };
            found.push(people::info(key, &State::read(row).map_err(unreadable)?, client));
        }
        Ok(found)
    }

    async fn inspect(&self, key: &Key) -> Result<LockInfo, DriverError> {
        let name = self.store.engine.namespace().record(key);
        let state = self.store.look(&mut Lane::default(), &name).await?;
        Ok(people::info(
            key.clone(),
            &state,
            self.store.engine.owners().client(),
        ))
    }

    async fn break_lock(&self, key: &Key, how: &Break) -> Result<Vec<Holder>, DriverError> {
        let name = self.store.engine.namespace().record(key);
        let client = self.store.engine.owners().client();
        let about = crate::people::broken(how.reason.as_deref());
        let mut lane = Lane::default();
        for tries in 1..=TRIES {
            let seen = self.store.look(&mut lane, &name).await?;
            let owned = seen.taken() && seen.token > 0 && !seen.owner.starts_with('=');
            if let Some(expect) = how.expect {
                let have = owned.then(|| FencingToken::new(seen.token.unsigned_abs()));
                if have != Some(expect) {
                    return Err(DriverError::refused(Refusal::TokenMismatch { have }));
                }
            }
            let holders = people::holders(&seen, client);
            if holders.is_empty() {
                return Ok(holders);
            }
            let mut next = seen.clone();
            next.take_away(in_micros(how.grace), &about);
            if self.store.write(&mut lane, &name, &seen, &next, true).await? {
                return Ok(holders);
            }
            self.store.pause(tries).await;
        }
        Err(DriverError::unavailable(
            Reached::No,
            "many others write this row at the same time",
        ))
    }

    async fn doctor(&self) -> Result<Vec<Finding>, DriverError> {
        crate::doctor::examine(&self.store).await
    }

    async fn time(&self) -> Result<Option<SystemTime>, DriverError> {
        // A name that no key has: the answer is the time alone.
        let state = self.store.look(&mut Lane::default(), "").await?;
        Ok(SystemTime::UNIX_EPOCH.checked_add(micros(state.now)))
    }
}
