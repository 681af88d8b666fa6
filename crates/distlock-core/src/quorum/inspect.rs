//! Looking at locks that are held on a majority, and breaking them.

use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::{BoxFuture, join_all};

use super::Shared;
use super::vote::no_quorum;
use crate::driver::{
    Break, DriverError, DriverErrorKind, Finding, Holder, Inspect, LockInfo, Refusal, Severity,
};
use crate::key::Key;

/// How long a node may take to answer somebody who looks: so many times its usual limit, and at most so long.
const PATIENCE: (u32, Duration) = (20, Duration::from_secs(5));

impl Shared {
    fn patience(&self) -> Duration {
        let (times, most) = PATIENCE;
        (self.rules.node_timeout * times).min(most)
    }

    /// Asks all nodes; what each of them said, if they are a majority.
    async fn all<'a, T>(
        &'a self,
        ask: impl Fn(&'a dyn Inspect) -> BoxFuture<'a, Result<T, DriverError>>,
    ) -> Result<Vec<T>, DriverError> {
        let one = async |node: &'a super::Node| {
            let Some(eyes) = node.driver.inspect() else {
                return Err(DriverError::refused(Refusal::Unsupported(
                    "the node cannot be looked into".into(),
                )));
            };
            let said = self.clock().timeout(self.patience(), ask(eyes)).await;
            said.unwrap_or_else(|| {
                Err(DriverError::unavailable(
                    crate::driver::Reached::Maybe,
                    "no answer in time",
                ))
            })
        };
        let (mut answers, mut missing) = (Vec::new(), Vec::new());
        for (node, said) in self.nodes.iter().zip(join_all(self.nodes.iter().map(one)).await) {
            match said {
                Ok(answer) => answers.push(answer),
                Err(e) => missing.push((node, e)),
            }
        }
        if answers.len() >= self.majority() {
            return Ok(answers);
        }
        let refusals = missing
            .iter()
            .filter(|(_, e)| matches!(e.kind, DriverErrorKind::Refused(_)));
        if refusals.count() > self.nodes.len() - self.majority()
            && let Some(at) = missing
                .iter()
                .position(|(_, e)| matches!(e.kind, DriverErrorKind::Refused(_)))
        {
            return Err(missing.swap_remove(at).1);
        }
        Err(no_quorum(
            missing
                .iter()
                .map(|(node, e)| format!("{}: {e}", node.name))
                .collect(),
        ))
    }

    /// Those whom a majority names, as one person each.
    fn agreed(&self, people: Vec<Holder>) -> Vec<Holder> {
        let mut by_owner: Vec<(String, Vec<Holder>)> = Vec::new();
        for person in people {
            match by_owner.iter_mut().find(|(owner, _)| *owner == person.owner) {
                Some((_, same)) => same.push(person),
                None => by_owner.push((person.owner.clone(), vec![person])),
            }
        }
        let majority = self.majority();
        by_owner.retain(|(_, same)| same.len() >= majority);
        let one = |(_, mut same): (String, Vec<Holder>)| {
            // The lease ends for a majority when so many of them have let it go.
            same.sort_by_key(|person| std::cmp::Reverse(person.expires_in));
            let expires_in = same[majority - 1].expires_in;
            let said = |token| same.iter().filter(|person| person.token == token).count();
            // Nodes outside of the grant may have a larger token, which nobody was given.
            let token = same
                .iter()
                .map(|person| person.token)
                .max_by_key(|token| said(*token))
                .flatten();
            let mut person = same.swap_remove(0);
            (person.token, person.expires_in) = (token, expires_in);
            person
        };
        by_owner.into_iter().map(one).collect()
    }

    fn merged(&self, key: Key, seen: Vec<LockInfo>) -> LockInfo {
        let mut info = LockInfo::free(key);
        let (mut holders, mut waiters) = (Vec::new(), Vec::new());
        for one in seen {
            info.kind = info.kind.or(one.kind);
            info.token = info.token.max(one.token);
            holders.extend(one.holders);
            waiters.extend(one.waiters);
        }
        info.holders = self.agreed(holders);
        info.waiters = self.agreed(waiters);
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
        let mut page = Vec::new();
        let mut after = after.cloned();
        while page.len() < limit {
            let start = after.clone();
            let prefix = prefix.to_owned();
            let pages = self
                .all(|eyes| {
                    let (start, prefix) = (start.clone(), prefix.clone());
                    Box::pin(async move { eyes.list(&prefix, start.as_ref(), limit).await })
                })
                .await?;
            // Beyond the end of a full page that node may have more.
            let full = pages.iter().filter(|page| page.len() >= limit);
            let end = full
                .filter_map(|page| page.last().map(|info| info.key.clone()))
                .min();
            let mut seen: BTreeMap<Key, Vec<LockInfo>> = BTreeMap::new();
            for info in pages.into_iter().flatten() {
                if end.as_ref().is_none_or(|end| info.key <= *end) {
                    seen.entry(info.key.clone()).or_default().push(info);
                }
            }
            let merged = seen.into_iter().map(|(key, seen)| self.merged(key, seen));
            page.extend(merged.filter(|info| !info.holders.is_empty() || !info.waiters.is_empty()));
            page.truncate(limit);
            match end {
                Some(end) => after = Some(end),
                None => break,
            }
        }
        Ok(page)
    }

    async fn inspect(&self, key: &Key) -> Result<LockInfo, DriverError> {
        let asked = key.clone();
        let seen = self
            .all(|eyes| {
                let key = asked.clone();
                Box::pin(async move { eyes.inspect(&key).await })
            })
            .await?;
        Ok(self.merged(key.clone(), seen))
    }

    async fn break_lock(&self, key: &Key, how: &Break) -> Result<Vec<Holder>, DriverError> {
        let mut victim = None;
        if how.expect.is_some() {
            let holder = self.inspect(key).await?.holders.into_iter().next();
            let have = holder.as_ref().and_then(|holder| holder.token);
            if have != how.expect {
                return Err(DriverError::refused(Refusal::TokenMismatch { have }));
            }
            victim = holder.map(|holder| holder.owner);
        }
        let (asked, how) = (key.clone(), how.clone());
        let told = self
            .all(|eyes| {
                let (key, mut how, victim) = (asked.clone(), how.clone(), victim.clone());
                Box::pin(async move {
                    if let Some(victim) = victim {
                        // The second phase raised the token of a majority: the others know the holder by a smaller one.
                        let holders = eyes.inspect(&key).await?.holders;
                        match holders.into_iter().find(|holder| holder.owner == victim) {
                            Some(here) => how.expect = here.token,
                            None => return Ok(Vec::new()),
                        }
                    }
                    eyes.break_lock(&key, &how).await
                })
            })
            .await?;
        Ok(self.agreed(told.into_iter().flatten().collect()))
    }

    async fn doctor(&self) -> Result<Vec<Finding>, DriverError> {
        let one = async |node: &super::Node| {
            let examined = match node.driver.inspect() {
                Some(eyes) => self.clock().timeout(self.patience(), eyes.doctor()).await,
                None => Some(Ok(Vec::new())),
            };
            let trouble = |what: String| {
                vec![Finding {
                    severity: Severity::Warning,
                    id: "quorum-node-unreachable".into(),
                    what,
                    fix: "bring the node back: each one that is missing is one that may not be lost any more"
                        .into(),
                }]
            };
            let findings = match examined {
                Some(Ok(findings)) => findings,
                Some(Err(e)) => trouble(e.to_string()),
                None => trouble("no answer in time".into()),
            };
            let name = |finding: Finding| Finding {
                what: format!("{}: {}", node.name, finding.what),
                ..finding
            };
            findings.into_iter().map(name).collect::<Vec<_>>()
        };
        let mut findings = join_all(self.nodes.iter().map(one)).await.concat();
        if self.nodes.len().is_multiple_of(2) {
            findings.push(Finding {
                severity: Severity::Info,
                id: "quorum-even".into(),
                what: format!(
                    "{} nodes: as many may be lost as with {}",
                    self.nodes.len(),
                    self.nodes.len() - 1
                ),
                fix: "use an odd number of nodes".into(),
            });
        }
        Ok(findings)
    }
}
